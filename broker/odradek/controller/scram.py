"""The SCRAM credentials of users in the metadata store, in the nodes and the form of Kafka 3.9: ``/config/users/USER``.

Runs in the store thread, and in the command on a stopped broker. The same node contains the user's quotas; a change of
one keeps the other.
"""

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from odradek.controller.store_errors import NotController
from odradek.metadata import znodes
from odradek.metadata.store import NodeExists, NoNode, Store, StoreError, each_child, parent_of
from odradek.protocol.errors import ErrorCode
from odradek.security.sasl.scram_credential import (
    BY_NAME,
    BY_NUMBER,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    CorruptCredential,
    ScramCredential,
    ScramMechanism,
    credential_of,
    decode_credential,
    encode_credential,
    made_up,
)

log = logging.getLogger("odradek.controller")

STEP = 50
"""The number of users whose credentials one step reads, each in a round trip to the store."""
SECRET_BYTES = 32


class WriteSettings(Protocol):
    """See `SettingsWriter.write_settings`."""

    def __call__(self, path: str, settings: Mapping[str, str], keep_empty: bool = True) -> None: ...


class Upsertion(NamedTuple):
    """A credential to set, with the salted password instead of the password (KIP-554)."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"<Upsertion of {self.user}>"


class Deletion(NamedTuple):
    """A credential to delete."""

    user: str
    mechanism: int


class AlterationError(NamedTuple):
    """Why the credentials of a user were not changed."""

    code: ErrorCode
    message: str


Change = tuple[ScramMechanism, ScramCredential | None]
"""A credential to set, or to delete (None)."""


def find(store: Store, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
    """The credential of a user; None if the user has none. Raises StoreError."""
    text = _settings(store, user).get(mechanism.name)
    if text is None:
        return None
    try:
        return decode_credential(mechanism, text)
    except CorruptCredential as error:
        log.error("the user %r cannot log in: in %s, %s", user, path_of(user), error)
        return None


def found_or_made_up(store: Store, mechanism: ScramMechanism, user: str) -> ScramCredential:
    """The credential of a user; for a user who has none, one that no password matches. Raises StoreError."""
    secret = login_secret(store)  # first, so that both cases read it
    return find(store, mechanism, user) or made_up(mechanism, user, secret)


def login_secret(store: Store) -> bytes:
    """The secret for made-up credentials, which is created at its first use; all brokers of a cluster use the same. Raises
    StoreError."""
    while True:
        try:
            return store.get(znodes.LOGIN_SECRET)[0]
        except NoNode:
            for path in (parent_of(znodes.LOGIN_SECRET), znodes.LOGIN_SECRET):
                data = secrets.token_bytes(SECRET_BYTES) if path == znodes.LOGIN_SECRET else b""
                try:
                    store.create(path, data)
                except NodeExists:
                    pass  # another broker, or an earlier start, created it


def path_of(user: str) -> str:
    """The path of the node with a user's credentials and quotas."""
    return znodes.quota_path(znodes.encode_name(user), None, None)


def _settings(store: Store, user: str) -> dict[str, str]:
    if not user:
        return {}  # no node has an empty name
    path = path_of(user)
    try:
        return znodes.decode_config(path, store.get(path)[0])
    except NoNode:
        return {}


def described(
    store: Store, users: Collection[str] | None
) -> Generator[None, None, dict[str, dict[ScramMechanism, int]]]:
    """The iterations by user and mechanism. Users without credentials are left out. Yields after every `STEP` users.

    :param users: None: all users. Raises StoreError.
    """
    names: Iterable[str] = (
        (znodes.decode_name(node) for node in each_child(store, znodes.USER_CONFIGS) if node != znodes.DEFAULT_ENTITY)
        if users is None
        else users
    )
    found: dict[str, dict[ScramMechanism, int]] = {}
    for number, user in enumerate(names, 1):
        if number % STEP == 0:
            yield
        settings = _settings(store, user)
        iterations: dict[ScramMechanism, int] = {}
        for mechanism in BY_NAME.values():
            if mechanism.name in settings:
                try:
                    iterations[mechanism] = decode_credential(mechanism, settings[mechanism.name]).iterations
                except CorruptCredential as error:
                    log.error("%s of user %r: %s", path_of(user), user, error)
        if iterations:
            found[user] = iterations
    return found


def alter(
    store: Store,
    write_settings: WriteSettings,
    deletions: Sequence[Deletion],
    upsertions: Sequence[Upsertion],
    failed: Callable[[StoreError | NotController], AlterationError],
) -> Generator[None, None, list[tuple[str, AlterationError | None]]]:
    """Change credentials; for each user either all changes or none. Returns (user, error) for each change, as Kafka does; a
    user with an error occurs once. Yields after every `STEP` checks, and between two users.

    :param failed: the error of a user whose change failed. :raises StoreError: before the first change.
    """
    errors: dict[str, AlterationError] = {}
    changes: dict[str, list[Change]] = {}
    entries: list[Deletion | Upsertion] = [*deletions, *upsertions]
    counts = Counter((entry.user, entry.mechanism) for entry in entries)
    for number, entry in enumerate(entries):
        if number % STEP == STEP - 1:
            yield
        error = _error_of(store, entry, counts[entry.user, entry.mechanism])
        if error is not None:
            errors.setdefault(entry.user, error)
            continue
        mechanism = BY_NUMBER[entry.mechanism]
        credential = None
        if isinstance(entry, Upsertion):
            credential = credential_of(mechanism, entry.salted_password, entry.salt, entry.iterations)
        changes.setdefault(entry.user, []).append((mechanism, credential))
    results: list[tuple[str, AlterationError | None]] = []
    for user, of_user in changes.items():
        if user in errors:
            continue
        try:
            write(store, write_settings, user, of_user)
        except (StoreError, NotController) as error:
            errors[user] = failed(error)
        else:
            results += [(user, None) for _ in of_user]
            log.info(
                "changed the SCRAM credentials of user %r: %s",
                user,
                ", ".join(
                    f"{mechanism.name} {'set' if credential else 'deleted'}" for mechanism, credential in of_user
                ),
            )
        yield
    return [*results, *errors.items()]


def write(store: Store, write_settings: WriteSettings, user: str, changes: Iterable[Change]) -> None:
    """Change the credentials of a user in one transaction. Raises StoreError."""
    settings = _settings(store, user)
    for mechanism, credential in changes:
        if credential is None:
            settings.pop(mechanism.name, None)
        else:
            settings[mechanism.name] = encode_credential(credential)
    write_settings(path_of(user), settings, keep_empty=False)


def _error_of(store: Store, entry: Deletion | Upsertion, count: int) -> AlterationError | None:
    mechanism = BY_NUMBER.get(entry.mechanism)
    if not entry.user:
        return AlterationError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism is None:
        return AlterationError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if count > 1:
        return AlterationError(
            ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        )
    if isinstance(entry, Deletion):
        if mechanism.name not in _settings(store, entry.user):
            return AlterationError(
                ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
            )
        return None
    if entry.iterations > MAX_ITERATIONS:
        return AlterationError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if entry.iterations < MIN_ITERATIONS:
        return AlterationError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if not entry.salt or not entry.salted_password:
        return AlterationError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty")
    return None
