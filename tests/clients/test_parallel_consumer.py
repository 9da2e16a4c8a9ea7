"""ParallelConsumer: its offsets against a model, its queues, and with a real broker: kills, rebalances, slow work."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from broker.clients.offset_manager import OffsetManager
from broker.clients.parallel_consumer import ParallelConsumer, ProcessingFailed
from broker.clients.work_queues import Order, Work, WorkQueues
from broker.testing import Broker

TOPIC, PARTITIONS, RECORDS = "work", 4, 2000
CONFIG = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 4}

pytestmark = [pytest.mark.timeout(120)]


@given(gaps=st.lists(st.integers(1, 3), min_size=1, max_size=40), order=st.randoms())
def test_the_committable_offset_has_everything_before_it_processed(gaps, order):
    offsets = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    manager = OffsetManager()
    for offset in offsets:
        manager.take(offset)
    done = set()
    for offset in order.sample(offsets, len(offsets)):
        manager.done(offset)
        done.add(offset)
        prefix = [one for n, one in enumerate(offsets) if set(offsets[: n + 1]) <= done]
        expected = prefix[-1] + 1 if prefix else None
        assert manager.committable == expected
        assert manager.waiting == len(offsets) - len(prefix)
    manager.committed(manager.committable)
    assert manager.committable is None


def test_offsets_that_cannot_be_are_refused():
    manager = OffsetManager()
    manager.take(5)
    with pytest.raises(ValueError, match="ascend"):
        manager.take(5)
    with pytest.raises(KeyError):
        manager.done(4)
    manager.done(5)
    with pytest.raises(KeyError):
        manager.done(5)


@pytest.mark.parametrize(("order", "together"), [(Order.PARTITION, 2), (Order.KEY, 4), (Order.NONE, 8)])
def test_what_stays_in_order_is_processed_one_after_the_other(order, together):
    queues = WorkQueues(order)
    queues.assign([("t", 0), ("t", 1)])
    for offset in range(4):
        for partition in range(2):
            queues.put(Work(("t", partition), offset, b"even" if offset % 2 == 0 else b"odd", None))
    at_hand = [queues.take() for _ in range(together)]
    assert {work.place[1] for work in at_hand[:2]} == {0, 1}, "partitions take turns"
    taker = threading.Thread(target=lambda: at_hand.append(queues.take()))
    taker.start()
    if together < 8:
        queues.finished(at_hand[0])
    queues.close()
    taker.join()
    assert len([one for one in at_hand if one is not None]) <= 8
    seen = defaultdict(list)
    for work in at_hand:
        if work is not None:
            seen[work.place, work.lane].append(work.offset)
    assert all(offsets == sorted(offsets) for offsets in seen.values())


def test_what_was_given_away_counts_for_nobody():
    queues = WorkQueues(Order.NONE)
    queues.assign([("t", 0)])
    queues.put(Work(("t", 0), 1, None, None))
    work = queues.take()
    queues.revoke([("t", 0)])
    assert queues.finished(work) is False
    queues.assign([("t", 0)])
    assert queues.finished(work) is False


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with Broker(CONFIG, {TOPIC: PARTITIONS}, directory=tmp_path_factory.mktemp("parallel")) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for n in range(RECORDS):
            producer.produce(TOPIC, str(n), key=str(n % 37), partition=n % PARTITIONS)
        assert producer.flush(30) == 0
        yield broker


def config(broker, group):
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }


def committed(broker, group):
    consumer = Consumer(config(broker, group))
    found = consumer.committed([TopicPartition(TOPIC, p) for p in range(PARTITIONS)], timeout=20)
    consumer.close()
    return [one.offset for one in found]


def run_until(consumer, condition, seconds=60):
    thread = threading.Thread(target=consumer.run)
    thread.start()
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until and thread.is_alive():
        threading.Event().wait(0.02)
    consumer.stop()
    thread.join(30)
    assert condition()


@pytest.mark.parametrize("order", ["key", "partition", "none"])
def test_every_record_is_processed_in_its_order_and_committed(broker, order):
    seen, lock = defaultdict(list), threading.Lock()

    def handler(message):
        with lock:
            seen[message.partition(), message.key()].append(message.offset())

    consumer = ParallelConsumer(config(broker, f"all-{order}"), [TOPIC], handler, order=order, buffer_records=50)
    run_until(consumer, lambda: sum(map(len, list(seen.values()))) >= RECORDS)
    assert sum(map(len, seen.values())) == RECORDS == consumer.counters.processed
    if order != "none":
        assert all(offsets == sorted(offsets) for offsets in seen.values())
    assert committed(broker, f"all-{order}") == [RECORDS // PARTITIONS] * PARTITIONS


def test_what_fails_is_tried_again_then_put_aside(broker):
    tries, dead, lock = Counter(), [], threading.Lock()

    def handler(message):
        with lock:
            tries[message.partition(), message.offset()] += 1
            count = tries[message.partition(), message.offset()]
        if message.offset() == 7 or (message.offset() == 8 and count == 1):
            raise RuntimeError("not now")

    consumer = ParallelConsumer(
        config(broker, "retried"),
        [TOPIC],
        handler,
        retries=2,
        longest_backoff_s=0.1,
        dead_letter=lambda message, _: dead.append((message.partition(), message.offset())),
    )
    run_until(consumer, lambda: consumer.counters.processed >= RECORDS)
    assert sorted(dead) == [(p, 7) for p in range(PARTITIONS)]
    assert {tries[p, 7] for p in range(PARTITIONS)} == {3}
    assert {tries[p, 8] for p in range(PARTITIONS)} == {2}


def test_without_dead_letters_a_failure_stops_the_consumer_and_is_not_committed(broker):
    def handler(message):
        if message.offset() == 100:
            raise RuntimeError("never")

    consumer = ParallelConsumer(config(broker, "stopped"), [TOPIC], handler, order="partition", retries=0)
    with pytest.raises(ProcessingFailed, match="at offset 100"):
        consumer.run()
    assert all(offset <= 100 for offset in committed(broker, "stopped"))


def test_work_slower_than_the_poll_interval_keeps_the_membership(broker):
    count = Counter()

    def handler(message):
        threading.Event().wait(0.05 if message.offset() < 20 else 0)
        count[message.partition(), message.offset()] += 1

    options = config(broker, "slow") | {"max.poll.interval.ms": 6000, "session.timeout.ms": 6000}
    consumer = ParallelConsumer(options, [TOPIC], handler, workers=2, order="partition", buffer_records=10)
    run_until(consumer, lambda: len(count) >= RECORDS)
    assert set(count.values()) == {1}
    assert consumer.counters.pauses > 0


MEMBER = """
import signal, sys, time
from broker.clients.parallel_consumer import ParallelConsumer
servers, group, path = sys.argv[1:]
out = open(path, "a", buffering=1)
def handler(message):
    time.sleep(0.001)
    out.write(f"{message.partition()} {message.offset()}\\n")
