"""`mirror switch` where counting does not suffice: deleted, compacted and equal records, no transactions, names."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from odradek.clients import groups, topics
from odradek.clients.cluster import Cluster
from odradek.mirror.internal_topic import InternalTopic
from odradek.mirror.records import OffsetSync
from odradek.mirror.routes import LaneOptions
from odradek.mirror.settings import load
from odradek.mirror.switch import Plan, Switch, SwitchError, SwitchFlow
from tests.mirror.clusters import Pair, pair
from tests.mirror.lanes import offsets_of, routes_of, running, wait_until_moved
from tests.waiting import until

NUMBERS = itertools.count()
NOW_MS = int(time.time() * 1000)
"""The time of all records: equal ones must be equal in all respects, and retention must not delete them."""
CLEANER = {"log.cleaner.backoff.ms": 50, "log.retention.check.interval.ms": 50}
COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "100",
    "segment.bytes": "4096",
    "max.compaction.lag.ms": "100",
}


@pytest.fixture(scope="module")
def brokers() -> Iterator[Pair]:
    with pair(CLEANER, CLEANER) as both:
        yield both


class Mirrored:
    """A topic with one partition in a, its copy in b, and a group."""

    def __init__(self, brokers: Pair, directory: Path, lines: str = "", **settings: str) -> None:
        self.topic = f"t{next(NUMBERS)}"
        self.copy = f"a.{self.topic}"
        self.a, self.b = brokers.a.bootstrap_servers, brokers.b.bootstrap_servers
        mirror = load(brokers.write(directory / "mirror.properties", f"topics = {self.topic}\n{lines}"))
        self.flow = SwitchFlow.of(mirror.flows[0])
        with Cluster(self.a) as a, Cluster(self.b) as b:
            topics.create(a, self.topic, 1, configs=settings)
            topics.create(b, self.copy, 1, configs=settings)

    def write(self, values: list[bytes], key: bytes | None = None, timestamp: int = NOW_MS) -> None:
        """One record in each batch, so that offsets differ by markers between them, and every record has its transaction."""
        producer = Producer({"bootstrap.servers": self.a, "transactional.id": self.topic, "linger.ms": 0})
        producer.init_transactions(30)
        for value in values:
            producer.begin_transaction()
            producer.produce(self.topic, value, key, partition=0, timestamp=timestamp)
            producer.commit_transaction(30)

    def move(self) -> None:
        """Let a lane move everything; then no lane runs."""
        routes = routes_of(self.a, [self.topic])
        options = LaneOptions(exactly_once=self.flow.exactly_once, fetch_wait_ms=50)
        with running(self.a, self.b, routes, options) as (_, watcher):
            if self.flow.exactly_once:
                wait_until_moved(watcher, self.a, self.b, routes)
            else:
                until(lambda: len(self.records(False)) == len(self.records(True)), "all is copied")

    def records(self, source: bool) -> list[tuple[int, bytes | None]]:
        """(offset, value) of the committed records on a side."""
        found = offsets_of(self.a, (self.topic, 0)) if source else offsets_of(self.b, (self.copy, 0))
        return [(offset, seen.value) for offset, seen in found]

    def offset_of(self, value: bytes, source: bool) -> int:
        """Where a record is."""
        return next(offset for offset, found in self.records(source) if found == value)

    def delete_before(self, value: bytes, source: bool) -> None:
        """Delete all records before one on a side."""
        place = (self.topic if source else self.copy, 0)
        with Cluster(self.a if source else self.b) as cluster:
            topics.delete_records(cluster, {place: self.offset_of(value, source)})

    def plan(self, offset: int, forward: bool = True, timeout_s: float = 20.0) -> Plan:
        """The plan for a group at this offset."""
        group_id = f"g{next(NUMBERS)}"
        with Cluster(self.a) as a, Cluster(self.b) as b:
            here, there, place = (a, b, (self.topic, 0)) if forward else (b, a, (self.copy, 0))
            assert not groups.commit_offsets(here, group_id, {place: groups.CommittedOffset(offset)})
            aliases = ("a", "b") if forward else ("b", "a")
            self.switch = Switch(group_id, here, there, *aliases, [self.flow], timeout_s, lambda _: None)
            return self.switch.plan()


VALUES = [b"%d" % number for number in range(12)]


@pytest.fixture
def mirrored(brokers: Pair, tmp_path: Path) -> Mirrored:
    made = Mirrored(brokers, tmp_path)
    made.write(VALUES)
    made.move()
    return made


def moved_to(plan: Plan) -> tuple[int, bool]:
    (move,) = plan.moves
    return move.translated, move.exact


@pytest.mark.parametrize("syncs", [False, True])
@pytest.mark.parametrize("shortened", ["source", "target"])
def test_records_that_only_one_side_deleted_are_no_obstacle(mirrored: Mirrored, shortened: str, syncs: bool) -> None:
    if syncs:
        with Cluster(mirrored.a) as cluster:
            known = [OffsetSync((mirrored.topic, 0), mirrored.offset_of(value, True), mirrored.offset_of(value, False))
                     for value in (b"1", b"4", b"9")]  # fmt: skip
            InternalTopic(cluster, "mm2-offset-syncs.b.internal", -1).write(sync.encoded() for sync in known)
    mirrored.delete_before(b"3", shortened == "source")
    for value in VALUES[3:]:
        source, target = (mirrored.offset_of(value, side) for side in (True, False))
        assert moved_to(mirrored.plan(source)) == (target, True)
        assert moved_to(mirrored.plan(target, forward=False)) == (source, True)
        assert moved_to(mirrored.plan(source - 1)) == (target, True), "at the marker before it"


def test_a_group_whose_records_were_deleted_continues_with_the_first_that_is_left(mirrored: Mirrored) -> None:
    mirrored.delete_before(b"5", True)
    assert moved_to(mirrored.plan(0)) == (mirrored.offset_of(b"5", False), True)
    mirrored.delete_before(b"7", False)
    with pytest.raises(
        SwitchError, match=r"the record at offset \d+ of t\d+-0, .* is not in a.t\d+-0 of 'b', whose log begins"
    ):
        mirrored.plan(0)


def test_equal_records_are_told_apart_only_by_counting(brokers: Pair, tmp_path: Path) -> None:
    made = Mirrored(brokers, tmp_path)
    made.write([b"first", *[b"ping"] * 6, b"last"])
    made.move()
    offsets = [[offset for offset, _ in made.records(side)] for side in (True, False)]
    for source, target in zip(*offsets, strict=True):
        assert moved_to(made.plan(source)) == (target, True)
    with Cluster(made.b) as cluster:
        topics.delete_records(cluster, {(made.copy, 0): offsets[1][2]})
    plan = made.plan(offsets[0][4])
    assert moved_to(plan) == (offsets[1][2], False), "the first of the equal ones"
    with pytest.raises(SwitchError, match=r"is not exact: records equal to the one .* add --allow-repeats"):
        made.switch.check(plan, overwrite=False, allow_repeats=False)
    made.switch.check(plan, overwrite=False, allow_repeats=True)


def test_a_group_that_has_read_everything_goes_to_the_ends(mirrored: Mirrored) -> None:
    source = mirrored.records(True)[-1][0] + 2
    target = mirrored.records(False)[-1][0] + 2
    for offset in (source, source - 1):
        (move,) = mirrored.plan(offset).moves
        assert move.end and move.exact and target - 1 <= move.translated <= target
    for offset in (target, target - 1):
        (move,) = mirrored.plan(offset, forward=False).moves
        assert move.end and move.exact and source - 1 <= move.translated <= source


def test_an_offset_behind_the_end_of_the_log_is_not_taken_for_an_open_transaction(mirrored: Mirrored) -> None:
    end = mirrored.records(True)[-1][0] + 2
    with pytest.raises(
        SwitchError, match=f"and the log ends at {end}: the cluster lost records, or the topic was created"
    ):
        mirrored.plan(end + 1, timeout_s=0.2)
    producer = Producer({"bootstrap.servers": mirrored.a, "transactional.id": mirrored.topic, "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(mirrored.topic, b"open", partition=0)
    producer.flush(30)
    with pytest.raises(SwitchError, match=f"and the last stable offset is {end}: a transaction is open"):
        mirrored.plan(end + 1, timeout_s=0.2)
    producer.abort_transaction(30)


def test_what_was_not_mirrored_yet_is_read_in_the_target(mirrored: Mirrored) -> None:
    """The group has read all that was moved; the mirror does not run."""
    end = mirrored.records(True)[-1][0] + 2
    mirrored.write([b"new"])
    (move,) = mirrored.plan(end).moves
    assert move.end and move.exact
    with pytest.raises(SwitchError, match=r"the mirror has copied .* up to offset .*; the mirror must run"):
        mirrored.plan(mirrored.offset_of(b"new", True) + 1, timeout_s=0.2)
    mirrored.move()
    assert move.translated <= mirrored.offset_of(b"new", False)
    assert all(offset < move.translated for offset, value in mirrored.records(False) if value != b"new")


def test_positions_without_transactions_are_found(brokers: Pair, tmp_path: Path) -> None:
    made = Mirrored(brokers, tmp_path, "odradek.mirror.exactly.once = false\n")
    made.write(VALUES)
    made.move()
    assert made.flow.position_group == "odradek-mirror.a->b.positions"
    for value in VALUES:
        source, target = (made.offset_of(value, side) for side in (True, False))
        assert moved_to(made.plan(source)) == (target, True)
        assert moved_to(made.plan(target, forward=False)) == (source, True)
    (move,) = made.plan(made.offset_of(VALUES[-1], True) + 1).moves
    assert move.translated == made.offset_of(VALUES[-1], False) + 1 and move.end


def test_compaction_on_one_side_is_no_obstacle(brokers: Pair, tmp_path: Path) -> None:
    made = Mirrored(brokers, tmp_path)
    for number in range(25):
        made.write([b"%d" % number], key=b"%d" % (number % 7))
    made.move()
    before = {side: made.records(side) for side in (True, False)}
    compact(made.b, made.copy)
    until(lambda: len(made.records(False)) < 15, lambda: f"the copy is compacted: {made.records(False)}")
    left = {value: offset for offset, value in made.records(False)}
    for source, value in before[True]:
        expected = next(left[later] for at, later in before[True] if at >= source and later in left)
        assert moved_to(made.plan(source)) == (expected, True), value
    for source, value in ((at, value) for at, value in before[True] if value in left):
        target = left[value]
        assert moved_to(made.plan(target, forward=False)) == (source, True)


def test_a_damaged_topic_of_offset_syncs_is_refused(brokers: Pair, tmp_path: Path) -> None:
    made = Mirrored(brokers, tmp_path, "offset-syncs.topic.location = target\n")
    made.write(VALUES[:2])
    made.move()
    with Cluster(made.b) as cluster:
        InternalTopic(cluster, "mm2-offset-syncs.a.internal", -1).write([(b"key", b"value")])
    with pytest.raises(
        SwitchError, match=r"mm2-offset-syncs.a.internal at offset 0: OffsetSyncKey cannot be decoded: "
    ):
        made.plan(0)


def compact(servers: str, topic: str) -> None:
    from odradek.clients import configs

    with Cluster(servers) as cluster:
        configs.alter(cluster, configs.Resource("topic", topic), COMPACT)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    for number in range(3):  # rolls the segments
        producer.produce(topic, b"x" * 3000, b"filler %d" % number, partition=0)
        assert producer.flush(30) == 0


@pytest.mark.parametrize(
    ("lines", "forward", "back"),
    [
        (
            "",
            {"orders": "a.orders", "b.orders": None, "x": None},
            {"a.orders": "orders", "c.orders": None, "orders": None},
        ),
        (
            "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n",
            {"orders": "orders", "x": None, "__consumer_offsets": None},
            {"orders": "orders", "x": None},
        ),
        ("replication.policy.separator = _\n", {"orders": "a_orders"}, {"a_orders": "orders", "a.orders": None}),
    ],
)
def test_names_follow_the_policy_of_the_file(
    tmp_path: Path, lines: str, forward: dict[str, Any], back: dict[str, Any]
) -> None:
    file = tmp_path / "mirror.properties"
    file.write_text(
        "clusters = a, b\na.bootstrap.servers = localhost:1\nb.bootstrap.servers = localhost:2\na->b.enabled = true\n"
        f"topics = .*orders\n{lines}"
    )
    flow = SwitchFlow.of(load(str(file)).flows[0])
    assert {topic: flow.target_topic(topic) for topic in forward} == forward
    assert {topic: flow.source_topic(topic) for topic in back} == back
