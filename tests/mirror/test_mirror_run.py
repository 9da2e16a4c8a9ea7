"""`odradek mirror run`, `check` and `status` as processes, between two brokers."""

import itertools
import signal
import threading
import urllib.request

import pytest
from confluent_kafka import Producer

from odradek.clients import configs, topics
from odradek.clients.cluster import Cluster
from tests.mirror.clusters import pair
from tests.mirror.commands import mirror, state, status, worker
from tests.mirror.lanes import records_of
from tests.ports import reserved
from tests.waiting import until

NUMBERS = itertools.count()
QUICK = {"group.initial.rebalance.delay.ms": 0}


@pytest.fixture(scope="module")
def brokers():
    with pair(QUICK, QUICK) as both:
        yield both


@pytest.fixture
def name():
    return f"t{next(NUMBERS)}"


@pytest.fixture
def file(brokers, tmp_path, name):
    return brokers.write(tmp_path / "mirror.properties", f"topics = {name}.*\nrefresh.topics.interval.seconds = 1\n")


def create(brokers, topic, partitions=4, **settings):
    with Cluster(brokers.a.bootstrap_servers) as cluster:
        topics.create(cluster, topic, partitions, configs=settings)


def produce(brokers, topic, values, partitions=4):
    producer = Producer({"bootstrap.servers": brokers.a.bootstrap_servers, "linger.ms": 5, "compression.type": "lz4"})
    for value in values:
        producer.produce(topic, str(value).encode(), str(value % 7).encode(), partition=value % partitions)
        producer.poll(0)
    assert producer.flush(60) == 0


def copied(brokers, topic, partitions=4):
    """The values in the copy, by partition."""
    return [
        [int(seen.value) for seen in records_of(brokers.b.bootstrap_servers, (topic, partition))]
        for partition in range(partitions)
    ]


def expected(count, partitions=4):
    return [list(range(partition, count, partitions)) for partition in range(partitions)]


def caught_up(file):
    rows = state(file).partitions
    return bool(rows) and all(row.position and row.lag == 0 for row in rows)


def test_records_are_mirrored_and_the_status_shows_it(brokers, tmp_path, file, name):
    create(brokers, name)
    produce(brokers, name, range(1000))
    done = mirror("check", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[-4:] == [name, f"a.{name}", "4", "create"]
    before = status(file)
    assert (before["lag"], before["workers"], before["partitions"][0]["position"]) == (1000, [], None)
    with reserved(1) as port:
        metrics = f"127.0.0.1:{port}"
    with worker(
        file,
        tmp_path / "log",
        "--set",
        f"odradek.mirror.metrics.listener={metrics}",
        "--set",
        "odradek.mirror.worker=w1",
    ) as process:
        until(lambda: caught_up(file), lambda: f"everything is mirrored; {process.log}")
        flow = status(file)
        assert [(row["name"], row["lanes"]) for row in flow["workers"]] == [("w1", list(range(8)))]
        text = mirror("status", file).stdout
        assert "a->b: 1 worker, 4 partitions, lag 0 records, group odradek-mirror.a->b" in text
        with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=30) as response:
            lines = response.read().decode().splitlines()
        moved = [float(line.split()[-1]) for line in lines if line.startswith("odradek_mirror_records_total{")]
        assert sum(moved) == 1000
        assert process.stop() == 0
    assert "mirroring 4 partitions of 1 topic\n" in process.log and "stopped" in process.log
    assert copied(brokers, f"a.{name}") == expected(1000)
    assert mirror("check", file).stdout.split()[-1] == "exists"


class Writer:
    """A thread that writes consecutive numbers to a topic until the end. :ivar sent: how many."""

    def __init__(self, brokers, topic):
        self.sent = 0
        self._producer = Producer({"bootstrap.servers": brokers.a.bootstrap_servers, "compression.type": "lz4"})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main)

    def _main(self):
        while not self._stop.wait(0.05):
            for value in range(self.sent, self.sent + 40):
                self._producer.produce(self._topic, str(value).encode(), partition=value % 4)
            self.sent += 40
            self._producer.poll(0)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self._stop.set()
        self._thread.join(60)
        assert self._producer.flush(60) == 0


