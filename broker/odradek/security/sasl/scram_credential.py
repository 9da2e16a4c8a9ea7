"""SCRAM credentials (RFC 5802, RFC 7677): their derivation from a password, and their form in the metadata store.

Pure functions. The form is that of Kafka 3.9 in ZooKeeper: ``salt=...,stored_key=...,server_key=...,iterations=...`` with
base64. A credential does not contain the password, but whoever knows it can try passwords, and can act as the server: it is a
secret.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import NamedTuple

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
"""Kafka's limits. Clients compute as many rounds at each login, so the maximum protects clients, too."""
MOST_STORED = (1 << 31) - 1
"""The largest number of iterations in the metadata store, where Kafka's tools accept any integer."""
SALT_BYTES = 32


class ScramMechanism(NamedTuple):
    """A mechanism: its number in requests (KIP-554), its name, and the name of its hash function in `hashlib`."""

    number: int
    name: str
    hash_name: str

    @property
    def hash(self) -> Callable[..., "hashlib._Hash"]:
        """The hash function, as `hmac` takes it."""
        function: Callable[..., hashlib._Hash] = getattr(hashlib, self.hash_name)
        return function

    @property
    def digest_bytes(self) -> int:
        """The size of a key."""
        return int(self.hash().digest_size)

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """The keyed hash of `data`."""
        return hmac.digest(key, data, self.hash_name)


SHA_256 = ScramMechanism(1, "SCRAM-SHA-256", "sha256")
SHA_512 = ScramMechanism(2, "SCRAM-SHA-512", "sha512")
BY_NAME = {mechanism.name: mechanism for mechanism in (SHA_256, SHA_512)}
BY_NUMBER = {mechanism.number: mechanism for mechanism in (SHA_256, SHA_512)}


class ScramCredential(NamedTuple):
    """What the server must know of a user.

    :ivar known: False for the made-up credential of a user who has none. :ivar owner: of a delegation token: the name of the
    user as whom the client logs in. :ivar expires_ms: of a delegation token, in ms since 1970; 0: of a user.
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    known: bool = True
    owner: str = ""
    expires_ms: int = 0

    def __repr__(self) -> str:
        return f"<ScramCredential of {self.iterations} iterations>"


class CorruptCredential(ValueError):
    """The stored text of a credential cannot be read. The message does not contain it."""


def salted_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """The key that a client derives from its password. Takes some milliseconds: not for an event loop."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    stored_key = mechanism.hash(mechanism.hmac(salted, b"Client Key")).digest()
    return ScramCredential(salt, stored_key, mechanism.hmac(salted, b"Server Key"), iterations)


def made_up(mechanism: ScramMechanism, user: str, secret: bytes) -> ScramCredential:
    """The credential with which a login as a user without a credential proceeds, and fails.

    It is the same for each attempt, or two attempts would show that the user does not exist. No password matches it: its keys
    are not derived from one.

    :param secret: known to the brokers of the cluster only.
    """

    def bytes_for(purpose: bytes) -> bytes:
        return mechanism.hmac(secret, purpose + mechanism.name.encode() + b"\0" + user.encode("utf-8", "surrogatepass"))

    salt = bytes_for(b"salt of ")[:SALT_BYTES]
    return ScramCredential(
        salt, bytes_for(b"stored key of "), bytes_for(b"server key of "), MIN_ITERATIONS, known=False
    )


def encode_credential(credential: ScramCredential) -> str:
    """The text of a credential in the metadata store."""
    salt, stored_key, server_key = (
        base64.b64encode(part).decode() for part in (credential.salt, credential.stored_key, credential.server_key)
    )
    return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={credential.iterations}"


def decode_credential(mechanism: ScramMechanism, text: str) -> ScramCredential:
    """The credential of a text in the metadata store. Raises CorruptCredential."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        salt, stored_key, server_key = (
            base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        iterations = int(fields["iterations"])
    except (KeyError, ValueError, binascii.Error) as error:
        raise CorruptCredential(f"a {mechanism.name} credential cannot be read ({type(error).__name__})") from None
    if (
        len(stored_key) != mechanism.digest_bytes
        or len(server_key) != mechanism.digest_bytes
        or not salt
        or not 1 <= iterations <= MOST_STORED
    ):
        raise CorruptCredential(
            f"a {mechanism.name} credential has a key of the wrong size, no salt, or no valid iterations"
        )
    return ScramCredential(salt, stored_key, server_key, iterations)
