"""The same requests to this broker and to a real Kafka: the responses must be equal, field by field.

Ids, clock times, addresses and error messages are not compared. Not requested, because our response is better: a batch with an
unknown codec (Kafka: UNKNOWN_SERVER_ERROR).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from odradek.protocol.schemas import (
    delete_records,
    describe_cluster,
    describe_topic_partitions,
    fetch,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from odradek.storage.batch import CONTROL, LOG_APPEND_TIME, Record, build_batch, read_batches
from odradek.testing import Broker
from tests.clients.kafka_peer import Peer
from tests.storage.compressed_variants import VARIANTS
from tests.wire import NOBODY, Wire, batch, fetch_request, produce_request, with_crc

pytestmark = [pytest.mark.xdist_group("against-kafka"), pytest.mark.timeout(900), pytest.mark.java]

CONFIG = {"auto.create.topics.enable": "false", "log.retention.ms": -1}
START = 1_700_000_000_000
"""Records of that time would go as soon as retention looks, half a minute after a broker's start."""
HOUR_MS = 3_600_000
OF_THE_HOUR = {"message_timestamp_before_max_ms": HOUR_MS, "message_timestamp_after_max_ms": HOUR_MS}
TOPICS: tuple[tuple[str, int, dict[str, object]], ...] = (
    ("empty", 1, {}),
    ("plain", 3, {}),
    ("segments", 1, {"segment_bytes": 1 << 20}),
    ("two-in-sync", 1, {"min_insync_replicas": 2}),
    ("small", 1, {"max_message_bytes": 200}),
    ("compacted", 1, {"cleanup_policy": "compact"}),
    ("compacted-zstd", 1, {"cleanup_policy": "compact", "compression_type": "zstd"}),
    ("of-the-hour", 1, {"cleanup_policy": "compact", **OF_THE_HOUR}),
    ("append-time", 1, {"message_timestamp_type": "LogAppendTime"}),
    ("shortened", 2, {}),
    ("compressed", 1, {}),
)
UNCOMPARED = {
    "throttle_time_ms",
    "cluster_id",
    "host",
    "port",
    "node_id",
    "broker_id",
    "controller_id",
    "leader_id",
    "replica_nodes",
    "isr_nodes",
    "error_message",
    "batch_index_error_message",
    "log_append_time_ms",
    "node_endpoints",
    "current_leader",
    "session_id",
}
"""Ids and addresses are each broker's own, as are messages; the current leader is a hint in a cluster of several brokers."""


class Side:
    """One of the two brokers; topics and records are put into both alike."""

    def __init__(self, host: str, port: int) -> None:
        self._at = host, port
        self.ids: dict[str, bytes] = {}
        with Wire(*self._at) as wire:
            for name, partitions, configs in TOPICS:
                self.ids[name] = wire.create(name, partitions, **configs)
                wire.until_led(name, partitions)
            for codec in range(5):
                assert wire.produce("plain", three_records(codec)).error_code == 0
            for step in range(10):
                assert wire.produce("shortened", batch(b"v", timestamp=START + step)).error_code == 0
            shortened = of_deletion(("shortened", 0, 6))(self)
            assert wire.ask(shortened, delete_records.API_KEY, 2).topics[0].partitions[0].error_code == 0
            for step in range(50):
                records = batch(bytes(50_000), b"second", timestamp=START + 1000 * step)
                assert wire.produce("segments", records).error_code == 0

    def ask(self, request: Any, api_key: int, version: int) -> Any:
        """What the broker answers, to be compared: dicts and lists; None if it closes the connection instead."""
        with Wire(*self._at) as wire:
            try:
                response = wire.ask(request, api_key, version)
            except (EOFError, ConnectionResetError):
                return None
        return comparable(response, {one: name for name, one in self.ids.items()})


def three_records(codec: int) -> bytes:
    return build_batch([Record(b"k", b"v", START + 10 * (codec * 3 + i)) for i in range(3)], codec=codec)


