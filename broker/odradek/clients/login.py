"""Logs a connection of a client in with SASL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.clients.errors import ClientError
from odradek.protocol.client_connection import converse
from odradek.security.sasl.client import PLAIN, Credentials, LoginError, RefusedLoginError, TokenCredentials, login

if TYPE_CHECKING:
    from odradek.clients.wire import Connection

_WHERE = "check sasl.mechanism and sasl.jaas.config of the client (--command-config), and "
OAUTH_REMEDY = (
    "check that the token has the issuer and the audience that the broker expects (sasl.oauthbearer.expected.issuer, "
    "sasl.oauthbearer.expected.audience), and compare the clocks"
)
PLAIN_REMEDY = f"{_WHERE}the line listener.name.LISTENER.plain.sasl.jaas.config of the broker, which lists its users"
SCRAM_REMEDY = f"{_WHERE}that the broker has this user for this mechanism (`odradek user list`)"
TOKEN_REMEDY = "the token has expired or was removed, or its password is wrong (`odradek token describe`, as its owner)"


def log_in(connection: Connection, credentials: Credentials | TokenCredentials) -> int:
    """Log in, before any other request. Returns the lifetime of the session in ms; 0: unlimited.

    Raises ClientError if the broker refuses the login, UnsupportedError, UnreachableError.
    """
    try:
        return converse(login(credentials), lambda ask: connection.ask(ask.api, ask.request, oldest=ask.oldest))
    except LoginError as error:
        hint = (
            f"; {remedy_of(credentials)}; the broker's log names the reason"
            if isinstance(error, RefusedLoginError)
            else ""
        )
        raise ClientError(f"cannot log in at {connection.address} as {credentials.user}: {error}{hint}") from None


def remedy_of(credentials: Credentials | TokenCredentials) -> str:
    """What to check if the broker refuses these credentials."""
    if isinstance(credentials, TokenCredentials):
        return OAUTH_REMEDY
    if credentials.by_token:
        return TOKEN_REMEDY
    return PLAIN_REMEDY if credentials.mechanism == PLAIN else SCRAM_REMEDY