def positions(file):
    return [row.position or 0 for row in state(file).partitions]


def test_a_killed_worker_is_replaced_and_every_record_is_there_once(brokers, tmp_path, file, name):
    create(brokers, name)
    with (
        Writer(brokers, name) as writer,
        worker(file, tmp_path / "log1") as first,
        worker(file, tmp_path / "log2") as second,
    ):
        until(
            lambda: [len(row.lanes) for row in state(file).workers] == [4, 4] and all(positions(file)),
            lambda: f"both workers have lanes, and every partition is mirrored; {first.log} {second.log}",
        )
        first.kill()
        ends = positions(file)
        until(
            lambda: (
                all(now > end for now, end in zip(positions(file), ends, strict=True)) and len(state(file).workers) == 1
            ),
            lambda: f"the other worker has all partitions; {second.log}",
        )
        writer.stop()
        until(lambda: caught_up(file), lambda: f"everything is mirrored; {second.log}")
        assert copied(brokers, f"a.{name}") == expected(writer.sent)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_stopped_leaves_the_group_and_ends_with_exit_code_0(brokers, tmp_path, file, name, number):
    create(brokers, name)
    produce(brokers, name, range(10))
    with worker(file, tmp_path / "log") as process:
        until(lambda: caught_up(file), lambda: process.log)
        assert process.stop(number) == 0
    assert state(file).state == "Empty"
    assert copied(brokers, f"a.{name}") == expected(10)


def test_without_transactions_records_are_mirrored_too(brokers, tmp_path, name):
    lines = f"topics = {name}\nodradek.mirror.exactly.once = false\na->b.enabled = true\nodradek.mirror.lanes = 2\n"
    file = brokers.write(tmp_path / "mirror.properties", lines)
    create(brokers, name)
    produce(brokers, name, range(100))
    with worker(file, tmp_path / "log") as process:
        until(lambda: caught_up(file), lambda: process.log)
    assert copied(brokers, f"a.{name}") == expected(100)


def test_a_batch_that_the_target_refuses_stops_its_partition_with_the_reason_in_the_status(
    brokers, tmp_path, file, name
):
    create(brokers, name, 2, **{"max.message.bytes": "4000000"})
    with Cluster(brokers.b.bootstrap_servers) as cluster:
        topics.create(cluster, f"a.{name}", 2, configs={"max.message.bytes": "100000"})
    producer = Producer({"bootstrap.servers": brokers.a.bootstrap_servers, "message.max.bytes": 4_000_000})
    for value, partition in ((b"before", 0), (b"x" * 1_000_000, 0), (b"1", 1)):
        producer.produce(name, value, partition=partition)
        assert producer.flush(60) == 0
    with reserved(1) as port:
        metrics = f"127.0.0.1:{port}"
    keys = (f"odradek.mirror.metrics.listener={metrics}", "config.properties.exclude=max.message.bytes")
    soon = "odradek.mirror.retry.stopped.seconds=1"
    done = mirror("check", file, "--set", keys[1])
    assert f"max.message.bytes of 'a.{name}' in b is 100000, that of '{name}' in a is 4000000" in done.stderr
    with worker(file, tmp_path / "log", "--set", keys[0], "--set", keys[1], "--set", soon) as process:

        def rows():
            return status(file, "--metrics", metrics)["partitions"] if "metrics: http" in process.log else []

        until(lambda: any(row["stopped"] for row in rows()) and rows()[1]["lag"] == 0, lambda: process.log)
        stopped = rows()
        assert stopped[1]["stopped"] is None and stopped[0]["lag"] == 1
        assert (
            f"partition {name}-0 of the source is not mirrored to a.{name}-0 any more: {stopped[0]['stopped']}"
            in process.log
        )
        assert "at the source's offset 1: the record batch is larger" in stopped[0]["stopped"]
        assert [row["stopped"] for row in status(file)["partitions"]] == [stopped[0]["stopped"], None]
        assert process.stop() == 0
        assert "again" not in process.log
    assert [row.stopped for row in state(file).partitions] == [stopped[0]["stopped"], ""], "without a worker"
    with worker(file, tmp_path / "log", "--set", keys[0], "--set", keys[1], "--set", soon) as process:
        until(lambda: "any more" in process.log, lambda: process.log)
        with Cluster(brokers.b.bootstrap_servers) as cluster:
            configs.alter(cluster, configs.Resource("topic", f"a.{name}"), {"max.message.bytes": "4000000"})
        until(lambda: caught_up(file), lambda: f"the partition continues with the new setting; {process.log}")
        assert [row["stopped"] for row in rows()] == [None, None]
        until(lambda: f"is mirrored to a.{name}-0 again" in process.log, lambda: process.log)
        assert [row["stopped"] for row in status(file)["partitions"]] == [None, None]
    assert [int(seen.value) for seen in records_of(brokers.b.bootstrap_servers, (f"a.{name}", 1))] == [1]
    assert [seen.value for seen in records_of(brokers.b.bootstrap_servers, (f"a.{name}", 0))] == [
        b"before",
        b"x" * 1_000_000,
    ]


