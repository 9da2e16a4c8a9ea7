"""`mirror switch` moves a group between two clusters exactly, in both directions, while producers write and the mirror runs."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from odradek.clients import groups, topics
from odradek.clients.cluster import Cluster
from odradek.mirror.bookkeeping import Bookkeeping, BookkeepingOptions
from odradek.mirror.lane import Lane
from odradek.mirror.offset_syncs import OffsetSyncs
from odradek.mirror.routes import LaneOptions
from odradek.mirror.switch import Switch, SwitchError, SwitchFlow
from odradek.testing import Broker
from tests.clients.kafka_peer import Peer
from tests.mirror.lanes import routes_of, running
from tests.waiting import until

Cluster_ = Broker | Peer
PARTITIONS = 3
NO_COORDINATOR = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
TOPIC, COPY = "orders", "a.orders"
FLOW = SwitchFlow(
    "a",
    "b",
    True,
    lambda topic: f"a.{topic}",
    lambda topic: topic.removeprefix("a.") if topic.startswith("a.") else None,
)


class Writer:
    """Writes transactions, of which some are aborted, and records without a transaction, in a thread until `stop`.

    :ivar committed: the values of each partition that consumers must see, in order.
    """

    def __init__(self, servers: str, seed: int) -> None:
        self._servers = servers
        self._random = random.Random(seed)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.written: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.error: BaseException | None = None

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            settings = {"bootstrap.servers": self._servers, "linger.ms": 0}
            in_transactions = Producer({**settings, "transactional.id": "writer"})
            in_transactions.init_transactions(30)
            plain = Producer({**settings, "enable.idempotence": True})
            number = 0
            while not self._stopping.is_set():
                number = self._round(in_transactions, plain, number)
                self._stopping.wait(self._random.choice((0, 0, 0.01)))
        except BaseException as error:
            self.error = error

    def _round(self, in_transactions: Producer, plain: Producer, number: int) -> int:
        kind = self._random.choice(("commit", "commit", "abort", "plain"))
        producer = plain if kind == "plain" else in_transactions
        records = [
            (self._random.randrange(PARTITIONS), b"%d" % (number + at)) for at in range(self._random.randint(1, 30))
        ]
        if kind != "plain":
            producer.begin_transaction()
        for partition, value in records:
            producer.produce(TOPIC, value, b"k", partition)
        producer.flush(30)
        if kind == "commit":
            producer.commit_transaction(30)
        elif kind == "abort":
            producer.abort_transaction(30)
        if kind != "abort":
            for partition, value in records:
                self.written[partition].append(value)
        return number + len(records)


def _committed(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """The group's positions; none while the group has no coordinator: `committed` does not try again, unlike `poll`."""
    try:
        return consumer.committed([TopicPartition(topic, partition) for partition in range(PARTITIONS)], 30)
    except KafkaException as error:
        if error.args[0].code() in NO_COORDINATOR:
            return []
        raise


