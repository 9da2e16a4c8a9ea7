"""Records of `__cluster_metadata`, the log in which Kafka's KRaft controllers keep the metadata of a cluster.

A record has no key. Its value consists of three unsigned varints (frame version 1, number of the kind, version of the record)
and the record. This module has schemas for topics, partitions, configurations, brokers, features, producer ids, quotas, ACLs,
SCRAM credentials and delegation tokens. For other kinds it has only the name, so that a tool can report what it skips.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from odradek.protocol import ProtocolError, decode
from odradek.protocol.schema import message

FRAME_VERSION = 1
MOST_VARINT_BYTES = 5
UNCHANGED = -2
"""``leader`` of a partition change that does not change the leader."""

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
"""``resource_type`` of configurations."""


class Kind(NamedTuple):
    """A kind of record; `schema` is None if only the name is known."""

    number: int
    name: str
    schema: Any
    newest: int


KINDS: dict[int, Kind] = {}


def _kind(number: int, name: str, text: str | None = None, newest: int = 0) -> Kind:
    schema = None
    if text is not None:
        schema = message(name, text, versions=f"0-{newest}" if newest else "0", flexible="0+", module=__name__)
    KINDS[number] = Kind(number, name, schema, newest)
    return KINDS[number]


REGISTER_BROKER = _kind(
    0,
    "RegisterBrokerRecord",
    """
    BrokerId              int32             0+
    IsMigratingZkBroker   bool              2+
    IncarnationId         uuid              0+
    BrokerEpoch           int64             0+
    EndPoints             []BrokerEndpoint  0+
      Name                string            0+
      Host                string            0+
      Port                uint16            0+
      SecurityProtocol    int16             0+
    Features              []BrokerFeature   0+
      Name                string            0+
      MinSupportedVersion int16             0+
      MaxSupportedVersion int16             0+
    Rack                  string            0+  null
    Fenced                bool              0+  default=true
    InControlledShutdown  bool              1+
    LogDirs               []uuid            3+  tag=0
    CordonedLogDirs       []uuid            4+  tag=1 null default=null
    """,
    newest=4,
)

UNREGISTER_BROKER = _kind(
    1,
    "UnregisterBrokerRecord",
    """
    BrokerId     int32  0+
    BrokerEpoch  int64  0+
    """,
)

TOPIC = _kind(
    2,
    "TopicRecord",
    """
    Name     string  0+
    TopicId  uuid    0+
    """,
)

PARTITION = _kind(
    3,
    "PartitionRecord",
    """
    PartitionId             int32    0+
    TopicId                 uuid     0+
    Replicas                []int32  0+
    Isr                     []int32  0+
    RemovingReplicas        []int32  0+
    AddingReplicas          []int32  0+
    Leader                  int32    0+  default=-1
    LeaderRecoveryState     int8     0+  tag=0
    LeaderEpoch             int32    0+  default=-1
    PartitionEpoch          int32    0+  default=-1
    Directories             []uuid   1+
    EligibleLeaderReplicas  []int32  2+  tag=1 null default=null
    LastKnownElr            []int32  2+  tag=2 null default=null
    """,
    newest=2,
)

CONFIG = _kind(
    4,
    "ConfigRecord",
    """
    ResourceType  int8    0+
    ResourceName  string  0+
    Name          string  0+
    Value         string  0+  null
    """,
)

PARTITION_CHANGE = _kind(
    5,
    "PartitionChangeRecord",
    """
    PartitionId             int32    0+  default=-1
    TopicId                 uuid     0+
    Isr                     []int32  0+  tag=0 null default=null
    Leader                  int32    0+  tag=1 default=-2
    Replicas                []int32  0+  tag=2 null default=null
    RemovingReplicas        []int32  0+  tag=3 null default=null
    AddingReplicas          []int32  0+  tag=4 null default=null
    LeaderRecoveryState     int8     0+  tag=5 default=-1
    Directories             []uuid   1+  tag=8 null default=null
    EligibleLeaderReplicas  []int32  2+  tag=6 null default=null
    LastKnownElr            []int32  2+  tag=7 null default=null
    """,
    newest=2,
)

REMOVE_TOPIC = _kind(9, "RemoveTopicRecord", "TopicId  uuid  0+")

FEATURE_LEVEL = _kind(
    12,
    "FeatureLevelRecord",
    """
    Name          string  0+
    FeatureLevel  int16   0+
    """,
)

PRODUCER_IDS = _kind(
    15,
    "ProducerIdsRecord",
    """
    BrokerId        int32  0+
    BrokerEpoch     int64  0+  default=-1
    NextProducerId  int64  0+
    """,
)

BEGIN_TRANSACTION = _kind(23, "BeginTransactionRecord")
END_TRANSACTION = _kind(24, "EndTransactionRecord")
ABORT_TRANSACTION = _kind(25, "AbortTransactionRecord")

CLIENT_QUOTA = _kind(
    14,
    "ClientQuotaRecord",
    """
    Entity        []EntityData  0+
      EntityType  string        0+
      EntityName  string        0+  null
    Key           string        0+
    Value         float64       0+
    Remove        bool          0+
    """,
)

USER_SCRAM_CREDENTIAL = _kind(
    11,
    "UserScramCredentialRecord",
    """
    Name        string  0+
    Mechanism   int8    0+
    Salt        bytes   0+
    StoredKey   bytes   0+
    ServerKey   bytes   0+
    Iterations  int32   0+
    """,
)

REMOVE_USER_SCRAM_CREDENTIAL = _kind(
    22,
    "RemoveUserScramCredentialRecord",
    """
    Name       string  0+
    Mechanism  int8    0+
    """,
)

ACCESS_CONTROL_ENTRY = _kind(
    18,
    "AccessControlEntryRecord",
    """
    Id              uuid    0+
    ResourceType    int8    0+
    ResourceName    string  0+
    PatternType     int8    0+
    Principal       string  0+
    Host            string  0+
    Operation       int8    0+
    PermissionType  int8    0+
    """,
)

REMOVE_ACCESS_CONTROL_ENTRY = _kind(19, "RemoveAccessControlEntryRecord", "Id  uuid  0+")

DELEGATION_TOKEN = _kind(
    10,
    "DelegationTokenRecord",
    """
    Owner                string    0+
    Requester            string    0+
    Renewers             []string  0+
    IssueTimestamp       int64     0+
    MaxTimestamp         int64     0+
    ExpirationTimestamp  int64     0+
    TokenId              string    0+
    """,
)

REMOVE_DELEGATION_TOKEN = _kind(26, "RemoveDelegationTokenRecord", "TokenId  string  0+")
for _number, _name in (
    (7, "FenceBrokerRecord"),
    (8, "UnfenceBrokerRecord"),
    (17, "BrokerRegistrationChangeRecord"),
    (20, "NoOpRecord"),
    (21, "ZkMigrationStateRecord"),
    (27, "RegisterControllerRecord"),
    (28, "ClearElrRecord"),
):
    _kind(_number, _name)


class UnknownMetadataRecord(ValueError):
    """The frame, kind or version of a record is unknown: a newer Kafka wrote it."""


def read_record(value: bytes) -> tuple[Kind, int, Any]:
    """Decode a record: kind, version and record (None if only the name of the kind is known).

    :raises UnknownMetadataRecord: a newer Kafka wrote it.
    :raises ProtocolError: the bytes are not in this format.
    """
    frame, position = _varint(value, 0)
    if frame != FRAME_VERSION:
        raise UnknownMetadataRecord(f"a record of frame version {frame}; only version {FRAME_VERSION} is supported")
    number, position = _varint(value, position)
    version, position = _varint(value, position)
    kind = KINDS.get(number)
    if kind is None:
        raise UnknownMetadataRecord(f"a record has the unknown kind {number}, version {version}")
    if kind.schema is None:
        return kind, version, None
    if version > kind.newest:
        raise UnknownMetadataRecord(f"a {kind.name} has version {version}; versions 0 to {kind.newest} are supported")
    return kind, version, decode(kind.schema, version, value, position)[0]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for number in range(MOST_VARINT_BYTES):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return value, position
    raise ProtocolError(f"the bytes before position {position} are not an unsigned varint")