def test_the_status_shows_without_a_worker_that_the_source_lost_what_was_not_mirrored(brokers, tmp_path, file, name):
    gone, again = f"{name}-gone", f"{name}-again"
    for topic in (gone, again):
        create(brokers, topic, 1)
        produce(brokers, topic, range(10), 1)
    with worker(file, tmp_path / "log", "--set", "odradek.mirror.metrics.listener=") as process:
        until(lambda: caught_up(file) and len(state(file).partitions) == 2, lambda: process.log)
        assert process.stop() == 0
    assert [row.stopped for row in state(file).partitions] == ["", ""]
    produce(brokers, gone, range(10, 30), 1)
    with Cluster(brokers.a.bootstrap_servers) as cluster:
        topics.delete_records(cluster, {(gone, 0): 25})
        topics.delete(cluster, [again])
    create(brokers, again, 1)
    produce(brokers, again, range(3), 1)
    remade, deleted = state(file).partitions
    assert f"topic '{again}' was deleted and created again" in remade.stopped and remade.lag == 3
    assert f"deleted 15 offsets of {gone}-0" in deleted.stopped and deleted.lag == 20
    assert "was deleted and created again" in mirror("status", file).stdout
    done = mirror("check", file)
    assert done.returncode == 1
    assert f"topic '{again}': {remade.stopped}" in done.stderr and f"topic '{gone}': {deleted.stopped}" in done.stderr


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("b.bootstrap.servers=127.0.0.1:1", "odradek: a->b: cluster b: cannot connect to 127.0.0.1:1: Connection refused"),
        ("a->b.topics=*", "odradek: a->b.topics=*: '*' is not a regular expression: nothing to repeat at position 0 (--set)"),
        ("a->b.topcs=x", "odradek: a->b.topcs: is not a key of the mirror; did you mean 'topics'? (--set)"),
        ("odradek.mirror.session.timeout.ms=1000", "odradek: a->b: the target refuses odradek.mirror.session.timeout.ms=1000"),
    ],
)  # fmt: skip
def test_a_worker_that_cannot_run_ends_with_one_sentence(tmp_path, file, override, sentence):
    with worker(file, tmp_path / "log", "--set", override) as process:
        assert process.end() == 1
    lines = [line for line in process.log.splitlines() if line.startswith("odradek:")]
    assert len(lines) == 1 and lines[0].startswith(sentence)


