"""A request of each API, which names resources with and without rights. For tests only.

Names begin with "mine" or "theirs", by which the sets of ACLs of the test distinguish them. Requests that would change
something are refused for another reason if they are allowed, or are validated only, so that one set leaves nothing to the
next.
"""

from collections.abc import Callable
from typing import Any

from odradek.protocol.registry import by_key
from odradek.storage.batch import Record, build_batch
from tests.wire import NOBODY, batch, fetch_request, produce_request

Ids = dict[str, bytes]
Request = tuple[Any, int, int]
"""The request, its API key and version."""
NAMES = ("mine", "theirs", "mine-absent", "theirs-absent")
GONE = ("mine-gone", "theirs-gone")
"""Topics that a set of ACLs may let the client delete; made again for each set."""
TIME = 1_700_000_000_000


def _make(key: int) -> Any:
    return by_key(key).request


def _transactional_batch() -> bytes:
    return build_batch([Record(b"k", b"v", TIME)], producer_id=1, producer_epoch=0, base_sequence=0, attributes=0x10)


def _produce(version: int) -> Callable[[Ids], Request]:
    def build(ids: Ids) -> Request:
        names = [ids[n] if version >= 13 else n for n in ("mine", "theirs")]
        names += [NOBODY] if version >= 13 else ["mine-absent", "theirs-absent"]
        return produce_request([(n, [(0, batch(b"v"))]) for n in names], -1), 0, version

    return build


def _fetch(version: int) -> Callable[[Ids], Request]:
    def build(ids: Ids) -> Request:
        names = [ids[n] if version >= 13 else n for n in ("mine", "theirs")]
        names += [NOBODY] if version >= 13 else ["mine-absent", "theirs-absent"]
        return fetch_request([(n, 0, 1 << 40) for n in names]), 1, version

    return build


def _list_offsets(version: int) -> Callable[[Ids], Request]:
    def build(_: Ids) -> Request:
        make = _make(2)
        asked = [make.ListOffsetsPartition(partition_index=0, timestamp=-2, current_leader_epoch=-1, max_num_offsets=1)]
        return make(replica_id=-1, topics=[make.ListOffsetsTopic(name=n, partitions=asked) for n in NAMES]), 2, version

    return build


def _metadata(
    version: int, *, names: Any = NAMES, create: bool = False, by_id: bool = False
) -> Callable[[Ids], Request]:
    def build(ids: Ids) -> Request:
        make = _make(3)
        topics = None if names is None else [make.MetadataRequestTopic(name=n) for n in names]
        if by_id:
            wanted = (ids["mine"], ids["theirs"], NOBODY)
            topics = [make.MetadataRequestTopic(name=None, topic_id=one) for one in wanted]
        request = make(topics=topics, allow_auto_topic_creation=create or version < 4)
        if version >= 8:
            request.include_topic_authorized_operations = True
        if 8 <= version <= 10:
            request.include_cluster_authorized_operations = True
        return request, 3, version

    return build


