"""The interface between the exchange and a SASL mechanism of the server, and the results of its steps."""

from typing import NamedTuple, Protocol

from odradek.security.sasl.scram_credential import ScramCredential

OAUTHBEARER = "OAUTHBEARER"
NAMES = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
"""The mechanisms that the broker supports."""


class Challenge(NamedTuple):
    """The exchange continues: a token for the client, which answers it. ``refusal``: the reason for the broker's log if the
    token says that the login fails, and the client only has to confirm that; else empty. ``user``: see `Refused`."""

    token: bytes
    refusal: str = ""
    user: str = ""


class CredentialQuestion(NamedTuple):
    """The mechanism needs the SCRAM credential of a user, or of the delegation token with the id `user`; `Mechanism.answered`
    continues."""

    mechanism: str
    user: str
    by_token: bool = False


class KeysQuestion(NamedTuple):
    """The token of the client names a key that the broker does not know: it must look for newer keys; `Mechanism.resumed`
    continues."""


class Proven(NamedTuple):
    """The client has proven who it is. ``token``: the last token for the client, possibly empty.

    ``expires_ms``: when the token of the login, and so the session, expires, in ms since 1970; 0: it does not.
    ``by_token``: it is a delegation token.
    """

    token: bytes
    user: str
    expires_ms: int = 0
    by_token: bool = False


class Refused(Exception):
    """The client has not proven who it is.

    :ivar text: the error text for the client; None for the general one, which says nothing about the reason.
    :ivar reason: the reason for the broker's log, without secrets.
    :ivar user: the user that the client named, if the exchange does not know it from a question; "": unknown.
    :ivar detail: for the broker's log, what neither the client nor the limits of the log may depend on, see `unproven`.
    """

    def __init__(self, reason: str, text: str | None = None, user: str = "", detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.text = text
        self.user = user
        self.detail = detail


def unproven(known: bool, by_token: bool = False) -> str:
    """Why a name and a password are wrong. Only the broker's log may say it: clients could find out which users exist."""
    if by_token:
        return "the password of the token is wrong" if known else "there is no such token, or it has expired"
    return "the password is wrong" if known else "there is no such user for this mechanism"


Step = Challenge | CredentialQuestion | KeysQuestion | Proven


class Mechanism(Protocol):
    """One login attempt of a client with one mechanism."""

    def evaluate(self, token: bytes) -> Step:
        """Process a token of the client. Raises Refused."""
        ...

    def answered(self, credential: ScramCredential) -> Step:
        """Continue after a CredentialQuestion. Raises Refused."""
        ...

    def resumed(self) -> Step:
        """Continue after a KeysQuestion. Raises Refused."""
        ...
