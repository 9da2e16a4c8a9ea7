"""ParallelConsumer in a group of a real broker: order, retries, dead letters, slow work, rebalances, the stop."""

import subprocess
import sys
import threading
import time
import traceback
from collections import defaultdict

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.clients.parallel_consumer import ParallelConsumer, ProcessingFailed
from odradek.testing import Broker
from tests.waiting import until

SETTINGS = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}
LIMIT_S = 120  # until which something must have happened on any machine
ASK_S = 90

pytestmark = pytest.mark.timeout(600)


class Running:
    """Runs a consumer in a thread that the test ends; `counters` are those of the consumer."""

    broker = None  # whose log tells why one does not end

    def __init__(self, *arguments, **options):
        self.consumer = ParallelConsumer(*arguments, **options)
        self.group = arguments[0]["group.id"]
        self.counters = self.consumer.counters
        self.failure = None
        self._thread = threading.Thread(target=self._run, daemon=True)  # one that hangs must not hold up the end of all
        self._thread.start()

    def _run(self):
        try:
            self.consumer.run()
        except Exception as error:  # given to the test by `ended`
            self.failure = error

    def ended(self):
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), self._where()
        if self.failure is not None:
            raise self.failure

    def _where(self):
        """Diagnostics: the stack of the poll thread, the counters, the group's state and the broker's status."""
        command = [sys.executable, "-m", "odradek.cli.main", "group", "explain", self.group]
        command += ["--bootstrap-server", self.broker.bootstrap_servers]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        frame = sys._current_frames().get(self._thread.ident)
        stack = traceback.format_stack(frame) if frame is not None else ["it has just ended"]
        state = f"still running with {self.counters}, failure {self.consumer._failure!r}"
        return "\n".join((state, *stack, told.stdout, told.stderr, self.broker.log_tail()))

    def __enter__(self):
        return self

    def stop(self):
        self.consumer.stop()
        self.ended()

    def __exit__(self, *_):
        self.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """One broker per test process. Tests of this file may run in different processes, so each uses its own topic and group."""
    directory = tmp_path_factory.mktemp("parallel")
    names = ("ordered-key", "ordered-partition", "retried", "letters", "stuck", "stuck-letters", "slow", "shared")
    names += ("stopped", "bounded", "range")
    with Broker(SETTINGS, dict.fromkeys(names, 4), directory=directory) as running:
        Running.broker = running
        yield running


def config(broker, group, **more):
    """A configuration with a session timeout that is longer than pauses of the test machine."""
    return {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "session.timeout.ms": 60_000, **more}