def _commit(version: int, group: str) -> Callable[[Ids], Request]:
    def build(ids: Ids) -> Request:
        make = _make(8)
        topics = []
        for name in ("mine", "theirs") if version >= 10 else NAMES:
            fields = {"topic_id": ids[name]} if version >= 10 else {"name": name}
            topics.append(
                make.OffsetCommitRequestTopic(
                    **fields,
                    partitions=[make.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
                )
            )
        return make(group_id=group, topics=topics), 8, version

    return build


def _fetch_offsets(version: int, group: str, everything: bool = False) -> Callable[[Ids], Request]:
    def build(ids: Ids) -> Request:
        make = _make(9)
        if version < 8:
            topics = (
                None if everything else [make.OffsetFetchRequestTopic(name=n, partition_indexes=[0]) for n in NAMES]
            )
            return make(group_id=group, topics=topics), 9, version
        groups = []
        for one in (group, "theirs" if group == "mine" else "mine"):
            wanted = [
                make.OffsetFetchRequestTopics(
                    **({"topic_id": ids[n]} if version >= 10 else {"name": n}), partition_indexes=[0]
                )
                for n in ("mine", "theirs")
            ]
            groups.append(make.OffsetFetchRequestGroup(group_id=one, topics=None if everything else wanted))
        return make(groups=groups), 9, version

    return build


def _simple(api_key: int, version: int, /, **fields: Any) -> Callable[[Ids], Request]:
    return lambda _: (_make(api_key)(**fields), api_key, version)


def _with(key: int, version: int, build: Callable[[Any], dict[str, Any]]) -> Callable[[Ids], Request]:
    """A request whose fields need its own structures."""
    return lambda _: (_make(key)(**build(_make(key))), key, version)


def _resources(m: Any, name: str, kinds: tuple[tuple[int, str], ...], **more: Any) -> list[Any]:
    return [getattr(m, name)(resource_type=kind, resource_name=one, **more) for kind, one in kinds]


RESOURCES = (
    (2, "mine"),
    (2, "theirs"),
    (2, "mine-absent"),
    (2, "theirs-absent"),
    (4, "1"),
    (32, "mine"),
    (32, "theirs"),
)


def _txn_topics(m: Any, structure: str, numbers: str) -> list[Any]:
    return [getattr(m, structure)(name=n, **{numbers: [0]}) for n in NAMES]


def _acl_filter(m: Any) -> Any:
    return m.DeleteAclsFilter(
        resource_type_filter=2, resource_name_filter="nothing", pattern_type_filter=3, operation=1, permission_type=1
    )


REQUESTS: dict[str, Callable[[Ids], Request]] = {
    "produce 9": _produce(9),
    "produce 13": _produce(13),
    "produce in transaction": lambda _: (
        produce_request(
            [("mine", [(0, _transactional_batch())]), ("theirs", [(0, batch(b"v"))])], -1, transactional_id="theirs"
        ),
        0,
        9,
    ),
    "fetch 4": _fetch(4),
    "fetch 12": _fetch(12),
    "fetch 17": _fetch(17),
    "list offsets 1": _list_offsets(1),
    "list offsets 10": _list_offsets(10),
    "metadata 1 all": _metadata(1, names=None),
    "metadata 8 all": _metadata(8, names=None),
    "metadata 12 all": _metadata(12, names=None),
    "metadata 8": _metadata(8),
    "metadata 12": _metadata(12),
    "metadata by id": _metadata(12, by_id=True),
    "commit 2 mine": _commit(2, "mine"),
    "commit 9 mine": _commit(9, "mine"),
    "commit 9 theirs": _commit(9, "theirs"),
    "commit 10 mine": _commit(10, "mine"),
    "offsets 1 theirs": _fetch_offsets(1, "theirs"),
    "offsets 5 mine": _fetch_offsets(5, "mine"),
    "offsets 7 all": _fetch_offsets(7, "mine", everything=True),
    "offsets 8": _fetch_offsets(8, "theirs"),
    "offsets 8 all": _fetch_offsets(8, "mine", everything=True),
    "offsets 10": _fetch_offsets(10, "mine"),
    "coordinator 1": _simple(10, 1, key="theirs", key_type=0),
    "coordinator 3 of transaction": _simple(10, 3, key="theirs", key_type=1),
    "coordinator 4": _simple(10, 4, coordinator_keys=["mine", "theirs", "mine-b"], key_type=0),
    "coordinator 4 of transactions": _simple(10, 4, coordinator_keys=["theirs", "mine"], key_type=1),
    **{
        f"join {version} {name}": _with(
            11,
            version,
            lambda m, name=name: {
                "group_id": name,
                "session_timeout_ms": 30_000,
                "rebalance_timeout_ms": 30_000,
                "member_id": "nobody",
                "protocol_type": "consumer",
                "protocols": [m.JoinGroupRequestProtocol(name="range", metadata=b"")],
            },
        )
        for version, name in ((1, "mine"), (9, "mine"), (9, "theirs"))
    },
    **{
        f"heartbeat {name}": _simple(12, 4, group_id=name, generation_id=1, member_id="nobody")
        for name in ("mine", "theirs")
    },
    **{
        f"leave {name}": _with(
            13, 5, lambda m, name=name: {"group_id": name, "members": [m.MemberIdentity(member_id="nobody")]}
        )
        for name in ("mine", "theirs")
    },
    **{
        f"sync {name}": _simple(
            14, 5, group_id=name, generation_id=1, member_id="nobody", protocol_type="consumer", protocol_name="range"
        )
        for name in ("mine", "theirs")
    },
    "describe groups": _simple(15, 5, groups=["mine", "theirs", "mine-absent"], include_authorized_operations=True),
    "list groups": _simple(16, 4),
    "create topics": _with(
        19,
        7,
        lambda m: {
            "validate_only": True,
            "timeout_ms": 9999,
            "topics": [
                m.CreatableTopic(name=n, num_partitions=1, replication_factor=1)
                for n in (*NAMES, "mine-twice", "mine-twice")
            ],
        },
    ),
    "create topics 4": _with(
        19,
        4,
        lambda m: {
            "validate_only": True,
            "timeout_ms": 9999,
            "topics": [m.CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in NAMES],
        },
    ),
    "delete topics 5": _simple(20, 5, timeout_ms=9999, topic_names=["mine-absent", "theirs-absent", "theirs-gone"]),
    "delete topics by id": lambda ids: (
        _make(20)(
            timeout_ms=9999,
            topics=[_make(20).DeleteTopicState(name=None, topic_id=one) for one in (ids["mine-gone"], NOBODY)],
        ),
        20,
        6,
    ),
    "delete records": _with(
        21,
        2,
        lambda m: {
            "timeout_ms": 9999,
            "topics": [
                m.DeleteRecordsTopic(name=n, partitions=[m.DeleteRecordsPartition(partition_index=0, offset=0)])
                for n in NAMES
            ],
        },
    ),
    "producer id": _simple(22, 4, transactional_id=None, transaction_timeout_ms=1000),
    "producer id of mine": _simple(22, 4, transactional_id="mine", transaction_timeout_ms=1000),
    "producer id of theirs": _simple(22, 1, transactional_id="theirs", transaction_timeout_ms=1000),
    "epochs": _with(
        23,
        4,
        lambda m: {
            "replica_id": -1,
            "topics": [
                m.OffsetForLeaderTopic(
                    topic=n,
                    partitions=[m.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)],
                )
                for n in NAMES
            ],
        },
    ),
    **{
        f"add partitions of {name}": _with(
            24,
            3,
            lambda m, name=name: {
                "v3_and_below_transactional_id": name,
                "v3_and_below_producer_id": 1 << 40,
                "v3_and_below_producer_epoch": 0,
                "v3_and_below_topics": _txn_topics(m, "AddPartitionsToTxnTopic", "partitions"),
            },
        )
        for name in ("mine", "theirs")
    },
    "add a partition": _with(
        24,
        3,
        lambda m: {
            "v3_and_below_transactional_id": "mine",
            "v3_and_below_producer_id": 1 << 40,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [m.AddPartitionsToTxnTopic(name="mine", partitions=[0])],
        },
    ),
    "add partitions of brokers": _with(
        24,
        4,
        lambda m: {
            "transactions": [
                m.AddPartitionsToTxnTransaction(
                    transactional_id="mine",
                    producer_id=1 << 40,
                    producer_epoch=0,
                    verify_only=True,
                    topics=[m.AddPartitionsToTxnTopic(name="mine", partitions=[0])],
                )
            ]
        },
    ),
    **{
        f"add offsets {txn} {group}": _simple(
            25, 3, transactional_id=txn, producer_id=1 << 40, producer_epoch=0, group_id=group
        )
        for txn, group in (("mine", "mine"), ("mine", "theirs"), ("theirs", "mine"))
    },
    **{
        f"end {name}": _simple(26, 3, transactional_id=name, producer_id=1 << 40, producer_epoch=0, committed=True)
        for name in ("mine", "theirs")
    },
    "markers": _with(
        27,
        1,
        lambda m: {
            "markers": [
                m.WritableTxnMarker(
                    producer_id=5,
                    producer_epoch=0,
                    transaction_result=True,
                    coordinator_epoch=0,
                    topics=[m.WritableTxnMarkerTopic(name="mine-absent", partition_indexes=[0, 1])],
                )
            ]
        },
    ),
    **{
        f"transactional commit {txn} {group}": _with(
            28,
            3,
            lambda m, txn=txn, group=group: {
                "transactional_id": txn,
                "group_id": group,
                "producer_id": 1 << 40,
                "producer_epoch": 0,
                "topics": [
                    m.TxnOffsetCommitRequestTopic(
                        name=n, partitions=[m.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
                    )
                    for n in NAMES
                ],
            },
        )
        for txn, group in (("mine", "mine"), ("mine", "theirs"), ("theirs", "mine"))
    },
    "describe acls": _simple(29, 3, resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1),
    "create acls": _with(
        30,
        3,
        lambda m: {
            "creations": [
                m.AclCreation(
                    resource_type=4,
                    resource_name="wrong",
                    resource_pattern_type=3,
                    principal="User:a",
                    host="*",
                    operation=3,
                    permission_type=3,
                )
            ]
        },
    ),
    "delete acls": _with(31, 3, lambda m: {"filters": [_acl_filter(m)]}),
    "describe configs": _with(
        32,
        4,
        lambda m: {
            "resources": _resources(m, "DescribeConfigsResource", RESOURCES, configuration_keys=["retention.ms"])
        },
    ),
    "alter configs": _with(
        33,
        2,
        lambda m: {
            "validate_only": True,
            "resources": _resources(m, "AlterConfigsResource", RESOURCES[:4], configs=[]),
        },
    ),
    "change configs": _with(
        44,
        1,
        lambda m: {"validate_only": True, "resources": _resources(m, "AlterConfigsResource", RESOURCES, configs=[])},
    ),
    "move logs": _with(
        34,
        2,
        lambda m: {
            "dirs": [
                m.AlterReplicaLogDir(
                    path="/nowhere", topics=[m.AlterReplicaLogDirTopic(name="mine-absent", partitions=[0])]
                )
            ]
        },
    ),
    "log directories": _with(
        35, 4, lambda m: {"topics": [m.DescribableLogDirTopic(topic="mine-absent", partitions=[0])]}
    ),
    "create partitions": _with(
        37,
        3,
        lambda m: {
            "validate_only": True,
            "timeout_ms": 9999,
            "topics": [m.CreatePartitionsTopic(name=n, count=4) for n in NAMES],
        },
    ),
    "delete groups": _simple(42, 2, groups_names=["mine-absent", "theirs-absent", "mine-b"]),
    "elect leaders": _with(
        43,
        2,
        lambda m: {
            "election_type": 0,
            "timeout_ms": 9999,
            "topic_partitions": [m.TopicPartitions(topic="mine-absent", partitions=[0])],
        },
    ),
    "reassign": _with(
        45,
        0,
        lambda m: {
            "timeout_ms": 9999,
            "topics": [
                m.ReassignableTopic(
                    name="mine-absent", partitions=[m.ReassignablePartition(partition_index=0, replicas=[1])]
                )
            ],
        },
    ),
    "reassignments": _with(
        46,
        0,
        lambda m: {
            "timeout_ms": 9999,
            "topics": [m.ListPartitionReassignmentsTopics(name="mine-absent", partition_indexes=[0])],
        },
    ),
    **{
        f"delete offsets of {group}": _with(
            47,
            0,
            lambda m, group=group: {
                "group_id": group,
                "topics": [
                    m.OffsetDeleteRequestTopic(name=n, partitions=[m.OffsetDeleteRequestPartition(partition_index=5)])
                    for n in NAMES
                ],
            },
        )
        for group in ("mine", "theirs")
    },
    "quotas": _with(
        48,
        1,
        lambda m: {"strict": True, "components": [m.ComponentData(entity_type="user", match_type=0, match="nobody")]},
    ),
    "change quotas": _with(
        49,
        1,
        lambda m: {
            "validate_only": True,
            "entries": [
                m.EntryData(
                    entity=[m.EntityData(entity_type="user", entity_name="u")],
                    ops=[m.OpData(key="producer_byte_rate", value=5.0, remove=False)],
                )
            ],
        },
    ),
    "scram": _simple(50, 0, users=[]),
    "features": _with(
        57,
        1,
        lambda m: {
            "validate_only": True,
            "timeout_ms": 9999,
            "feature_updates": [m.FeatureUpdateKey(feature="nothing", max_version_level=1, upgrade_type=1)],
        },
    ),
    "cluster": _simple(60, 1, include_cluster_authorized_operations=True),
    "producers": _with(
        61, 0, lambda m: {"topics": [m.TopicRequest(name=n, partition_indexes=[0]) for n in (*NAMES, "theirs:illegal")]}
    ),
    "describe transactions": _simple(65, 0, transactional_ids=["theirs-absent", "mine-absent"]),
    "list transactions": _simple(66, 1, state_filters=[], producer_id_filters=[], duration_filter=-1),
    **{
        f"consumer heartbeat {group}, {topic}": _simple(
            68,
            1,
            group_id=group,
            member_id="nobody",
            member_epoch=0,
            subscribed_topic_names=[topic],
            rebalance_timeout_ms=30_000,
            topic_partitions=[],
        )
        for group, topic in (("theirs", "mine"), ("mine-b", "theirs"))
    },
    "describe consumer groups": _simple(
        69, 1, group_ids=["mine-absent", "theirs-absent"], include_authorized_operations=True
    ),
    "config resources": _simple(74, 0),
    "topic partitions": _with(
        75, 0, lambda m: {"response_partition_limit": 100, "topics": [m.TopicRequest(name=n) for n in NAMES]}
    ),
    "topic partitions of all": _simple(75, 0, response_partition_limit=100, topics=[]),
}

UNASKED = {
    4: "of controllers",
    5: "of controllers",
    6: "of controllers",
    7: "of brokers",
    17: "allowed for everybody",
    18: "allowed for everybody",
    36: "allowed for everybody",
    38: "compared in tests/api/test_tokens_against_kafka.py",
    39: "compared in tests/api/test_tokens_against_kafka.py",
    40: "compared in tests/api/test_tokens_against_kafka.py",
    41: "compared in tests/api/test_tokens_against_kafka.py",
    51: "its credentials are compared in tests/api/test_sasl_against_kafka.py",
    56: "of brokers",
    67: "of brokers",
    20101: "not of Kafka",
    20102: "not of Kafka",
    20103: "not of Kafka",
}
"""APIs that are not compared, with the reason."""