def test_a_mirror_with_another_file_that_copies_the_other_way_is_found(brokers, tmp_path, name):
    lines = f"topics = {name}\nreplication.policy.class = IdentityReplicationPolicy\n"
    there = brokers.write(tmp_path / "there.properties", lines)
    back = brokers.write(tmp_path / "back.properties", f"{lines}a->b.enabled = false\nb->a.enabled = true\n")
    create(brokers, name)
    produce(brokers, name, range(4))
    with worker(there, tmp_path / "log1") as process:
        until(lambda: caught_up(there), lambda: process.log)
        done = mirror("check", back)
        assert done.returncode == 1
        assert (
            f"topic '{name}': its records would come back to a: the mirror of group odradek-mirror.a->b in b"
            in done.stderr
        )
        with worker(back, tmp_path / "log2") as other:
            until(lambda: "mirroring 0 partitions" in other.log, lambda: other.log)
            assert f"topic '{name}' is not mirrored" in other.log
    assert copied(brokers, name) == expected(4)
    # The direction may be turned round when the first mirror has stopped; its records are there already.
    assert "has 1 offsets but no position" in mirror("check", back).stderr
    assert mirror("check", back, "--set", "odradek.mirror.start=latest").returncode == 0


def test_check_reports_obstacles_with_exit_code_1(brokers, file, name):
    create(brokers, name)
    both = ("--set", "b->a.enabled=true", "--set", "replication.policy.class=IdentityReplicationPolicy")
    done = mirror("check", file, *both)
    assert done.returncode == 1
    assert f"odradek: a->b: topic '{name}': its records would come back to a (a->b->a)" in done.stderr
    done = mirror("check", file, "--target", "c")
    assert (done.returncode, done.stderr.split(": ", 1)[1].split(" of")[0]) == (1, "'c' is not in `clusters`")
    done = mirror("check", file, "--set", "b.bootstrap.servers=127.0.0.1:1")
    assert (done.returncode, done.stdout) == (1, "a->b: cannot run, group odradek-mirror.a->b\n")


def test_a_copy_that_was_deleted_is_mirrored_from_its_start_again(brokers, tmp_path, file, name):
    create(brokers, name)
    produce(brokers, name, range(20))
    with worker(file, tmp_path / "log1") as process, Cluster(brokers.b.bootstrap_servers) as cluster:
        until(lambda: caught_up(file), lambda: process.log)
        assert topics.delete(cluster, [f"a.{name}"]) == {f"a.{name}": None}
        until(lambda: f"a.{name}" in cluster.metadata([f"a.{name}"]).topics, "the copy is created again")
        until(lambda: caught_up(file), lambda: process.log)
        assert copied(brokers, f"a.{name}") == expected(20)
        assert process.stop() == 0
        assert topics.delete(cluster, [f"a.{name}"]) == {f"a.{name}": None}
    with worker(file, tmp_path / "log2") as process:
        until(lambda: caught_up(file), lambda: process.log)
        assert process.stop() == 0
    assert copied(brokers, f"a.{name}") == expected(20)


def test_a_topic_of_the_source_that_was_made_again_stops_until_its_copy_is_deleted(brokers, tmp_path, file, name):
    create(brokers, name)
    produce(brokers, name, range(20))
    with worker(file, tmp_path / "log") as process, Cluster(brokers.a.bootstrap_servers) as cluster:
        until(lambda: caught_up(file), lambda: process.log)
        assert topics.delete(cluster, [name]) == {name: None}
        create(brokers, name)
        produce(brokers, name, range(100, 104))
        until(lambda: process.log.count("is not mirrored to") == 4, lambda: process.log)
        assert f"partition {name}-0 of the source is not mirrored to a.{name}-0 any more" in process.log
        assert copied(brokers, f"a.{name}") == expected(20)
        with Cluster(brokers.b.bootstrap_servers) as target:  # the remedy of docs/operate/mirror.md
            assert topics.delete(target, [f"a.{name}"]) == {f"a.{name}": None}
        until(lambda: caught_up(file), lambda: process.log)
        assert copied(brokers, f"a.{name}") == [[100], [101], [102], [103]]
        assert process.stop() == 0
