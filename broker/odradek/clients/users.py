"""Reads and changes the SCRAM credentials of users (KIP-554). Functions over a `Cluster`.

The password does not leave this process: the broker receives the salted password, from which it derives the credential.
"""

import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from odradek.clients.cluster import Cluster
from odradek.clients.errors import RefusedError, code_of, hint_on
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_user_scram_credentials, describe_user_scram_credentials
from odradek.security.sasl.scram_credential import BY_NUMBER, SALT_BYTES, ScramMechanism, salted_password


class UserCredential(NamedTuple):
    """A credential of a user: what the broker shows of it."""

    user: str
    mechanism: str
    iterations: int


def describe(cluster: Cluster, users: Collection[str] | None = None) -> list[UserCredential]:
    """The credentials of users, or of all users. Raises RefusedError if a named user has none, ClientError."""
    api = describe_user_scram_credentials
    request = api.Request(users=None if users is None else [api.Request.UserName(name=user) for user in users])
    response = cluster.ask_controller(api.SCHEMA, request, lambda response: [response.error_code])
    if response.error_code:
        raise RefusedError(response.error_code, response.error_message)
    credentials = []
    for result in sorted(response.results, key=lambda result: str(result.user)):
        if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            raise no_credential(result.user, lambda: [credential.user for credential in describe(cluster)])
        if result.error_code:
            raise RefusedError(result.error_code, result.error_message, f"user '{result.user}'")
        for info in result.credential_infos:
            mechanism = BY_NUMBER.get(info.mechanism)
            name = f"mechanism {info.mechanism}" if mechanism is None else mechanism.name
            credentials.append(UserCredential(result.user, name, info.iterations))
    return credentials


def no_credential(user: str, known: Callable[[], Iterable[str]]) -> RefusedError:
    """The error for a user who cannot log in with SCRAM. :param known: see `hint_on`."""
    hint = hint_on(user, known, "`odradek user list` shows all users")
    return RefusedError(ErrorCode.RESOURCE_NOT_FOUND, f"user '{user}' has no SCRAM credential; {hint}")


def set_password(
    cluster: Cluster, user: str, password: str, mechanisms: Sequence[ScramMechanism], iterations: int
) -> None:
    """Set the credentials of a user for these mechanisms. Raises RefusedError, ClientError.

    One request for each mechanism: Kafka refuses a request that names a user twice.
    """
    make = alter_user_scram_credentials.Request
    for mechanism in mechanisms:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salted_password(mechanism, password.encode(), salt, iterations)
        upsertion = make.ScramCredentialUpsertion(
            name=user, mechanism=mechanism.number, iterations=iterations, salt=salt, salted_password=salted
        )
        _alter(cluster, make(deletions=[], upsertions=[upsertion]))


def remove(cluster: Cluster, user: str, mechanisms: Sequence[ScramMechanism]) -> None:
    """Delete the credentials of a user for these mechanisms. Raises RefusedError, ClientError."""
    make = alter_user_scram_credentials.Request
    for mechanism in mechanisms:
        deletion = make.ScramCredentialDeletion(name=user, mechanism=mechanism.number)
        _alter(cluster, make(deletions=[deletion], upsertions=[]))


def _alter(cluster: Cluster, request: object) -> None:
    response = cluster.ask_controller(
        alter_user_scram_credentials.SCHEMA,
        request,
        lambda response: [result.error_code for result in response.results],
    )
    for result in response.results:
        if result.error_code:
            raise RefusedError(code_of(result.error_code), result.error_message, f"user '{result.user}'")
