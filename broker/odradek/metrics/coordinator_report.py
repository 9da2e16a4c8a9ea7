"""The coordinator's response to the reporter: its groups and a report of its transactions. Each part may be absent.

Pure functions. Format, big-endian: the length of the report of transactions (i32; -1: absent); the report; a byte; the
groups, if the byte is 1.
"""

import struct
from typing import NamedTuple

_LENGTH = struct.Struct(">i")
_ABSENT = -1


class MalformedParts(ValueError):
    """Bytes that are not in this format."""


class Parts(NamedTuple):
    """The encoded parts: `group_rows.decode_groups` and `transactions.decode_transactions` read them.

    :param groups: None while the coordinator loads groups. :param transactions: None if `__transaction_state` does not exist.
    """

    groups: bytes | None
    transactions: bytes | None


def encode_parts(parts: Parts) -> bytes:
    """Encode both parts."""
    transactions = b"" if parts.transactions is None else parts.transactions
    head = _LENGTH.pack(_ABSENT if parts.transactions is None else len(transactions))
    return b"".join((head, transactions, b"\0" if parts.groups is None else b"\1", parts.groups or b""))


def decode_parts(payload: bytes) -> Parts:
    """Decode the parts. Raises MalformedParts."""
    try:
        (length,) = _LENGTH.unpack_from(payload)
        end = _LENGTH.size + max(length, 0)
        has_groups = payload[end]
    except (struct.error, IndexError):
        raise MalformedParts(f"the response of {len(payload)} bytes ends within the report of transactions") from None
    transactions = None if length == _ABSENT else payload[_LENGTH.size : end]
    return Parts(payload[end + 1 :] if has_groups else None, transactions)