def comparable(value: Any, names: dict[bytes, str], field: str = "") -> Any:
    """A message without what is not compared, the ids of topics as their names, records as offsets, times and values;
    lists of what is named or numbered in that order, which is not part of what a broker promises."""
    if isinstance(value, list):
        told = [comparable(one, names) for one in value]
        return sorted(told, key=place_of) if told and isinstance(told[0], dict) else told
    if isinstance(value, bytes | bytearray | memoryview):
        if field == "records":
            return [(r.offset, r.timestamp, r.value) for one in read_batches(bytes(value)) for r in one.records()]
        return names.get(bytes(value), bytes(value))
    if value is None or isinstance(value, int | float | str):
        return value
    told = {one: comparable(getattr(value, one), names, one) for one in fields_of(value) if one not in UNCOMPARED}
    if "base_offset" in told and told["error_code"]:
        del told["log_start_offset"]  # Kafka tells it beside some refusals and not beside others
    return told


def place_of(value: dict[str, Any]) -> tuple[str, int]:
    name = value.get("name") or value.get("topic") or value.get("topic_id") or ""
    return str(name), value.get("partition_index", value.get("index", 0))


def fields_of(value: Any) -> list[str]:
    return [one for one in dir(value) if one[0].islower()]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Odradek and Kafka."""
    with ExitStack() as stack:
        theirs = stack.enter_context(Peer(tmp_path_factory.mktemp("kafka"), CONFIG))
        ours = stack.enter_context(Broker(CONFIG, directory=tmp_path_factory.mktemp("odradek")))
        host, _, port = theirs.bootstrap_servers.rpartition(":")
        yield Side(ours.host, ours.port), Side(host, int(port))


Make = Callable[[Side], Any]


def of_metadata(*names: str | None, ids: tuple[str, ...] = (), everything: bool = False, **fields: Any) -> Make:
    make = metadata.Request

    def request(side: Side) -> Any:
        topics = [make.MetadataRequestTopic(name=name) for name in names]
        topics += [make.MetadataRequestTopic(name=None, topic_id=side.ids.get(one, NOBODY)) for one in ids]
        return make(topics=None if everything else topics, **fields)

    return request


def of_offsets(*asked: tuple[str, int, int], leader_epoch: int = -1, **fields: Any) -> Make:
    make = list_offsets.Request

    def request(_: Side) -> Any:
        topics: dict[str, Any] = {}
        for topic, partition, timestamp in asked:
            one = make.ListOffsetsPartition(
                partition_index=partition, timestamp=timestamp, current_leader_epoch=leader_epoch
            )
            topics.setdefault(topic, make.ListOffsetsTopic(name=topic, partitions=[])).partitions.append(one)
        return make(replica_id=-1, topics=list(topics.values()), **fields)

    return request


def of_epoch(topic: str, partition: int, epoch: int, current: int = -1) -> Make:
    make = offset_for_leader_epoch.Request

    def request(_: Side) -> Any:
        asked = make.OffsetForLeaderPartition(partition=partition, leader_epoch=epoch, current_leader_epoch=current)
        return make(replica_id=-1, topics=[make.OffsetForLeaderTopic(topic=topic, partitions=[asked])])

    return request


def of_deletion(*wishes: tuple[str, int, int]) -> Make:
    make = delete_records.Request

    def request(_: Side) -> Any:
        topics: dict[str, Any] = {}
        for topic, partition, offset in wishes:
            one = make.DeleteRecordsPartition(partition_index=partition, offset=offset)
            topics.setdefault(topic, make.DeleteRecordsTopic(name=topic, partitions=[])).partitions.append(one)
        return make(topics=list(topics.values()), timeout_ms=10_000)

    return request


def of_pages(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Make:
    make = describe_topic_partitions.Request

    def request(_: Side) -> Any:
        return make(
            topics=[make.TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor and make.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )

    return request


PRODUCER = {"producer_id": 79, "producer_epoch": 0, "base_sequence": 0}


def of_records(topic: str, codec: int, *records: tuple[bytes | None, int | None], **fields: Any) -> Make:
    """A batch of records, each a key and the hours between now and its timestamp, None for a negative timestamp."""
    now_ms = int(time.time() * 1000)
    times = [-5 if hours is None else now_ms + hours * HOUR_MS for _, hours in records]
    built = [Record(key, b"v", when) for (key, _), when in zip(records, times, strict=True)]
    return of_produce(topic, 0, build_batch(built, codec=codec, **fields))


def of_produce(topic: str, partition: int, records: bytes | None, acks: int = -1, by_id: bool = False) -> Make:
    def request(side: Side) -> Any:
        return produce_request([(side.ids.get(topic, NOBODY) if by_id else topic, [(partition, records)])], acks)

    return request


def of_fetch(*places: tuple[str, int, int], by_id: bool = False, **fields: Any) -> Make:
    def request(side: Side) -> Any:
        named = [(side.ids.get(topic, NOBODY) if by_id else topic, *where) for topic, *where in places]
        return fetch_request(named, **fields)  # type: ignore[arg-type]

    return request


def of_replica(replica_id: int, version: int, *places: tuple[str, int, int], **fields: Any) -> Make:
    """A Fetch of one that says it is a replica: in a field of its own, from version 15 on in a tagged one."""

    def request(side: Side) -> Any:
        made = of_fetch(*places, by_id=version >= 13, **fields)(side)
        if version >= 15:
            made.replica_state = fetch.Request.ReplicaState(replica_id=replica_id, replica_epoch=-1)
        else:
            made.replica_id = replica_id
        return made

    return request


def tampered(at: int, value: int) -> bytes:
    data = bytearray(batch(b"value"))
    data[at] = value
    return with_crc(data)


LONG_NAME = "x" * 250
LATEST, EARLIEST, LARGEST = -1, -2, -3

CASES: dict[str, tuple[int, tuple[int, ...], Make]] = {
    # -- Fetch: partitions named twice, replicas, sizes
    **{
        f"a fetch of partitions named twice by {'id' if by_id else 'name'}, {places}": (
            fetch.API_KEY,
            versions,
            of_fetch(*(("plain", partition, offset) for partition, offset in places), by_id=by_id),
        )
        for by_id, versions in ((False, (4, 11, 12)), (True, (13, 15, 18)))
        for places in (((0, 0), (0, 12)), ((0, 12), (0, 0)), ((0, 99), (1, 0), (0, 3)), ((0, 3), (1, 0), (0, 99)))
    },
    **{
        f"a new session of partitions named twice, {places}": (
            fetch.API_KEY,
            (7, 12),
            of_fetch(*(("plain", partition, offset) for partition, offset in places), session_epoch=0),
        )
        for places in (((0, 0), (0, 12)), ((0, 99), (1, 0), (0, 3)))
    },
    **{
        f"a fetch of replica {replica_id}{told}, version {version}": (
            fetch.API_KEY,
            (version,),
            of_replica(replica_id, version, ("plain", 0, 12), **epoch),
        )
        for replica_id in (-3, -2, -1, 0, 1, 2, 2**31 - 1)
        for version in (4, 9, 12, 13, 15, 18)
        for told, epoch in (("", {}), (" with epoch 0", {"leader_epoch": 0}), (" with epoch 9", {"leader_epoch": 9}))
        if version >= 9 or not epoch
    },
    **{
        f"a fetch that wants {min_bytes} of at most {max_bytes} bytes": (
            fetch.API_KEY,
            (4, 12),
            of_fetch(("plain", 0, 0), wait_ms=100, min_bytes=min_bytes, max_bytes=max_bytes),
        )
        for min_bytes, max_bytes in ((2**31 - 1, 10), (2**31 - 1, 2**31 - 1), (-1, 10), (100, 0))
    },
    # -- Metadata
    "some topics": (metadata.API_KEY, tuple(range(14)), of_metadata("plain", "empty")),
    "no topics": (metadata.API_KEY, tuple(range(1, 14)), of_metadata()),
    "every topic": (metadata.API_KEY, tuple(range(1, 14)), of_metadata(everything=True)),
    "an unknown topic": (metadata.API_KEY, tuple(range(4, 14)), of_metadata("no-such", "plain")),
    "illegal names": (metadata.API_KEY, (1, 9, 13), of_metadata("a/b", LONG_NAME, "..", "")),
    "the same topic twice": (metadata.API_KEY, (9, 13), of_metadata("plain", "plain")),
    "topics by id": (metadata.API_KEY, (12, 13), of_metadata(ids=("plain",))),
    "an unknown id": (metadata.API_KEY, (12, 13), of_metadata(ids=("no-such", "plain"))),
    "ids too early": (metadata.API_KEY, (10, 11), of_metadata(ids=("plain",))),
    "operations": (metadata.API_KEY, (11, 13), of_metadata("plain", include_topic_authorized_operations=True)),
    "operations on the cluster": (
        metadata.API_KEY,
        (8, 10),
        of_metadata("plain", include_cluster_authorized_operations=True, include_topic_authorized_operations=True),
    ),
    # -- DescribeCluster
    "the cluster": (describe_cluster.API_KEY, (0, 1, 2), lambda _: describe_cluster.Request()),
    "what may be done with the cluster": (
        describe_cluster.API_KEY,
        (0, 1, 2),
        lambda _: describe_cluster.Request(include_cluster_authorized_operations=True),
    ),
    "controllers": (describe_cluster.API_KEY, (1, 2), lambda _: describe_cluster.Request(endpoint_type=2)),
    "endpoints of a strange type": (
        describe_cluster.API_KEY,
        (1, 2),
        lambda _: describe_cluster.Request(endpoint_type=3),
    ),
    # -- DescribeTopicPartitions
    "pages of all topics": (describe_topic_partitions.API_KEY, (0,), of_pages()),
    "a page of named topics": (describe_topic_partitions.API_KEY, (0,), of_pages("small", "plain", "no-such")),
    "a page that is full": (describe_topic_partitions.API_KEY, (0,), of_pages("plain", "small", limit=2)),
    "a page filled exactly": (describe_topic_partitions.API_KEY, (0,), of_pages("plain", "small", limit=3)),
    "a page of nothing": (describe_topic_partitions.API_KEY, (0,), of_pages("plain", limit=0)),
    "the page after": (describe_topic_partitions.API_KEY, (0,), of_pages("plain", "small", cursor=("plain", 2))),
    "the page after a topic's end": (describe_topic_partitions.API_KEY, (0,), of_pages("plain", cursor=("plain", 3))),
    "a page of an illegal name": (describe_topic_partitions.API_KEY, (0,), of_pages("a/b")),
    # -- ListOffsets
    "the logs' ends": (
        list_offsets.API_KEY,
        tuple(range(1, 12)),
        of_offsets(("plain", 0, LATEST), ("empty", 0, LATEST)),
    ),
    "the logs' starts": (
        list_offsets.API_KEY,
        tuple(range(1, 12)),
        of_offsets(("plain", 0, EARLIEST), ("segments", 0, EARLIEST), ("empty", 0, EARLIEST)),
    ),
    "a partition's offsets, asked twice": (
        list_offsets.API_KEY,
        (1, 11),
        of_offsets(("plain", 0, LATEST), ("plain", 1, LATEST), ("plain", 0, EARLIEST)),
    ),
    **{
        f"{step} ms after the first batch": (list_offsets.API_KEY, (1, 5, 11), of_offsets(("plain", 0, START + step)))
        for step in (-1000, 0, 1, 35, 60, 75, 100, 140, 141, 10**9)
    },
    **{
        f"{step} ms after the first segment": (list_offsets.API_KEY, (11,), of_offsets(("segments", 0, START + step)))
        for step in (-1, 0, 7000, 20_999, 21_000, 21_001, 35_500, 48_999, 49_000, 49_001)
    },
    "the largest time": (
        list_offsets.API_KEY,
        (7, 11),
        of_offsets(("plain", 0, LARGEST), ("segments", 0, LARGEST), ("empty", 0, LARGEST)),
    ),
    "a time in an empty log": (list_offsets.API_KEY, (11,), of_offsets(("empty", 0, 0))),
    "read committed": (list_offsets.API_KEY, (2, 11), of_offsets(("plain", 0, LATEST), isolation_level=1)),
    "special times too early": (
        list_offsets.API_KEY,
        (6,),
        of_offsets(("plain", 0, LARGEST), ("plain", 1, -4), ("plain", 2, -5)),
    ),
    "tiered storage": (list_offsets.API_KEY, (9, 11), of_offsets(("plain", 0, -4), ("plain", 1, -5))),
    "a time that there is not": (list_offsets.API_KEY, (11,), of_offsets(("plain", 0, -77))),
    "offsets of what is not there": (
        list_offsets.API_KEY,
        (1, 11),
        of_offsets(("no-such", 0, LATEST), ("plain", 3, LATEST), ("plain", -1, LATEST)),
    ),
    "offsets by a later epoch": (list_offsets.API_KEY, (4, 11), of_offsets(("plain", 0, LATEST), leader_epoch=9)),
    # -- OffsetForLeaderEpoch
    "the end of epoch 0": (offset_for_leader_epoch.API_KEY, (2, 3, 4), of_epoch("plain", 0, 0)),
    "the end of epoch 0 of an empty log": (offset_for_leader_epoch.API_KEY, (4,), of_epoch("empty", 0, 0)),
    "the end of no epoch": (offset_for_leader_epoch.API_KEY, (4,), of_epoch("plain", 0, -1)),
    "the end of a later epoch": (offset_for_leader_epoch.API_KEY, (4,), of_epoch("plain", 0, 5)),
    "an end by a later epoch": (offset_for_leader_epoch.API_KEY, (4,), of_epoch("plain", 0, 0, 5)),
    "an epoch of what is not there": (offset_for_leader_epoch.API_KEY, (4,), of_epoch("no-such", 0, 0)),
    # -- Produce, refused: both logs stay as they are
    "an unknown topic's record": (produce.API_KEY, (3, 9, 12), of_produce("no-such", 0, batch())),
    "an unknown partition's record": (produce.API_KEY, (3, 12), of_produce("plain", 3, batch())),
    "an unknown id's record": (produce.API_KEY, (13,), of_produce("no-such", 0, batch(), by_id=True)),
    "a record for strange acks": (produce.API_KEY, (9,), of_produce("plain", 0, batch(), acks=2)),
    "a record for more replicas than there are": (
        produce.API_KEY,
        (9,),
        of_produce("two-in-sync", 0, batch(producer_id=78, producer_epoch=0, base_sequence=0)),
    ),
    "a large record": (produce.API_KEY, (9,), of_produce("small", 0, batch(bytes(400)))),
    "a record without key": (produce.API_KEY, (9,), of_produce("compacted", 0, batch(key=None))),
    **{
        f"{case}, codec {codec}": (produce.API_KEY, (3, 7, 8, 9, 12), of_records(topic, codec, *records, **fields))
        for codec in (0, 1, 2, 3, 4)
        for case, topic, records, fields in (
            ("some records without a key", "compacted", ((b"k", 0), (None, 0), (b"k", 0), (None, 0)), {}),
            ("no record with a key", "compacted", ((None, 0),) * 5, {}),
            ("a record without a key for another codec", "compacted-zstd", ((None, 0), (b"k", 0)), {}),
            ("a producer's record without a key", "compacted", ((b"k", 0), (None, 0)), PRODUCER),
            ("timestamps out of range", "of-the-hour", ((b"k", 0), (b"k", 2), (b"k", -2)), {}),
            ("a negative timestamp", "of-the-hour", ((b"k", None), (b"k", 0)), {}),
            ("no key and bad timestamps", "of-the-hour", ((b"k", 0), (None, 0), (b"k", 2), (None, 2)), {}),
            ("the log append time", "append-time", ((b"k", 0), (b"k", 0)), {"attributes": LOG_APPEND_TIME}),
            ("the log append time and no key", "compacted", ((b"k", 0), (None, 0)), {"attributes": LOG_APPEND_TIME}),
            ("timestamps of no meaning", "append-time", ((b"k", 2), (b"k", -2)), {}),
        )
    },
    "the log append time where it is not used": (
        produce.API_KEY,
        (9,),
        of_records("segments", 0, (b"k", 0), attributes=LOG_APPEND_TIME),
    ),
    "a wrong CRC": (produce.API_KEY, (9,), of_produce("plain", 0, batch()[:-1] + b"?")),
    "magic 1": (produce.API_KEY, (9,), of_produce("plain", 0, tampered(16, 1))),
    "a lying count": (produce.API_KEY, (9,), of_produce("plain", 0, tampered(60, 2))),
    "two batches": (produce.API_KEY, (9,), of_produce("plain", 0, batch() + batch())),
    "no batch": (produce.API_KEY, (9,), of_produce("plain", 0, b"")),
    "a marker": (
        produce.API_KEY,
        (9,),
        of_produce("plain", 0, build_batch([Record(b"k", b"v", START)], attributes=CONTROL)),
    ),
    "zstd too early": (produce.API_KEY, (6,), of_produce("plain", 0, batch(codec=4))),
    "a sequence out of order": (
        produce.API_KEY,
        (9,),
        of_produce("plain", 1, batch(producer_id=77, producer_epoch=0, base_sequence=5)),
    ),
    # -- DeleteRecords, and a log whose beginning is gone
    "records that are gone": (delete_records.API_KEY, (0, 1, 2), of_deletion(("shortened", 0, 4), ("shortened", 0, 6))),
    "no records": (delete_records.API_KEY, (0, 1, 2), of_deletion(("shortened", 1, -1), ("shortened", 1, 0))),
    "records to come": (delete_records.API_KEY, (0, 2), of_deletion(("shortened", 0, 11), ("shortened", 1, 1))),
    "records of before all": (delete_records.API_KEY, (0, 2), of_deletion(("shortened", 0, -2))),
    "records of a compacted topic": (delete_records.API_KEY, (0, 2), of_deletion(("compacted", 0, 0))),
    "records of what is not there": (
        delete_records.API_KEY,
        (0, 2),
        of_deletion(("no-such", 0, 0), ("shortened", 5, 0)),
    ),
    "records of nothing": (delete_records.API_KEY, (0, 2), of_deletion()),
    "a shortened log": (fetch.API_KEY, (4, 5, 12), of_fetch(("shortened", 0, 6))),
    "before a shortened log": (fetch.API_KEY, (4, 5, 12), of_fetch(("shortened", 0, 5))),
    "both ends of a shortened log": (
        list_offsets.API_KEY,
        (1, 4, 11),
        of_offsets(("shortened", 0, EARLIEST), ("shortened", 0, LATEST)),
    ),
    "a time before a shortened log": (list_offsets.API_KEY, (1, 11), of_offsets(("shortened", 0, START + 2))),
    "a time in a shortened log": (list_offsets.API_KEY, (1, 11), of_offsets(("shortened", 0, START + 7))),
    "the largest time of a shortened log": (list_offsets.API_KEY, (7, 11), of_offsets(("shortened", 0, LARGEST))),
    # -- Fetch
    "records": (fetch.API_KEY, tuple(range(4, 13)), of_fetch(("plain", 0, 0), ("empty", 0, 0))),
    "records by id": (fetch.API_KEY, tuple(range(13, 19)), of_fetch(("plain", 0, 4), by_id=True)),
    "records in a session": (fetch.API_KEY, (7, 12), of_fetch(("plain", 0, 0), ("empty", 0, 0), session_epoch=0)),
    "records, read committed": (fetch.API_KEY, (4, 12), of_fetch(("plain", 0, 6), isolation_level=1)),
    "the log's end": (fetch.API_KEY, (4, 12), of_fetch(("plain", 0, 15))),
    "behind the log's end": (fetch.API_KEY, (4, 12), of_fetch(("plain", 0, 16))),
    "before the log's start": (fetch.API_KEY, (12,), of_fetch(("plain", 0, -5))),
    "what is not there": (fetch.API_KEY, (4, 12), of_fetch(("no-such", 0, 0), ("plain", 9, 0))),
    "what has no such id": (fetch.API_KEY, (13, 18), of_fetch(("no-such", 0, 0), by_id=True)),
    "by a later epoch": (fetch.API_KEY, (9, 12), of_fetch(("plain", 0, 0), leader_epoch=7)),
    "an unknown session": (fetch.API_KEY, (7, 12), of_fetch(("plain", 0, 0), session_id=12345, session_epoch=3)),
}


def differences(ours: Any, theirs: Any, at: str = "") -> Iterator[str]:
    """Each place where two comparable answers differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for field in ours:
            yield from differences(ours[field], theirs[field], f"{at}.{field}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(one, other, f"{at}[{index}]")
    elif ours != theirs:
        yield f"{at}: {ours!r}, Kafka: {theirs!r}"


@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_kafkas(sides, case):
    api_key, versions, make = CASES[case]
    found = {}
    for version in versions:
        ours, theirs = (side.ask(make(side), api_key, version) for side in sides)
        found[version] = list(differences(ours, theirs))
    assert not any(found.values()), "\n".join(
        f"version {version}{one}" for version, all_ in found.items() for one in all_
    )


@pytest.mark.parametrize("name", VARIANTS)
def test_a_compressed_batch_is_taken_or_refused_as_the_table_says(sides, name):
    """The error codes differ: Kafka answers most of these with UNKNOWN_SERVER_ERROR."""
    variant = VARIANTS[name]
    request = of_produce("compressed", 0, variant.batch())
    codes = [
        side.ask(request(side), produce.API_KEY, 9)["responses"][0]["partition_responses"][0]["error_code"]
        for side in sides
    ]
    assert [code == 0 for code in codes] == [variant.here, variant.kafka]
