"""The encoding in which the processes of a broker share ACLs. Pure functions."""

import json
from collections.abc import Iterable

from odradek.security.acl import Acl


def encode_acls(acls: Iterable[Acl]) -> bytes:
    """ACLs as bytes for other processes."""
    return json.dumps([list(acl) for acl in acls], separators=(",", ":")).encode()


def decode_acls(data: bytes) -> list[Acl]:
    """The result of `encode_acls`, as ACLs."""
    return [Acl(*fields) for fields in json.loads(data)]
