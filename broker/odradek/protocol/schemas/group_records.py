"""Keys and values of the records of `__consumer_offsets`.

Keys and values begin with an int16: in a key the number of its kind, in a value its version. A record without a value is a
tombstone. Offsets of groups before Kafka 0.9 have kind 0, with the fields of kind 1. Values are written in versions that old
readers can decode, as Kafka does: 3 for offsets and classic groups, 0 for the others, whose later fields are tagged.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from odradek.protocol import ProtocolError, decode, encode
from odradek.protocol.schema import message


class Kind(NamedTuple):
    """A kind of record. :param written: the version in which values are written."""

    number: int
    key: Any
    value: Any
    newest: int
    written: int


KINDS: dict[int, Kind] = {}
_PREFIX = struct.Struct(">h")


def _kind(
    number: int, name: str, key: str, value: str, versions: str = "0", flexible: str = "0+", written: int = 0
) -> Kind:
    kind = Kind(
        number,
        message(f"{name}Key", key, versions="0", flexible="none", module=__name__),
        message(f"{name}Value", value, versions=versions, flexible=flexible, module=__name__),
        int(versions.rpartition("-")[2]),
        written,
    )
    KINDS[number] = kind
    return kind


GROUP = "GroupId   string  0+"
MEMBER = "GroupId   string  0+\n    MemberId  string  0+"

OFFSET_COMMIT = _kind(
    1,
    "OffsetCommit",
    """
    Group      string  0+
    Topic      string  0+
    Partition  int32   0+
    """,
    """
    Offset           int64   0+
    LeaderEpoch      int32   3+  default=-1 ignorable
    Metadata         string  0+
    CommitTimestamp  int64   0+
    ExpireTimestamp  int64   1   default=-1 ignorable
    TopicId          uuid    4+  tag=0 ignorable
    """,
    versions="0-4",
    flexible="4+",
    written=3,
)
KINDS[0] = OFFSET_COMMIT

GROUP_METADATA = _kind(
    2,
    "GroupMetadata",
    "Group  string  0+",
    """
    ProtocolType           string            0+
    Generation             int32             0+
    Protocol               string            0+  null
    Leader                 string            0+  null
    CurrentStateTimestamp  int64             2+  default=-1 ignorable
    Members                []MemberMetadata  0+
      MemberId             string            0+
      GroupInstanceId      string            3+  null default=null ignorable
      ClientId             string            0+
      ClientHost           string            0+
      RebalanceTimeout     int32             1+  default=-1 ignorable
      SessionTimeout       int32             0+
      Subscription         bytes             0+
      Assignment           bytes             0+
    """,
    versions="0-4",
    flexible="4+",
    written=3,
)

CONSUMER_GROUP_METADATA = _kind(
    3,
    "ConsumerGroupMetadata",
    GROUP,
    """
    Epoch         int32  0+
    MetadataHash  int64  0+  tag=0 default=0
    """,
)

CONSUMER_GROUP_PARTITION_METADATA = _kind(
    4,
    "ConsumerGroupPartitionMetadata",
    GROUP,
    """
    Topics               []TopicMetadata      0+
      TopicId            uuid                 0+
      TopicName          string               0+
      NumPartitions      int32                0+
      PartitionMetadata  []PartitionMetadata  0+
        Partition        int32                0+
        Racks            []string             0+
    """,
)

CONSUMER_GROUP_MEMBER_METADATA = _kind(
    5,
    "ConsumerGroupMemberMetadata",
    MEMBER,
    """
    InstanceId             string                 0+  null
    RackId                 string                 0+  null
    ClientId               string                 0+
    ClientHost             string                 0+
    SubscribedTopicNames   []string               0+
    SubscribedTopicRegex   string                 0+  null
    RebalanceTimeoutMs     int32                  0+  default=-1
    ServerAssignor         string                 0+  null
    ClassicMemberMetadata  ClassicMemberMetadata  0+  null default=null tag=0
      SessionTimeoutMs     int32                  0+
      SupportedProtocols   []ClassicProtocol      0+
        Name               string                 0+
        Metadata           bytes                  0+
    """,
)

CONSUMER_GROUP_TARGET_ASSIGNMENT = _kind(
    6,
    "ConsumerGroupTargetAssignmentMetadata",
    GROUP,
    """
    AssignmentEpoch      int32  0+
    AssignmentTimestamp  int64  0+  tag=0 default=0 ignorable
    """,
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = _kind(
    7,
    "ConsumerGroupTargetAssignmentMember",
    MEMBER,
    """
    TopicPartitions  []TopicPartition  0+
      TopicId        uuid              0+
      Partitions     []int32           0+
    """,
)

CONSUMER_GROUP_CURRENT_ASSIGNMENT = _kind(
    8,
    "ConsumerGroupCurrentMemberAssignment",
    MEMBER,
    """
    MemberEpoch                  int32               0+
    PreviousMemberEpoch          int32               0+
    State                        int8                0+
    AssignedPartitions           []TopicPartitions   0+
      TopicId                    uuid                0+
      Partitions                 []int32             0+
      AssignmentEpochs           []int32             0+  null default=null tag=0
    PartitionsPendingRevocation  []TopicPartitions   0+
    """,
)

CONSUMER_GROUP_REGULAR_EXPRESSION = _kind(
    16,
    "ConsumerGroupRegularExpression",
    """
    GroupId            string  0+
    RegularExpression  string  0+
    """,
    """
    Topics     []string  0+
    Version    int64     0+
    Timestamp  int64     0+
    """,
)


class UnknownRecord(ValueError):
    """The kind or version of a record is unknown: of another release, or of groups that this broker does not support."""


def record(kind: Kind, value: Any, **key: Any) -> tuple[bytes, bytes | None]:
    """Encode key and value of a record; a value of None makes a tombstone."""
    head = _PREFIX.pack(kind.number) + encode(kind.key(**key), 0)
    return head, None if value is None else _PREFIX.pack(kind.written) + encode(value, kind.written)


def read_record(key: bytes, value: bytes | None) -> tuple[Kind, Any, Any]:
    """Decode a record: kind, key and value (None for a tombstone).

    :raises UnknownRecord: the kind or version is unknown.
    :raises ProtocolError: the bytes are not in this format.
    """
    if len(key) < _PREFIX.size or (value is not None and len(value) < _PREFIX.size):
        raise ProtocolError("a key or value that is shorter than its version field")
    (number,) = _PREFIX.unpack_from(key)
    kind = KINDS.get(number)
    if kind is None:
        raise UnknownRecord(f"a record has the unknown kind {number}")
    read_key, _ = decode(kind.key, 0, key, _PREFIX.size)
    if value is None:
        return kind, read_key, None
    (version,) = _PREFIX.unpack_from(value)
    if not 0 <= version <= kind.newest:
        raise UnknownRecord(
            f"a value of version {version} for kind {number}, of which versions 0 to {kind.newest} are supported"
        )
    read_value, _ = decode(kind.value, version, value, _PREFIX.size)
    return kind, read_key, read_value