def produce(broker, topic, count, keys=20, partition=None):
    """Write records with values "key number" and ascending numbers."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    where = {} if partition is None else {"partition": partition}
    for number in range(count):
        key = str(number % keys)
        producer.produce(topic, f"{key} {number}".encode(), key.encode(), **where)
        producer.poll(0)
    assert producer.flush(60) == 0


def committed(broker, group, topic, partitions=4):
    reader = Consumer(config(broker, group))
    answers = reader.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=ASK_S)
    reader.close()
    return {one.partition: one.offset for one in answers}


def ends(broker, topic, partitions=4):
    reader = Consumer(config(broker, "none"))
    found = {
        number: reader.get_watermark_offsets(TopicPartition(topic, number), timeout=ASK_S)[1]
        for number in range(partitions)
    }
    reader.close()
    return found


class Seen:
    """Records the messages of a handler and waits for conditions on them."""

    def __init__(self):
        self.changed = threading.Condition()
        self.records = []

    def __call__(self, message):
        with self.changed:
            self.records.append((message.partition(), message.key().decode(), message.offset()))
            self.changed.notify_all()

    def wait_for(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: len(set(self.records)) >= count, LIMIT_S), len(set(self.records))


@pytest.mark.parametrize("order", ["key", "partition"])
def test_order_is_kept_while_many_work(broker, order):
    topic = group = f"ordered-{order}"
    produce(broker, topic, 2000)
    total = 2000
    seen, running, overlaps = Seen(), set(), []
    lock = threading.Lock()

    def work(message):
        lane = (message.partition(), message.key() if order == "key" else None)
        with lock:
            if lane in running:
                overlaps.append(lane)
            running.add(lane)
        time.sleep(0.001)
        with lock:
            running.discard(lane)
        seen(message)

    with Running(config(broker, group), [topic], work, order=order, workers=8) as consumer:
        seen.wait_for(total)
    assert not overlaps
    lanes = defaultdict(list)
    for partition, key, offset in seen.records:
        lanes[partition, key if order == "key" else None].append(offset)
    assert all(offsets == sorted(offsets) for offsets in lanes.values())
    assert len(seen.records) == total == consumer.counters.processed
    assert {number: end for number, end in ends(broker, topic).items() if end} == {
        number: offset for number, offset in committed(broker, group, topic).items() if offset > 0
    }


def test_a_failed_record_is_tried_again_until_it_succeeds(broker):
    produce(broker, "retried", 100)
    seen, failures = Seen(), defaultdict(int)

    def work(message):
        number = int(message.value().split()[1])
        if number % 10 == 0 and failures[number] < 3:
            failures[number] += 1
            raise OSError("not yet")
        seen(message)

    with Running(config(broker, "retried"), ["retried"], work, retries=3, longest_backoff_s=0.01) as consumer:
        seen.wait_for(100)
    assert (consumer.counters.retried, consumer.counters.processed, len(seen.records)) == (30, 100, 100)
    assert all(count == 3 for count in failures.values())
    by_key = defaultdict(list)
    for partition, key, offset in seen.records:
        by_key[partition, key].append(offset)
    assert all(offsets == sorted(offsets) for offsets in by_key.values())


def test_a_record_that_fails_all_retries_is_a_dead_letter_and_is_committed(broker):
    produce(broker, "letters", 50)
    seen, letters = Seen(), []

    def work(message):
        if message.value().endswith(b" 7"):
            raise ValueError("poison")
        seen(message)

    def dead_letter(message, error):
        letters.append((message.value(), str(error)))
        seen(message)

    options = {"retries": 2, "longest_backoff_s": 0.01, "dead_letter": dead_letter}
    with Running(config(broker, "letters"), ["letters"], work, **options) as consumer:
        seen.wait_for(50)
    assert letters == [(b"7 7", "poison")]
    assert (consumer.counters.dead_letters, consumer.counters.retried) == (1, 2)
    assert sum(offset for offset in committed(broker, "letters", "letters").values() if offset > 0) == 50


@pytest.mark.parametrize("with_letters", [False, True])
def test_without_a_dead_letter_handler_it_stops_without_committing_the_record(broker, with_letters):
    topic = group = "stuck-letters" if with_letters else "stuck"
    produce(broker, topic, 50, partition=2)

    def work(message):
        if message.offset() == 30:
            raise ValueError("poison")

    def dead_letter(message, error):
        raise OSError("no room for letters")

    options = {"dead_letter": dead_letter} if with_letters else {}
    consumer = Running(config(broker, group), [topic], work, order="partition", retries=1, **options)
    with pytest.raises(ProcessingFailed, match=rf"{topic}-2 at offset 30") as failed:
        consumer.ended()
    assert isinstance(failed.value.__cause__, OSError if with_letters else ValueError)
    assert committed(broker, group, topic)[2] == 30


def test_slow_work_keeps_its_membership_by_polling_while_full(broker):
    """The work takes longer than max.poll.interval.ms, and no more fits into the buffers."""
    produce(broker, "slow", 6, keys=1, partition=0)
    seen = Seen()

    def work(message):
        time.sleep(4.5)  # four of them, one after the other, since they have one key
        seen(message)

    settings = config(
        broker,
        "slow",
        **{"max.poll.interval.ms": 15_000, "session.timeout.ms": 15_000, "heartbeat.interval.ms": 1000},
    )
    options = {"buffer_records": 2, "workers": 2, "drain_s": 60}
    with Running(settings, ["slow"], work, **options) as consumer:
        seen.wait_for(4)
    assert (consumer.counters.lost_partitions, consumer.counters.rebalances, consumer.counters.late) == (0, 1, 0)
    assert consumer.counters.pauses > 0
    assert [offset for _, _, offset in seen.records] == list(range(len(seen.records)))
    assert committed(broker, "slow", "slow")[0] == len(seen.records)


def test_the_buffers_stay_within_their_limits(broker):
    produce(broker, "bounded", 3000, keys=3000)
    total = 3000
    seen, most = Seen(), []
    stuck = threading.Event()

    def work(message):
        if message.partition() == 0 and message.offset() == 0:
            assert stuck.wait(LIMIT_S)
        seen(message)
        counters = running.counters  # read in this order the difference is at most what is held
        polled = counters.polled
        most.append(polled - counters.processed)

    options = {"buffer_records": 10, "max_uncommitted": 100, "order": "none"}
    with Running(config(broker, "bounded"), ["bounded"], work, **options) as running:
        sizes = ends(broker, "bounded")
        seen.wait_for(total - sizes[0] + 49)  # of partition 0 work runs ahead of its first record by half or more
        stuck.set()
        seen.wait_for(total)
    assert len(seen.records) == total
    assert max(most) <= 4 * 10 + 8  # a worker counts a record once its buffer has forgotten it
    before = [offset for partition, _, offset in seen.records if partition == 0]
    assert 49 <= max(before[: before.index(0)]) <= 99
    assert committed(broker, "bounded", "bounded") == sizes


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_members_join_and_leave_without_repeated_records(broker, assignor):
    """An orderly rebalance repeats no record: records in flight are finished and committed before the revocation."""
    topic = "shared" if assignor == "cooperative-sticky" else "range"
    seen, total = Seen(), 0

    def more():
        nonlocal total
        produce(broker, topic, 1000, keys=400)
        total += 1000

    def has_some(consumer):
        """Keep enough records for a member that takes long to join."""
        if total - len(seen.records) < 1000:
            more()
        return consumer.counters.processed > 100

    def work(message):
        time.sleep(0.004)
        seen(message)

    settings = config(broker, assignor, **{"partition.assignment.strategy": assignor})
    options = {"workers": 4, "buffer_records": 50, "drain_s": 60}
    more()
    first = Running(settings, [topic], work, **options)
    seen.wait_for(200)
    second = Running(settings, [topic], work, **options)
    until(lambda: has_some(second), "the second member's share", LIMIT_S)
    first.stop()
    third = Running(settings, [topic], work, **options)
    seen.wait_for(total)
    second.stop()
    third.stop()
    assert all(one.counters.late == one.counters.lost_partitions == 0 for one in (first, second, third))
    assert len(seen.records) == total
    assert committed(broker, assignor, topic) == ends(broker, topic)


def test_the_stop_finishes_records_in_flight_and_leaves_the_rest(broker):
    produce(broker, "stopped", 200)
    seen, began, go_on = Seen(), threading.Semaphore(0), threading.Event()

    def work(message):
        began.release()
        assert go_on.wait(LIMIT_S)
        seen(message)

    consumer = Running(config(broker, "stopped"), ["stopped"], work, workers=3, drain_s=60)
    for _ in range(3):
        assert began.acquire(timeout=LIMIT_S)
    until(lambda: consumer.counters.polled == 200, "all records")  # the rest waits: what the stop finds is known
    consumer.consumer.stop()
    until(lambda: consumer.counters.dropped, "the stop")  # then nothing more is begun
    assert len(seen.records) == 0
    go_on.set()
    consumer.ended()
    assert len(seen.records) == 3
    assert consumer.counters.dropped == 197
    with Running(config(broker, "stopped"), ["stopped"], seen):
        seen.wait_for(200)
    repeats = len(seen.records) - 200
    assert 0 <= repeats <= 3  # finished above one that was not begun


def test_invalid_arguments_are_named():
    good = {"bootstrap.servers": "localhost:1", "group.id": "g"}
    for options, message in (
        ({"workers": 0}, "workers=0"),
        ({"buffer_bytes": 0}, "buffer_bytes=0"),
        ({"max_uncommitted": 0}, "max_uncommitted=0"),
        ({"order": "size"}, "'size' is not a valid Order"),
    ):
        with pytest.raises(ValueError, match=message):
            ParallelConsumer(good, ["t"], print, **options)
    with pytest.raises(ValueError, match="topics='t'"):
        ParallelConsumer(good, "t", print)
