"""Logs a connection of a client in with SASL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.clients.errors import ClientError
from odradek.security.sasl.client import Credentials, LoginError, RefusedLoginError, TokenCredentials, login

if TYPE_CHECKING:
    from odradek.clients.wire import Connection

REMEDY = (
    "; check sasl.mechanism and sasl.jaas.config of the client (--command-config), and that the broker has this user for this "
    "mechanism (`odradek user list`); the broker's log names the reason"
)


def log_in(connection: Connection, credentials: Credentials | TokenCredentials) -> int:
    """Log in, before any other request. Returns the lifetime of the session in ms; 0: unlimited.

    Raises ClientError if the broker refuses the login, UnsupportedError, UnreachableError.
    """
    try:
        steps = login(credentials)
        ask = next(steps)
        while True:
            response = connection.ask(ask.api, ask.request, oldest=ask.oldest)
            try:
                ask = steps.send(response)
            except StopIteration as end:
                return int(end.value)
    except LoginError as error:
        hint = REMEDY if isinstance(error, RefusedLoginError) else ""
        raise ClientError(f"cannot log in at {connection.address} as {credentials.user}: {error}{hint}") from None
