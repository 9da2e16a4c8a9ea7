"""The client's side of a login, without I/O: a generator of requests, which receives the responses.

PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER, in requests (SaslHandshake 1, KIP-152).
"""

import base64
import binascii
import hmac
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple

from odradek.printable import printable
from odradek.protocol.errors import ErrorCode, known_error
from odradek.protocol.schema import Ask
from odradek.protocol.schemas import sasl_authenticate, sasl_handshake
from odradek.security.sasl.mechanism import OAUTHBEARER
from odradek.security.sasl.scram import TOKEN_AUTH, new_nonce
from odradek.security.sasl.scram_credential import BY_NAME, ScramMechanism, credential_of, salted_password

PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *BY_NAME, OAUTHBEARER)
MOST_ITERATIONS = 1 << 20
"""More rounds are refused: a false server could otherwise let the client compute for minutes."""
LEAST_ITERATIONS = 4096
LONGEST_SHOWN = 500
"""The longest part of a message that the other side has chosen, in characters."""


class LoginError(Exception):
    """The login failed; the message is one line for a user, without secrets."""


class RefusedLoginError(LoginError):
    """The broker does not accept the user, the password, or both."""


class NoTokenError(LoginError):
    """There is no token to log in with, so nothing was sent to the broker."""


class Credentials(NamedTuple):
    """A mechanism, a user and a password; or a SCRAM mechanism, the id of a delegation token and its HMAC in base64."""

    mechanism: str
    user: str
    password: str
    by_token: bool = False

    def __repr__(self) -> str:
        return f"<Credentials of {self.user} for {self.mechanism}>"


def _ignore(_token: str) -> None:
    pass


class TokenCredentials(NamedTuple):
    """What a client needs to log in with OAUTHBEARER.

    :param token: returns the token to use now; it may block, and raises LoginError.
    :param extensions: sent with the token (RFC 7628); see `check_extensions`. :param user: for messages only.
    :param refused: called with a token that the broker does not accept. :param warning: what an operator must know about the
        settings, in one line; empty if nothing.
    """

    token: Callable[[], str]
    extensions: Mapping[str, str] = {}
    user: str = "the principal of the token"
    mechanism: str = OAUTHBEARER
    refused: Callable[[str], None] = _ignore
    warning: str = ""

    def __repr__(self) -> str:
        return f"<TokenCredentials of {self.user}>"


Login = Generator[Ask, Any, int]
"""Returns the lifetime of the session in ms; 0: unlimited. Raises LoginError."""


def login(credentials: Credentials | TokenCredentials, make_nonce: Callable[[], str] = new_nonce) -> Login:
    """Log in. Raises LoginError, also ValueError for an unknown mechanism."""
    if credentials.mechanism not in MECHANISMS:
        raise ValueError(f"SASL mechanism {credentials.mechanism} must be one of {', '.join(MECHANISMS)}")
    bearer = ""
    if isinstance(credentials, TokenCredentials):
        bearer = credentials.token()  # before the handshake: the broker bounds the time between the two requests
    choice = yield Ask(sasl_handshake.SCHEMA, sasl_handshake.Request(mechanism=credentials.mechanism), 1)
    if choice.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        enabled = printable(", ".join(choice.mechanisms), LONGEST_SHOWN) or "none"
        raise LoginError(f"the broker does not enable SASL mechanism {credentials.mechanism}, but these: {enabled}")
    if choice.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise LoginError("the listener has no SASL (ILLEGAL_SASL_STATE): set security.protocol to PLAINTEXT or SSL")
    if choice.error_code:
        raise LoginError(f"the broker refused the SASL handshake: {_name(choice.error_code)}")
    if isinstance(credentials, TokenCredentials):
        try:
            return (yield from _bearer(bearer, credentials.extensions))
        except LoginError:
            credentials.refused(bearer)
            raise
    if credentials.mechanism == PLAIN:
        token = b"\0".join((b"", credentials.user.encode(), credentials.password.encode()))
        return int((yield from _authenticate(token)).session_lifetime_ms)
    return (yield from _scram(BY_NAME[credentials.mechanism], credentials, make_nonce()))


