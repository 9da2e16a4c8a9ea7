"""SCRAM-SHA-256 and SCRAM-SHA-512, the server's side (RFC 5802, RFC 7677), without channel binding, as in Kafka.

The server only computes HMACs, so an attempt costs microseconds. A user without a credential takes the same steps with a
made-up credential. With the extension ``tokenauth=true``, the user name is the id of a delegation token, whose owner logs in.
"""

import base64
import binascii
import hmac
import secrets
from collections.abc import Callable
from typing import NamedTuple

from odradek.security.sasl.mechanism import Challenge, CredentialQuestion, Proven, Refused, Step, unproven
from odradek.security.sasl.scram_credential import ScramCredential, ScramMechanism

TOKEN_AUTH = "tokenauth"
NONCE_BYTES = 24
LONGEST_MESSAGE = 16 * 1024
"""The longest message in bytes: a longer one, cut at its commas, would keep the event loop for milliseconds."""


def new_nonce() -> str:
    """A random nonce of printable characters without a comma."""
    return base64.b64encode(secrets.token_bytes(NONCE_BYTES)).decode()


class ClientFirst(NamedTuple):
    """The client's first message: gs2 header, the message without it, authorization id, user, nonce, extensions."""

    gs2_header: str
    bare: str
    authorization_id: str
    user: str
    nonce: str
    extensions: dict[str, str]

    @property
    def by_token(self) -> bool:
        """Whether the user is the id of a delegation token."""
        return self.extensions.get(TOKEN_AUTH, "").lower() == "true"


class ClientFinal(NamedTuple):
    """The client's last message: gs2 header, nonce, proof, and the message without the proof."""

    gs2_header: bytes
    nonce: str
    proof: bytes
    without_proof: str


def parse_client_first(token: bytes) -> ClientFirst:
    """Parse ``n,[a=NAME],[m=...,]n=USER,r=NONCE[,NAME=VALUE...]``. Raises Refused."""
    text = _text(token)
    flag, comma, rest = text.partition(",")
    authorization, second, bare = rest.partition(",")
    if not comma or not second or flag not in ("n", "y"):
        raise Refused("the first SCRAM message has no gs2 header without channel binding")
    if authorization and not authorization.startswith("a="):
        raise Refused("the first SCRAM message has a malformed authorization id")
    fields = bare.split(",")
    if fields[0].startswith("m="):
        del fields[0]  # Kafka skips it, although RFC 5802 wants a refusal
    if len(fields) < 2 or not fields[0].startswith("n=") or not fields[1].startswith("r="):
        raise Refused("the first SCRAM message has no user name and nonce")
    nonce = fields[1][2:]
    if not nonce or not nonce.isascii() or not nonce.isprintable() or " " in nonce:
        raise Refused("the first SCRAM message has no printable nonce")
    extensions = {}
    for field in fields[2:]:
        name, sign, value = field.partition("=")
        if not sign or not name.isalpha():
            raise Refused("the first SCRAM message has a malformed extension")
        extensions[name] = value
    user = _name(fields[0][2:])
    if not user:
        raise Refused("the first SCRAM message has an empty user name")
    return ClientFirst(f"{flag},{authorization},", bare, _name(authorization[2:]), user, nonce, extensions)


def parse_client_final(token: bytes) -> ClientFinal:
    """Parse ``c=CHANNEL,r=NONCE[,NAME=VALUE...],p=PROOF``. Raises Refused."""
    text = _text(token)
    without_proof, sign, proof = text.rpartition(",p=")
    fields = without_proof.split(",")
    if not sign or len(fields) < 2 or not fields[0].startswith("c=") or not fields[1].startswith("r="):
        raise Refused("the last SCRAM message has no channel binding, nonce and proof")
    return ClientFinal(_decoded(fields[0][2:]), fields[1][2:], _decoded(proof), without_proof)


def _text(token: bytes) -> str:
    if len(token) > LONGEST_MESSAGE:
        raise Refused(f"a SCRAM message of {len(token)} bytes; allowed are {LONGEST_MESSAGE}")
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise Refused("a SCRAM message is not UTF-8") from None


def _name(text: str) -> str:
    """Decode a name, in which ``=2C`` is a comma and ``=3D`` an equals sign. Raises Refused."""
    if "=" not in text:
        return text
    if "=" not in text.replace("=2C", "").replace("=3D", ""):
        return text.replace("=2C", ",").replace("=3D", "=")
    raise Refused("a name in a SCRAM message has an '=' that is not followed by 2C or 3D")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Refused("a SCRAM message has malformed base64") from None


class Scram:
    """See `Mechanism`. :param make_nonce: makes the server's part of the nonce."""

    def __init__(self, mechanism: ScramMechanism, make_nonce: Callable[[], str] = new_nonce) -> None:
        self._mechanism = mechanism
        self._make_nonce = make_nonce
        self._first: ClientFirst | None = None
        self._credential: ScramCredential | None = None
        self._nonce = ""
        self._server_first = ""

    def evaluate(self, token: bytes) -> Step:
        """Process the client's first or last message. Raises Refused."""
        if self._credential is not None:
            return self._last(parse_client_final(token), self._credential)
        if self._first is not None:
            raise Refused("a second SCRAM message came before the server's answer to the first")
        first = parse_client_first(token)
        self._first = first
        return CredentialQuestion(self._mechanism.name, first.user, first.by_token)

    def answered(self, credential: ScramCredential) -> Step:
        """Continue with the credential of the user or the delegation token, or with a made-up one."""
        first = self._first
        assert first is not None and self._credential is None
        self._credential = credential
        self._nonce = first.nonce + self._make_nonce()
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return Challenge(self._server_first.encode())

    def resumed(self) -> Step:
        """Not used: only OAUTHBEARER waits for keys of an identity provider."""
        raise AssertionError("SCRAM has no keys to wait for")

    def _last(self, last: ClientFinal, credential: ScramCredential) -> Step:
        mechanism, first = self._mechanism, self._first
        assert first is not None
        # librdkafka before 2.6.1 puts its own nonce before the whole nonce once more; the proof covers what was sent
        if last.nonce not in (self._nonce, first.nonce + self._nonce):
            raise Refused("the last SCRAM message has another nonce")
        if last.gs2_header != first.gs2_header.encode():
            raise Refused("the last SCRAM message has another channel binding than the first")
        message = f"{first.bare},{self._server_first},{last.without_proof}".encode()
        signature = mechanism.hmac(credential.stored_key, message)
        proof = int.from_bytes(last.proof.ljust(len(signature), b"\0")[: len(signature)], "big")
        client_key = (proof ^ int.from_bytes(signature, "big")).to_bytes(len(signature), "big")
        matches = hmac.compare_digest(mechanism.hash(client_key).digest(), credential.stored_key)
        server_signature = mechanism.hmac(credential.server_key, message)
        if not (matches and len(last.proof) == len(signature) and credential.known):
            raise Refused("invalid credentials", detail=unproven(credential.known, first.by_token))
        if first.authorization_id and first.authorization_id != first.user:
            text = "Authentication failed: Client requested an authorization id that is different from username"
            raise Refused(text, text)
        user = credential.owner if credential.expires_ms else first.user
        return Proven(
            b"v=" + base64.b64encode(server_signature), user, credential.expires_ms, credential.expires_ms != 0
        )