consumer = ParallelConsumer(
    {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest",
     "session.timeout.ms": 6000, "log_level": 0},
    ["work"], handler, workers=4, buffer_records=100, commit_interval_s=0.1)
signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
consumer.run()
"""


def test_members_that_are_killed_lose_nothing_and_repeat_little(broker, tmp_path):
    chance = random.Random(5)
    path = tmp_path / "seen"
    path.touch()

    def member():
        return subprocess.Popen([sys.executable, "-c", MEMBER, broker.bootstrap_servers, "killed", str(path)])

    def lines():
        return [line for line in path.read_text().splitlines() if line.count(" ") == 1]

    members = [member(), member()]
    kills = 0
    until = time.monotonic() + 90
    while len(set(lines())) < RECORDS and time.monotonic() < until:
        before = len(lines())
        victim = chance.randrange(2)
        threading.Event().wait(0.3)
        if kills < 4 and len(lines()) > before:
            os.kill(members[victim].pid, signal.SIGKILL)
            members[victim].wait()
            members[victim] = member()
            kills += 1
    for one in members:
        one.send_signal(signal.SIGTERM)
    for one in members:
        assert one.wait(40) in (0, -signal.SIGTERM)  # one that was started last may not have got to its handler
    found = Counter(lines())
    assert set(found) == {f"{n % PARTITIONS} {n // PARTITIONS}" for n in range(RECORDS)}
    assert kills >= 1
    repeated = sum(found.values()) - len(found)
    assert repeated <= (kills + 4) * PARTITIONS * (100 + 500), "no more than what was fetched and not committed"
    print(f"\n{kills} kills, {repeated} records repeated of {RECORDS}")