def _authenticate(token: bytes) -> Generator[Ask, Any, Any]:
    response = yield Ask(sasl_authenticate.SCHEMA, sasl_authenticate.Request(auth_bytes=token), 0)
    if response.error_code:
        text = printable(response.error_message or "no reason was given", LONGEST_SHOWN)
        raise RefusedLoginError(f"the broker refused the login ({_name(response.error_code)}): {text}")
    return response


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Raise ValueError, which names the extension, if one cannot be sent."""
    for name, value in extensions.items():
        if not (name.isascii() and name.isalpha()) or name == "auth":
            raise ValueError(f"extension {name}: the name must consist of letters, and must not be auth")
        if not value or any(not (" " <= char <= "~" or char in "\t\r\n") for char in value):
            raise ValueError(f"extension {name}: the value must consist of printable ASCII characters")


def _bearer(token: str, extensions: Mapping[str, str]) -> Generator[Ask, Any, int]:
    pairs = {"auth": f"Bearer {token}", **extensions}
    message = "".join(["n,,\x01", *(f"{name}={value}\x01" for name, value in pairs.items()), "\x01"])
    response = yield from _authenticate(message.encode())
    if not response.auth_bytes:
        return int(response.session_lifetime_ms)
    # The error of the broker, which must be answered before the broker ends the login.
    error = bytes(response.auth_bytes)[:LONGEST_SHOWN].decode("ascii", "replace")
    yield from _authenticate(b"\x01")
    raise LoginError(f"the broker does not accept the token: {error!a}")


def _scram(mechanism: ScramMechanism, credentials: Credentials, nonce: str) -> Generator[Ask, Any, int]:
    user = credentials.user.replace("=", "=3D").replace(",", "=2C")
    bare = f"n={user},r={nonce}" + (f",{TOKEN_AUTH}=true" if credentials.by_token else "")
    first = yield from _authenticate(f"n,,{bare}".encode())
    server_first = bytes(first.auth_bytes)
    fields = _fields(server_first)
    try:
        iterations, salt = int(fields["i"]), base64.b64decode(fields["s"], validate=True)
        server_nonce = fields["r"]
    except (KeyError, ValueError, binascii.Error):
        raise LoginError("the broker's first SCRAM message is malformed") from None
    if not server_nonce.startswith(nonce) or server_nonce == nonce:
        raise LoginError("the broker's first SCRAM message has another nonce")
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise LoginError(
            f"the broker demands {iterations} SCRAM iterations; must be from {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
        )
    salted = salted_password(mechanism, credentials.password.encode(), salt, iterations)
    credential = credential_of(mechanism, salted, salt, iterations)
    without_proof = f"c=biws,r={server_nonce}"
    message = b",".join((bare.encode(), server_first, without_proof.encode()))
    signature = mechanism.hmac(credential.stored_key, message)
    client_key = mechanism.hmac(salted, b"Client Key")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    last = yield from _authenticate(f"{without_proof},p={base64.b64encode(proof).decode()}".encode())
    try:
        server_signature = base64.b64decode(_fields(bytes(last.auth_bytes))["v"], validate=True)
    except (KeyError, ValueError, binascii.Error):
        raise LoginError("the broker's last SCRAM message is malformed") from None
    if not hmac.compare_digest(server_signature, mechanism.hmac(credential.server_key, message)):
        raise LoginError("the broker does not know the credential of the user: it may be another server")
    return int(last.session_lifetime_ms)


def _fields(message: bytes) -> dict[str, str]:
    text = message.decode("utf-8", "replace")
    return {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _name(code: int) -> str:
    known = known_error(code)
    return f"error {code}" if known is None else known.name
