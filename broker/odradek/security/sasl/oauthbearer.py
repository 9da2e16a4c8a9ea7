"""OAUTHBEARER (RFC 7628, KIP-255): the client sends a token of an identity provider. The server's part, without I/O.

The client's first message is ``n,a=AUTHORIZATION_ID,`` and pairs ``NAME=VALUE``, each ended by 0x01, then another 0x01. The
pair ``auth`` contains the token. If the server does not accept the token, it sends a JSON text; the client must answer with
0x01, and then the login fails. `odradek.security.sasl.token_verifier` checks tokens.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from odradek.security.sasl.mechanism import Challenge, KeysQuestion, Proven, Refused, Step
from odradek.security.sasl.scram_credential import ScramCredential

MODULE = "OAuthBearerLoginModule"
LONGEST_TOKEN = 16 * 1024
LONGEST_MESSAGE = 2 * LONGEST_TOKEN
"""The longest first message in bytes: the token, and extensions."""
MOST_PAIRS = 64
INVALID_TOKEN = '{"status":"invalid_token"}'
DUMMY = b"\x01"
"""With this, the client answers the server's error."""

_SEPARATOR = b"\x01"
_HEADER = re.compile(rb"n,(?:a=((?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\Z")
_NAME = re.compile(rb"[A-Za-z]+\Z")
_VALUE = re.compile(rb"[\x21-\x7e \t\r\n]+\Z")
_AUTH = re.compile(rb"(\w+) +([-_~+/.a-zA-Z0-9]+=*)\Z", re.ASCII)


class ClientFirst(NamedTuple):
    """The client's first message: authorization id (empty if there is none), token, extensions."""

    authorization_id: str
    token: bytes
    extensions: dict[str, str]

    def __repr__(self) -> str:
        return f"<ClientFirst with a token of {len(self.token)} bytes>"


class Identity(NamedTuple):
    """Whom a token names, and the Unix time in ms at which it expires."""

    user: str
    expires_ms: int


class UnknownKey(Exception):
    """The token is signed with a key that is not known (yet). ``user``: see `Refused`."""

    user = ""


Verify = Callable[[bytes], Identity]
"""Checks a token. Raises Refused, whose text the client does not receive, and UnknownKey."""


def parse_client_first(message: bytes) -> ClientFirst:
    """Parse the client's first message. Raises Refused."""
    if len(message) > LONGEST_MESSAGE:
        raise Refused(f"a message of {len(message)} bytes; allowed are {LONGEST_MESSAGE}")
    header, *pairs = message.split(_SEPARATOR, MOST_PAIRS + 2)
    found = _HEADER.match(header)
    if found is None:
        raise Refused("the first message does not begin with 'n,' and an authorization id")
    if len(pairs) < 2 or pairs[-2:] != [b"", b""]:
        raise Refused(f"the first message does not end with two bytes 0x01, or has more than {MOST_PAIRS} pairs")
    values: dict[str, bytes] = {}
    for pair in pairs[:-2]:
        name, sign, value = pair.partition(b"=")
        if not sign or _NAME.match(name) is None or _VALUE.match(value) is None:
            raise Refused("a pair of the first message is not NAME=VALUE of allowed characters")
        values[name.decode()] = value
    auth = _AUTH.match(values.pop("auth", b""))
    if auth is None or auth[1].lower() != b"bearer":
        raise Refused("the first message has no auth=Bearer TOKEN")
    if len(auth[2]) > LONGEST_TOKEN:
        raise Refused(f"a token of {len(auth[2])} bytes; allowed are {LONGEST_TOKEN}")
    authorization_id = (found[1] or b"").replace(b"=2C", b",").replace(b"=3D", b"=").decode()
    return ClientFirst(authorization_id, auth[2], {name: value.decode() for name, value in values.items()})


class OAuthBearer:
    """See `Mechanism`. :param verify: checks tokens."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify
        self._first: ClientFirst | None = None
        self._reason = ""
        self._user = ""  # that the token names, although it proves nothing

    def evaluate(self, token: bytes) -> Step:
        """Process the client's first message, or its answer to the server's error. Raises Refused."""
        if self._reason:
            # In Kafka, the client may send another first message here. One connection is one attempt.
            raise Refused(self._reason, INVALID_TOKEN if token == DUMMY else None, self._user)
        self._first = parse_client_first(token)
        return self._check(self._first, may_ask=True)

    def resumed(self) -> Step:
        """Check the token with the newest keys. Raises Refused."""
        assert self._first is not None
        return self._check(self._first, may_ask=False)

    def answered(self, credential: ScramCredential) -> Step:
        """Not used: only SCRAM asks the coordinator for a credential."""
        raise AssertionError("OAUTHBEARER has no credential to wait for")

    def _check(self, first: ClientFirst, may_ask: bool) -> Step:
        try:
            identity = self._verify(first.token)
        except UnknownKey as unknown:
            if may_ask:
                return KeysQuestion()
            self._reason, self._user = str(unknown), unknown.user
        except Refused as refusal:
            self._reason, self._user = refusal.reason, refusal.user
        else:
            return _proven(identity, first.authorization_id)
        return Challenge(INVALID_TOKEN.encode(), self._reason, self._user)


def _proven(identity: Identity, authorization_id: str) -> Proven:
    if authorization_id and authorization_id != identity.user:
        text = (
            f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different from the "
            f"token's principal name ({identity.user})"
        )
        raise Refused(
            "the client requested another authorization id than the token's principal name", text, identity.user
        )
    return Proven(b"", identity.user, identity.expires_ms)
