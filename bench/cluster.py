"""The rows with three brokers of one kind and one ZooKeeper, against three brokers of Kafka 3.9.1.

Each row makes its own clusters. Every cluster has its own ZooKeeper, whose CPU time and memory do not count. The session
timeout is `SESSION_S`. Pauses after a `kill -9` are counted from the moment at which ZooKeeper removes the broker's
registration, because the time until then depends on ZooKeeper and on when the broker sent its last heartbeat.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.brokers import KAFKA, BenchError, Held, Kafka, Kafka39, Server, free_port
from bench.rows import MB, Figures, Row, Target, runs_separately, scratch
from odradek.clients.errors import ClientError
from odradek.clients.wire import Connection
from odradek.protocol.schemas import (
    alter_partition_reassignments,
    create_topics,
    delete_topics,
    elect_leaders,
    metadata,
    produce,
)
from odradek.storage.batch import Record, build_batch

IDS = (1, 2, 3)
SESSION_S = 6.0
WITHIN_S = 300.0
NEWEST = 9
"""The newest version of Metadata and of Produce that names topics by their name only."""
LOOK_AGAIN_S = 0.01
BULK_BYTES = 300_000_000
CATCH_UP_BYTES = 1_000_000_000
FAILING_PARTITIONS, MANY_PARTITIONS, MOST_PARTITIONS = 30, 1000, 10_000
SETTINGS = {
    "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
}


class Cluster:
    """Three brokers of a kind and their ZooKeeper, started. Used as a context manager.

    :ivar members: the brokers by id; one that was killed stays in it.
    """

    def __init__(self, kind: type[Server]) -> None:
        self.name = kind.name
        self._kind = Kafka39 if issubclass(kind, Kafka) else kind
        self._directory = Path(tempfile.mkdtemp(prefix="odradek-bench-"))
        self._zookeeper_port = free_port()
        self.members: dict[int, Server] = {}

    def __enter__(self) -> "Cluster":
        with contextlib.ExitStack() as ends:
            ends.callback(shutil.rmtree, self._directory, ignore_errors=True)
            self._run_zookeeper("zookeeper", str(self._zookeeper_port), str(self._directory / "zookeeper"))
            ends.callback(self._run_zookeeper, "stop", str(self._directory / "zookeeper"))
            for broker_id in IDS:
                settings = SETTINGS | {
                    "broker.id": str(broker_id),
                    "zookeeper.connect": f"127.0.0.1:{self._zookeeper_port}",
                }
                member = self.members[broker_id] = self._kind(self._directory / str(broker_id), settings)
                ends.callback(member.end)
                member.start()
            self.until(lambda: all(set(self.live(broker_id)) == set(IDS) for broker_id in IDS), "all brokers are live")
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    @staticmethod
    def _run_zookeeper(*words: str) -> None:
        environment = os.environ | {"KAFKA_PEER_VERSION": Kafka39.version}
        done = subprocess.run([str(KAFKA), *words], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchError(f"ZooKeeper: {words[0]} failed: {done.stderr.strip().splitlines()[-1:]}")

    # -- requests -------------------------------------------------------------------------------------------------

    def connect(self, broker_id: int) -> Connection:
        """A connection to a broker. Raises UnreachableError."""
        return Connection("127.0.0.1", self.members[broker_id].port, 60)

    def ask(self, broker_id: int, api: Any, request: Any, newest: int | None = None) -> Any:
        """The response of a broker."""
        connection = self.connect(broker_id)
        try:
            return connection.ask(api, request, newest=newest)
        finally:
            connection.close()

    def describe(self, broker_id: int, topic: str | None = None) -> Any:
        """The Metadata response of a broker, with one topic or without topics; None if it does not answer."""
        topics = [] if topic is None else [metadata.Request.MetadataRequestTopic(name=topic)]
        try:
            request = metadata.Request(topics=topics, allow_auto_topic_creation=False)
            return self.ask(broker_id, metadata.SCHEMA, request, NEWEST)
        except (ClientError, OSError):
            return None

    def live(self, broker_id: int) -> list[int]:
        """The brokers that a broker knows."""
        found = self.describe(broker_id)
        return [] if found is None else [broker.node_id for broker in found.brokers]

    def controller(self, broker_id: int = IDS[0]) -> int:
        """The controller that a broker names."""
        found = self.describe(broker_id)
        return -1 if found is None else int(found.controller_id)

    def partitions(self, broker_id: int, topic: str) -> list[Any]:
        """The partitions of a topic that a broker knows."""
        found = self.describe(broker_id, topic)
        return [] if found is None else list(found.topics[0].partitions)

    def create(self, topic: str, assignment: Mapping[int, list[int]], **configs: str) -> None:
        """Create a topic; returns when the controller answered."""
        make, entry = create_topics.Request.CreatableTopic, create_topics.Request.CreatableTopicConfig
        assigned = [
            create_topics.Request.CreatableReplicaAssignment(partition_index=number, broker_ids=ids)
            for number, ids in assignment.items()
        ]
        wanted = make(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=assigned,
            configs=[entry(name=name, value=value) for name, value in configs.items()],
        )
        request = create_topics.Request(topics=[wanted], timeout_ms=120_000)
        (result,) = self.ask(self.controller(), create_topics.SCHEMA, request, 5).topics
        if result.error_code:
            raise BenchError(f"{self.name} did not create {topic}: error {result.error_code}, {result.error_message}")

    def delete(self, topic: str) -> None:
        """Delete a topic; returns when the controller answered."""
        request = delete_topics.Request(topic_names=[topic], timeout_ms=120_000)
        (result,) = self.ask(self.controller(), delete_topics.SCHEMA, request, 5).responses
        if result.error_code:
            raise BenchError(f"{self.name} did not delete {topic}: error {result.error_code}")

    def reassign(self, topic: str, assignment: Mapping[int, list[int]]) -> None:
        """Begin to move partitions to other replicas."""
        make = alter_partition_reassignments.Request.ReassignableTopic
        partition = alter_partition_reassignments.Request.ReassignablePartition
        wanted = [partition(partition_index=number, replicas=ids) for number, ids in assignment.items()]
        request = alter_partition_reassignments.Request(timeout_ms=60_000, topics=[make(name=topic, partitions=wanted)])
        self.ask(self.controller(), alter_partition_reassignments.SCHEMA, request, 0)

    def prefer(self) -> None:
        """Let the preferred replicas lead."""
        request = elect_leaders.Request(election_type=0, topic_partitions=None, timeout_ms=60_000)
        self.ask(self.controller(), elect_leaders.SCHEMA, request, 1)

    def until_removed(self, broker_id: int) -> float:
        """Wait until ZooKeeper has removed a broker's registration; the monotonic time of this moment."""
        from kazoo.client import KazooClient

        client = KazooClient(f"127.0.0.1:{self._zookeeper_port}")
        client.start()
        try:
            self.until(lambda: client.exists(f"/brokers/ids/{broker_id}") is None, "the registration is removed")
            return time.monotonic()
        finally:
            client.stop()
            client.close()

    # -- states ---------------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool], what: str) -> float:
        """Wait for a state; the seconds that it took."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > WITHIN_S:
                raise BenchError(f"{self.name}: not within {WITHIN_S:g} s: {what}")
            time.sleep(LOOK_AGAIN_S)
        return time.monotonic() - began

    def all_lead(self, topic: str, count: int, among: tuple[int, ...] = IDS, asked: tuple[int, ...] = IDS) -> bool:
        """Whether the asked brokers know a leader among some brokers for each partition."""
        return all(
            len(found := self.partitions(broker_id, topic)) == count and all(row.leader_id in among for row in found)
            for broker_id in asked
        )

    def in_sync(self, topic: str, count: int, replicas: int = len(IDS)) -> bool:
        """Whether all replicas of a topic are in sync, as the first broker knows it."""
        found = self.partitions(IDS[0], topic)
        return len(found) == count and all(len(row.isr_nodes) == replicas for row in found)

    def cpu_ns(self) -> dict[int, dict[int, int]]:
        """CPU time of the processes of each broker."""
        return {broker_id: member.cpu_ns() for broker_id, member in self.members.items()}

    def cpu_ns_since(self, before: Mapping[int, dict[int, int]]) -> int:
        """CPU time of all brokers since ``before``."""
        return sum(self.members[broker_id].cpu_ns_since(row) for broker_id, row in before.items())

    def pss(self) -> float:
        """Proportional memory of one broker, the mean of the three."""
        return sum(member.pss() for member in self.members.values()) / len(self.members)

    def start_again(self, broker_id: int) -> None:
        """Start a broker that was stopped or killed, until it stays up: Kafka ends while its former session is known."""
        began = time.monotonic()
        while True:
            try:
                self.members[broker_id].start()
                return
            except BenchError:
                if time.monotonic() - began > WITHIN_S:
                    raise


def spread(count: int, replicas: int = len(IDS)) -> dict[int, list[int]]:
    """An assignment in which all brokers lead equally many partitions."""
    return {number: [IDS[(number + place) % len(IDS)] for place in range(replicas)] for number in range(count)}


def on(replicas: list[int], count: int) -> dict[int, list[int]]:
    """An assignment in which all partitions have the same replicas; the first leads."""
    return {number: list(replicas) for number in range(count)}


class Prober:
    """Writes one record after the other to every partition of a topic with acks=all, through all changes of leaders; notes the
    longest time between two acknowledgements of each partition. Used as a context manager."""

    def __init__(self, cluster: Cluster, topic: str, count: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._leaders: dict[int, int] = {}
        self._acknowledged = dict.fromkeys(range(count), 0.0)
        self._longest = dict.fromkeys(range(count), 0.0)
        self._resumed = dict.fromkeys(range(count), 0.0)
        self._batch = build_batch([Record(value=b"v" * 100, timestamp=int(time.time() * 1000))])
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(broker_id,), daemon=True) for broker_id in IDS]

    def __enter__(self) -> "Prober":
        self._look()
        for thread in self._threads:
            thread.start()
        self.settle()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def settle(self) -> None:
        """Wait until each partition was acknowledged since now."""
        began = time.monotonic()
        self._cluster.until(lambda: min(self._acknowledged.values()) > began, "each partition takes records")

    def begin(self) -> None:
        """Forget the pauses until now."""
        with self._lock:
            self._longest = dict.fromkeys(self._longest, 0.0)

    def longest(self) -> float:
        """The longest pause of a partition in seconds."""
        self.settle()
        with self._lock:
            return max(self._longest.values())

    def resumed(self) -> float:
        """When the last of the longest pauses ended, monotonic."""
        self.settle()
        with self._lock:
            return max(self._resumed.values())

    def _look(self) -> None:
        for broker_id in IDS:
            found = self._cluster.partitions(broker_id, self._topic)
            if found:
                with self._lock:
                    self._leaders = {row.partition_index: row.leader_id for row in found}
                return

    def _run(self, broker_id: int) -> None:
        connection: Connection | None = None
        while not self._ending.is_set():
            led = [number for number, leader in self._leaders.items() if leader == broker_id]
            if -1 in self._leaders.values():
                self._look()
            if not led:
                self._ending.wait(LOOK_AGAIN_S)
                continue
            try:
                connection = connection or self._cluster.connect(broker_id)
                refused = self._write(connection, led)
            except (ClientError, OSError):
                refused = True
                if connection is not None:
                    connection.close()
                connection = None
            if refused:
                self._look()
                self._ending.wait(LOOK_AGAIN_S)
        if connection is not None:
            connection.close()

    def _write(self, connection: Connection, led: list[int]) -> bool:
        """Write a record to each partition; whether one was refused."""
        rows = [produce.Request.PartitionProduceData(index=number, records=self._batch) for number in led]
        topic = produce.Request.TopicProduceData(name=self._topic, partition_data=rows)
        request = produce.Request(acks=-1, timeout_ms=30_000, topic_data=[topic])
        response = connection.ask(produce.SCHEMA, request, newest=NEWEST)
        now, refused = time.monotonic(), False
        with self._lock:
            for row in response.responses[0].partition_responses:
                if row.error_code:
                    refused = True
                    continue
                before = self._acknowledged[row.index]
                if before and now - before > self._longest[row.index]:
                    self._longest[row.index] = now - before
                    self._resumed[row.index] = now
                self._acknowledged[row.index] = now
        return refused


# -- the rows ----------------------------------------------------------------------------------------------------------


def replicated_produce(kind: type[Server]) -> Figures:
    """Three generators, one for the partitions that each broker leads, with acks=all."""
    with Cluster(kind) as cluster:
        figures = {"pss_mb": cluster.pss() / MB}
        for batch_bytes, name in ((65536, "64k"), (1 << 20, "1m")):
            _bulk(cluster, f"warm-{name}", batch_bytes, BULK_BYTES // 2)
            figures |= {f"{key}_{name}": value for key, value in _bulk(cluster, name, batch_bytes, BULK_BYTES).items()}
        return figures


def _bulk(cluster: Cluster, prefix: str, batch_bytes: int, size: int) -> Figures:
    topics = {broker_id: f"{prefix}-{broker_id}" for broker_id in IDS}
    for broker_id, topic in topics.items():
        cluster.create(topic, on([broker_id, *(other for other in IDS if other != broker_id)], 2))
    for topic in topics.values():
        cluster.until(lambda topic=topic: cluster.in_sync(topic, 2), "the replicas are in sync")
    scratch(size * len(IDS) * len(IDS))
    loads = [
        Held(
            "produce", cluster.members[broker_id], "--topic", topic, "--partitions", "2", "--conns", "2", "--inflight", "3",
            "--acks", "-1", "--batch-bytes", str(batch_bytes), "--size", "200", "--size-max", "1000",
            "--requests", str(size // batch_bytes),
        )
        for broker_id, topic in topics.items()
    ]  # fmt: skip
    before = cluster.cpu_ns()
    for load in loads:
        load.go()
    for load in loads:
        load.expect("done")
    cpu = cluster.cpu_ns_since(before)
    for load in loads:
        load.go()
    results = [load.finish() for load in loads]
    total = sum(result["bytes"] for result in results)
    for topic in topics.values():
        cluster.delete(topic)
    return {"cpu_s": cpu / total, "rate": total / max(result["seconds"] for result in results) / MB}


def replicated_latency(kind: type[Server]) -> Figures:
    """100 B, one in flight, acks=all, three replicas."""
    with Cluster(kind) as cluster:
        topic = "one"
        cluster.create(topic, on(list(IDS), 1))
        cluster.until(lambda: cluster.in_sync(topic, 1), "the replicas are in sync")
        results = []
        for seconds in ("4", "4"):  # the first warms a JIT up
            load = Held("produce", cluster.members[IDS[0]], "--topic", topic, "--acks", "-1", "--seconds", seconds)
            load.go()
            load.expect("done")
            load.go()
            results.append(load.finish())
        return {"p50": results[-1]["p50_us"], "p99": results[-1]["p99_us"]}


def catch_up(kind: type[Server]) -> Figures:
    """A broker that gets a replica of four partitions by a reassignment, until it is in sync."""
    topic, count = "grown", 4
    with Cluster(kind) as cluster:
        cluster.create(topic, on([1, 2], count))
        cluster.until(lambda: cluster.in_sync(topic, count, 2), "the replicas are in sync")
        scratch(CATCH_UP_BYTES * 3)
        load = Held(
            "produce", cluster.members[1], "--topic", topic, "--partitions", str(count), "--conns", str(count),
            "--inflight", "3", "--acks", "-1", "--batch-bytes", "65536", "--size", "1000",
            "--requests", str(CATCH_UP_BYTES // 65536),
        )  # fmt: skip
        load.go()
        load.expect("done")
        load.go()
        size = load.finish()["bytes"]
        before = cluster.cpu_ns()
        began = time.monotonic()
        cluster.reassign(topic, on([1, 2, 3], count))
        cluster.until(lambda: cluster.in_sync(topic, count), "the new replicas are in sync")
        seconds = time.monotonic() - began
        return {"rate": size / seconds / MB, "cpu_s": cluster.cpu_ns_since(before) / size}


def killed(kind: type[Server]) -> Figures:
    """The longest pause of a partition: a broker is killed and stays away; it is killed and started at once."""
    topic, victim = "failing", IDS[-1]
    with Cluster(kind) as cluster:
        cluster.create(topic, spread(FAILING_PARTITIONS))
        cluster.until(lambda: cluster.in_sync(topic, FAILING_PARTITIONS), "the replicas are in sync")
        with Prober(cluster, topic, FAILING_PARTITIONS) as prober:
            prober.begin()
            cluster.members[victim].kill()
            removed = cluster.until_removed(victim)
            cluster.until(lambda: cluster.all_lead(topic, FAILING_PARTITIONS, IDS[:-1], IDS[:-1]), "others lead")
            away = prober.resumed() - removed
            cluster.start_again(victim)
            _heal(cluster, topic, FAILING_PARTITIONS)
            prober.settle()
            prober.begin()
            cluster.members[victim].kill()
            cluster.start_again(victim)
            cluster.until(lambda: cluster.in_sync(topic, FAILING_PARTITIONS), "the replicas are in sync")
            again = prober.longest()
        return {"away_s": away, "again_s": again}


def _heal(cluster: Cluster, topic: str, count: int) -> None:
    """Wait until all replicas are in sync, and let the preferred replicas lead."""
    cluster.until(lambda: cluster.in_sync(topic, count), "the replicas are in sync")
    cluster.prefer()
    preferred = {number: ids[0] for number, ids in spread(count).items()}
    cluster.until(
        lambda: preferred == {row.partition_index: row.leader_id for row in cluster.partitions(IDS[0], topic)},
        "the preferred replicas lead",
    )


def thousand(kind: type[Server]) -> Figures:
    """1,000 partitions with three replicas: create, memory, a broker that stops in order, delete."""
    topic = "many"
    with Cluster(kind) as cluster:
        cluster.create("warm", spread(FAILING_PARTITIONS))
        cluster.until(lambda: cluster.all_lead("warm", FAILING_PARTITIONS), "all brokers know the leaders")
        began = time.monotonic()
        cluster.create(topic, spread(MANY_PARTITIONS))
        cluster.until(lambda: cluster.all_lead(topic, MANY_PARTITIONS), "all brokers know the leaders")
        created = time.monotonic() - began
        cluster.until(lambda: cluster.in_sync(topic, MANY_PARTITIONS), "the replicas are in sync")
        pss = cluster.pss()
        with Prober(cluster, topic, MANY_PARTITIONS) as prober:
            prober.begin()
            stop = cluster.members[IDS[-1]].stop()
            pause = prober.longest()
        cluster.start_again(IDS[-1])
        cluster.until(lambda: cluster.in_sync(topic, MANY_PARTITIONS), "the replicas are in sync")
        began = time.monotonic()
        cluster.delete(topic)
        cluster.until(
            lambda: not any(cluster.partitions(broker_id, topic) for broker_id in IDS), "the topic is deleted"
        )
        deleted = time.monotonic() - began
        return {"create_s": created, "delete_s": deleted, "pause_s": pause, "stop_s": stop, "pss_mb": pss / MB}


def failover(kind: type[Server]) -> Figures:
    """The controller is killed in a cluster of 10,000 partitions with two replicas each: until the other brokers know a leader
    among them for each partition."""
    topics = [f"most-{number}" for number in range(MOST_PARTITIONS // MANY_PARTITIONS)]
    with Cluster(kind) as cluster:
        for topic in topics:
            cluster.create(topic, spread(MANY_PARTITIONS, 2))
            cluster.until(lambda topic=topic: cluster.in_sync(topic, MANY_PARTITIONS, 2), "the replicas are in sync")
        dead = cluster.controller()
        others = tuple(broker_id for broker_id in IDS if broker_id != dead)
        cluster.members[dead].kill()
        began = cluster.until_removed(dead)
        for topic in topics:
            cluster.until(
                lambda topic=topic: cluster.all_lead(topic, MANY_PARTITIONS, others, others), "other brokers lead"
            )
        return {"s": time.monotonic() - began}


CLUSTER: dict[str, Callable[[type[Server]], Figures]] = {
    "replicated-produce": replicated_produce,
    "replicated-latency": replicated_latency,
    "catch-up": catch_up,
    "killed": killed,
    "thousand": thousand,
    "failover": failover,
}


def rows() -> Iterator[Row]:
    """The rows with their targets."""
    yield Row("replicated-produce", "three brokers, three replicas, acks=all", runs_separately, (
        Target("cpu_s_64k", "s CPU of all brokers per GB, 64 KiB batches", 0.4),
        Target("rate_64k", "MB/s, 64 KiB batches", 2.0, more_is_better=True, middle=True),
        Target("cpu_s_1m", "s CPU of all brokers per GB, 1 MiB batches", 0.4),
        Target("rate_1m", "MB/s, 1 MiB batches", 2.0, more_is_better=True, middle=True),
        Target("pss_mb", "MB PSS of a broker in an idle cluster", 0.2, middle=True),
    ))  # fmt: skip
    yield Row("replicated-latency", "three replicas, acks=all, one in flight", runs_separately, (
        Target("p50", "us p50", 0.5, middle=True), Target("p99", "us p99", 0.6, middle=True),
    ))  # fmt: skip
    yield Row("catch-up", "a new replica of 1 GB, until it is in sync", runs_separately, (
        Target("rate", "MB/s", 2.0, more_is_better=True, middle=True), Target("cpu_s", "s CPU of all brokers per GB", 0.5),
    ))  # fmt: skip
    yield Row("killed", "30 partitions, kill -9 of a broker", runs_separately, (
        Target("away_s", "s until all take records again, after the session ended", 0.2, middle=True),
        Target("again_s", "s longest pause, started again at once", 1.0, middle=True, absolute=1.5),
    ))  # fmt: skip
    yield Row("thousand", "1,000 partitions of three replicas", runs_separately, (
        Target("create_s", "s until all brokers know the leaders", 0.3, middle=True),
        Target("delete_s", "s to delete the topic", 0.3, middle=True),
        Target("pause_s", "s longest pause of a partition when a broker stops in order", 0.2, middle=True, absolute=0.3),
        Target("pss_mb", "MB PSS of a broker", 0.2, middle=True),
    ))  # fmt: skip
    yield Row("failover", "10,000 partitions of two replicas, kill -9 of the controller", runs_separately, (
        Target("s", "s until the others know new leaders, after the session ended", 0.2, middle=True),
    ))  # fmt: skip


CLUSTER_ROWS = tuple(rows())
