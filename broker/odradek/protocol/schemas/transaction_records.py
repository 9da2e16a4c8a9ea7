"""Keys and values of the records of `__transaction_state`.

Keys and values begin with an int16: in a key the number of its kind (0 is the only one), in a value its version. A record
without a value is a tombstone.
"""

from __future__ import annotations

import struct
from typing import Any

from odradek.protocol import ProtocolError, decode
from odradek.protocol.schema import message
from odradek.protocol.schemas.group_records import UnknownRecord

_PREFIX = struct.Struct(">h")
NEWEST = 1
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""The names of the values of ``transaction_status``, which is the index."""

Key: Any = message("TransactionLogKey", "TransactionalId  string  0+", versions="0", flexible="none", module=__name__)

Value: Any = message(
    "TransactionLogValue",
    """
    ProducerId                        int64               0+
    PreviousProducerId                int64               1+  tag=0 default=-1 ignorable
    NextProducerId                    int64               1+  tag=1 default=-1 ignorable
    ProducerEpoch                     int16               0+
    NextProducerEpoch                 int16               1+  tag=3 default=-1 ignorable
    TransactionTimeoutMs              int32               0+
    TransactionStatus                 int8                0+
    TransactionPartitions             []PartitionsSchema  0+  null
      Topic                           string              0+
      PartitionIds                    []int32             0+
    TransactionLastUpdateTimestampMs  int64               0+
    TransactionStartTimestampMs       int64               0+
    ClientTransactionVersion          int16               1+  tag=2 default=0 ignorable
    """,
    versions="0-1",
    flexible="1+",
    module=__name__,
)


def read_record(key: bytes, value: bytes | None) -> tuple[Any, Any]:
    """Decode a record: key and value (None for a tombstone).

    :raises UnknownRecord: the kind or version is unknown.
    :raises ProtocolError: the bytes are not in this format.
    """
    if len(key) < _PREFIX.size or (value is not None and len(value) < _PREFIX.size):
        raise ProtocolError("a key or value that is shorter than its version field")
    (kind,) = _PREFIX.unpack_from(key)
    if kind != 0:
        raise UnknownRecord(f"a record has the unknown kind {kind}")
    read_key, _ = decode(Key, 0, key, _PREFIX.size)
    if value is None:
        return read_key, None
    (version,) = _PREFIX.unpack_from(value)
    if not 0 <= version <= NEWEST:
        raise UnknownRecord(f"a value of version {version}; versions 0 to {NEWEST} are supported")
    return read_key, decode(Value, version, value, _PREFIX.size)[0]