class Group:
    """A consumer group in one cluster, with one consumer at a time."""

    def __init__(self, servers: str, topic: str, group_id: str) -> None:
        self._servers = servers
        self._topic = topic
        self._group_id = group_id

    def read(self, records: int) -> list[tuple[int, bytes]]:
        """Read this many records, or fewer if none comes for a while; commit the positions, and return (partition, value)."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": self._group_id,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
            }
        )
        try:
            committed = until(lambda: _committed(consumer, self._topic), f"{self._group_id} has a coordinator")
            consumer.assign([TopicPartition(self._topic, part.partition, max(0, part.offset)) for part in committed])
            values: list[tuple[int, bytes]] = []
            while len(values) < records and (
                messages := consumer.consume(min(20, records - len(values)), 0.5 if values else 3.0)
            ):
                for message in messages:
                    assert message.error() is None, message.error()
                    values.append((message.partition(), message.value()))
            positions = [part for part in consumer.position(consumer.assignment()) if part.offset >= 0]
            if positions:
                consumer.commit(offsets=positions, asynchronous=False)
            return values
        finally:
            consumer.close()


@contextmanager
def mirrored(a: Cluster_, b: Cluster_, flow: SwitchFlow = FLOW) -> Iterator[Lane]:
    """A running lane from a to b, and the thread that writes its internal topics."""
    for servers, name in ((a.bootstrap_servers, TOPIC), (b.bootstrap_servers, COPY)):
        with Cluster(servers) as cluster:
            topics.create(cluster, name, PARTITIONS, 1)
    syncs = OffsetSyncs()
    options = BookkeepingOptions(
        offset_syncs_interval_s=0.05,
        heartbeats_enabled=False,
        checkpoints_interval_s=0.1,
        refresh_groups_interval_s=0.1,
    )
    bookkeeping = Bookkeeping(
        "a", "b", syncs, lambda: Cluster(a.bootstrap_servers), lambda: Cluster(b.bootstrap_servers), options
    )
    thread = threading.Thread(target=bookkeeping.run, daemon=True)
    thread.start()
    routes = routes_of(a.bootstrap_servers, [TOPIC])
    lane_options = LaneOptions(exactly_once=flow.exactly_once, fetch_wait_ms=50, commit_interval_ms=20)
    try:
        with running(a.bootstrap_servers, b.bootstrap_servers, routes, lane_options, syncs) as (lane, _):  # type: ignore[arg-type]
            yield lane
    finally:
        bookkeeping.stop()
        thread.join(60)
    assert bookkeeping.counts.failures == 0
    assert bookkeeping.counts.offset_syncs > 0 and bookkeeping.counts.checkpoints > 0


def switch(
    a: Cluster_, b: Cluster_, group_id: str, forward: bool, timeout_s: float = 30.0, flow: SwitchFlow = FLOW
) -> list[str]:
    """Move the group; return what the switch said."""
    said: list[str] = []
    here, there = (a, b) if forward else (b, a)
    aliases = ("a", "b") if forward else ("b", "a")
    with Cluster(here.bootstrap_servers) as first, Cluster(there.bootstrap_servers) as second:
        change = Switch(group_id, first, second, *aliases, [flow], timeout_s, said.append)
        plan = change.plan()
        assert all(move.exact for move in plan.moves), plan
        change.check(plan, overwrite=False, allow_repeats=False)
        change.execute(plan)
    return said


def there_and_back(a: Cluster_, b: Cluster_, seed: int, flow: SwitchFlow = FLOW) -> None:
    """Move a group six times while a producer writes; it must read every committed record once, in order."""
    chance = random.Random(seed)
    with mirrored(a, b, flow):
        groups_by_side = [Group(a.bootstrap_servers, TOPIC, "g"), Group(b.bootstrap_servers, COPY, "g")]
        read: list[tuple[int, bytes]] = []
        side = 0
        with Writer(a.bootstrap_servers, seed) as writer:
            until(lambda: all(len(values) > 5 for values in writer.written), "the writer wrote")
            for _ in range(6):
                read += groups_by_side[side].read(chance.choice((1, 10, 100, 400)))
                switch(a, b, "g", forward=side == 0, flow=flow)
                side = 1 - side
        read += groups_by_side[side].read(10_000)
        switch(a, b, "g", forward=side == 0, flow=flow)
        read += groups_by_side[1 - side].read(10_000)
    for number in range(PARTITIONS):
        values = [value for partition, value in read if partition == number]
        missing = set(writer.written[number]) - set(values)
        twice = {value for value, times in Counter(values).items() if times > 1}
        assert not missing and not twice, (number, sorted(missing), sorted(twice))
        assert values == writer.written[number]


@pytest.mark.parametrize("seed", range(2))
def test_a_group_goes_there_and_back_and_reads_every_record_once_in_order(seed: int) -> None:
    with Broker() as a, Broker() as b:
        there_and_back(a, b, seed)


def test_a_switch_waits_for_the_mirror_and_says_so() -> None:
    with Broker() as a, Broker() as b, mirrored(a, b) as lane:
        with Writer(a.bootstrap_servers, 1) as writer:
            until(lambda: all(writer.written), "the writer wrote")
            Group(a.bootstrap_servers, TOPIC, "g").read(5)
            switch(a, b, "g", forward=True)
            lane.route([])
            until(lambda: not lane._changed, "the lane has dropped its partitions")
            more = sum(map(len, writer.written)) + 300
            until(lambda: sum(map(len, writer.written)) > more, "the writer wrote more")
        Group(a.bootstrap_servers, TOPIC, "g").read(10_000)
        with pytest.raises(
            SwitchError, match=r"the mirror has copied orders-\d up to offset \d+, .* the mirror must run"
        ):
            switch(a, b, "g", forward=True, timeout_s=0.3)
        timer = threading.Timer(0.2, lane.route, [routes_of(a.bootstrap_servers, [TOPIC])])
        timer.start()
        (line, *_) = switch(a, b, "g", forward=True)
        timer.join()
        assert line.startswith("waiting: the mirror has copied orders-")
        with Cluster(b.bootstrap_servers) as cluster:
            committed = groups.fetch_offsets(cluster, "g")
        assert set(committed) == {(COPY, number) for number in range(PARTITIONS)}


def test_a_group_that_must_not_be_moved_is_refused() -> None:
    with Broker() as a, Broker() as b, mirrored(a, b):
        with Writer(a.bootstrap_servers, 2) as writer:
            until(lambda: all(writer.written), "the writer wrote")
        with pytest.raises(SwitchError, match="group 'none' has no committed offsets in 'a'"):
            switch(a, b, "none", forward=True)
        Group(a.bootstrap_servers, TOPIC, "g").read(5)
        member = Consumer({"bootstrap.servers": a.bootstrap_servers, "group.id": "g"})
        member.subscribe([TOPIC])
        until(lambda: member.poll(0.05) is None and member.assignment(), "the member joined")
        with pytest.raises(SwitchError, match=r"group 'g' has members in 'a'; stop them .waited 0.2 s"):
            switch(a, b, "g", forward=True, timeout_s=0.2)
        member.close()
        with Cluster(b.bootstrap_servers) as cluster:
            ahead = {(COPY, 0): groups.CommittedOffset(1 << 40)}
            assert not groups.commit_offsets(cluster, "g", ahead)
        with pytest.raises(SwitchError, match=r"group 'g' is ahead in 'b': .* of a.orders-0, .*; add --overwrite"):
            switch(a, b, "g", forward=True)
