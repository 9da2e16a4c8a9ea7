"""PLAIN (RFC 4616): the client sends its name and password. The users are those of the broker's JAAS line.

Kafka's `PlainLoginModule` has an option ``user_NAME="PASSWORD"`` for each user.
"""

import hashlib
import hmac
from collections.abc import Mapping

from odradek.security.jaas import LoginModule
from odradek.security.sasl.mechanism import Proven, Refused, Step, unproven
from odradek.security.sasl.scram_credential import ScramCredential

MODULE = "PlainLoginModule"
USER_PREFIX = "user_"
TOKENS = 3
LONGEST_TOKEN = 16 * 1024
"""The longest token in bytes: the digest of a longer password would keep the event loop for milliseconds."""


def users_of(module: LoginModule) -> dict[str, bytes]:
    """The digests of the passwords by user name, see `digest_of`."""
    return {
        name.removeprefix(USER_PREFIX): digest_of(password.encode())
        for name, password in module.options.items()
        if name.startswith(USER_PREFIX)
    }


def digest_of(password: bytes) -> bytes:
    """A digest, which makes the comparison of two passwords independent of their lengths. It does not protect the password."""
    return hashlib.sha256(password).digest()


_NO_USER = digest_of(b"")


class Plain:
    """See `Mechanism`. :param users: see `users_of`."""

    def __init__(self, users: Mapping[str, bytes]) -> None:
        self._users = users

    def evaluate(self, token: bytes) -> Step:
        """Check the client's only token. Raises Refused, with Kafka's texts."""
        if len(token) > LONGEST_TOKEN:
            raise Refused(f"a token of {len(token)} bytes; allowed are {LONGEST_TOKEN}")
        parts = token.split(b"\0", TOKENS)
        if len(parts) != TOKENS:
            raise _refused(f"Invalid SASL/PLAIN response: expected {TOKENS} tokens, got {len(parts)}")
        authorization_id, name, password = parts
        if not name:
            raise _refused("Authentication failed: username not specified")
        user = name.decode("utf-8", "replace")
        if not password:
            raise _refused("Authentication failed: password not specified", user)
        # The same steps for a user who does not exist, so that the time does not show whether the user exists.
        same, exists = hmac.compare_digest(self._users.get(user, _NO_USER), digest_of(password)), user in self._users
        if not (same and exists):
            raise _refused("Authentication failed: Invalid username or password", user, unproven(exists))
        if authorization_id and authorization_id != name:
            raise _refused(
                "Authentication failed: Client requested an authorization id that is different from username", user
            )
        return Proven(b"", user)

    def answered(self, credential: ScramCredential) -> Step:
        """Not used: only SCRAM asks the coordinator for a credential."""
        raise AssertionError("PLAIN has no credential to wait for")

    def resumed(self) -> Step:
        """Not used: only OAUTHBEARER waits for keys of an identity provider."""
        raise AssertionError("PLAIN has no keys to wait for")


def _refused(text: str, user: str = "", detail: str = "") -> Refused:
    return Refused(text, text, user, detail)
