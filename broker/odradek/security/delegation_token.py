"""Delegation tokens (KIP-48, KIP-373): their values, their ids and their HMACs. Pure.

Whoever knows the id and the HMAC of a token can log in as its owner: the HMAC is a secret. It is computed from the id with the
secret key of the brokers, and stored nowhere.
"""

import base64
import hmac
import re
import secrets
from typing import NamedTuple

USER = "User"
_ID = re.compile("[A-Za-z0-9_-]{1,64}")
_ID_BYTES = 16


class Token(NamedTuple):
    """A token. Principals are texts such as "User:alice"; times are in ms since 1970.

    :ivar requester: created the token, perhaps for another owner. :ivar renewers: may renew and expire it, as the owner may.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    @property
    def principals(self) -> tuple[str, ...]:
        """Those who may describe the token without a right: owner, requester and renewers."""
        return (self.owner, self.requester, *self.renewers)

    def may_renew(self, principal: str) -> bool:
        """Whether the principal may renew and expire the token."""
        return principal == self.owner or principal in self.renewers

    def has_expired(self, now_ms: int) -> bool:
        """Whether nobody may use the token any more."""
        return self.max_ms < now_ms or self.expires_ms < now_ms


def hmac_of(key: bytes, token_id: str) -> bytes:
    """The HMAC of a token (64 bytes). :param key: delegation.token.secret.key."""
    return hmac.digest(key, token_id.encode(), "sha512")


def password_of(digest: bytes) -> str:
    """The password with which a client logs in: the HMAC in base64."""
    return base64.b64encode(digest).decode()


def new_id() -> str:
    """A random id in Kafka's form: 22 characters. The first one is not a hyphen, because ids are arguments of commands."""
    while True:
        token_id = base64.urlsafe_b64encode(secrets.token_bytes(_ID_BYTES)).decode().rstrip("=")
        if not token_id.startswith("-"):
            return token_id


def is_id(text: str) -> bool:
    """Whether a text can be the id of a token, and so the name of a node."""
    return _ID.fullmatch(text) is not None


def name_of(principal: str) -> tuple[str, str]:
    """The type and the name of a principal."""
    kind, _, name = principal.partition(":")
    return kind, name
