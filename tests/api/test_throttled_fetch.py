"""Fetches of followers whose replication is throttled: what is left out, what waits, and what the throttle never touches."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.shm.replication_quota import QuotaSide, set_limit, set_windows, total_bytes
from odradek._ext.shm.slot import ThrottledSide
from odradek._ext.testing import quota_probe, replica_probe, slot_probe
from tests.api.test_follower_fetch import CONSUMER, FOLLOWER, LEADER, Follower
from tests.api.worker_harness import HandWorker, nothing_came
from tests.waiting import until
from tests.wire import batch, offsets

SIDE = QuotaSide.QUOTA_LEADER
RATE = 20_000
OVERRUN = 10 * RATE


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[HandWorker]:
    made = HandWorker(tmp_path)
    replica_probe.cluster([LEADER, FOLLOWER])
    set_windows(11, 1)
    set_limit(SIDE, RATE)
    yield made
    set_limit(SIDE, None)
    made.close()


def led(
    worker: HandWorker, *throttled: bool, records: int = 3, size: int = 1000, in_sync: bool = False
) -> tuple[list[int], bytes]:
    """A topic with a partition for each of `throttled`, each with batches of one record: (slots, topic id)."""
    slots = worker.create_many("t", len(throttled), alone=False)
    for slot, listed in zip(slots, throttled, strict=True):
        worker.broker.lead(slot, 0, alone=not in_sync)
        worker.broker.table.configure(slot, {"throttled": ThrottledSide.THROTTLED_LEADER if listed else 0})
        for _ in range(records):
            assert slot_probe.append(slot, [batch(bytes(size))])[0][0] == 0
    return slots, slot_facts.describe(slots[0]).topic_id


def overrun() -> None:
    quota_probe.record(SIDE, OVERRUN)


def counts(parts: dict[int, Any]) -> dict[int, int]:
    """The number of records by partition."""
    return {number: len(offsets(part.records)) for number, part in parts.items()}


def test_a_throttled_partition_is_left_out_while_the_rate_is_over_the_limit(worker: HandWorker) -> None:
    _, topic = led(worker, True, False)
    overrun()
    error, parts = Follower(worker).ask((topic, 0, 0), (topic, 1, 0))
    assert (error, counts(parts)) == (0, {0: 0, 1: 3})
    assert (parts[0].error_code, parts[0].high_watermark) == (0, 3)
    assert total_bytes(SIDE) == OVERRUN


def test_below_the_limit_its_records_are_sent_and_counted(worker: HandWorker) -> None:
    _, topic = led(worker, True, False)
    error, parts = Follower(worker).ask((topic, 0, 0), (topic, 1, 0))
    assert (error, counts(parts)) == (0, {0: 3, 1: 3})
    assert total_bytes(SIDE) == len(parts[0].records)


@pytest.mark.parametrize("session", [True, False])
def test_the_fetch_waits_and_is_answered_when_the_rate_has_fallen(worker: HandWorker, session: bool) -> None:
    slots, topic = led(worker, True, False, records=0)
    assert slot_probe.append(slots[0], [batch(b"x")])[0][0] == 0
    overrun()
    follower = Follower(worker)
    follower.ask((topic, 0, 0), (topic, 1, 0), session=session)
    follower.send((topic, 0, 0), (topic, 1, 0), wait_ms=60_000, session=session)
    assert nothing_came(follower.wire)
    for _ in range(20):  # records of the throttled partition are no reason to look at the rate
        assert slot_probe.append(slots[0], [batch(b"x")])[0][0] == 0
        worker.turn()
    assert nothing_came(follower.wire)
    now = time.monotonic_ns() // 1_000_000
    assert worker.room.expire() <= now + 1_000, "it looks again soon"
    quota_probe.clear(SIDE)

    def answered() -> bool:
        worker.room.expire()
        worker.loop.flush_dirty()
        return not nothing_came(follower.wire)

    until(answered, "the fetch is answered")
    assert counts(follower.receive()[1])[0] == 21


def test_a_throttled_partition_that_gets_records_is_looked_at_when_the_rate_has_fallen(worker: HandWorker) -> None:
    slots, topic = led(worker, True, records=0)
    overrun()
    follower = Follower(worker)
    follower.send((topic, 0, 0), wait_ms=60_000)
    now = time.monotonic_ns() // 1_000_000
    assert worker.room.expire() > now + 30_000, "nothing is left out yet"
    assert slot_probe.append(slots[0], [batch(b"x")])[0][0] == 0
    worker.turn()
    assert nothing_came(follower.wire)
    assert worker.room.expire() <= now + 2_000


def test_records_that_are_not_throttled_end_the_wait(worker: HandWorker) -> None:
    slots, topic = led(worker, True, False, records=0)
    assert slot_probe.append(slots[0], [batch(b"x")])[0][0] == 0
    overrun()
    follower = Follower(worker)
    follower.send((topic, 0, 0), (topic, 1, 0), wait_ms=60_000)
    assert nothing_came(follower.wire)
    assert slot_probe.append(slots[1], [batch(b"x")])[0][0] == 0
    worker.turn()
    assert counts(follower.receive()[1]) == {0: 0, 1: 1}


def test_the_deadline_ends_the_wait(worker: HandWorker) -> None:
    _, topic = led(worker, True)
    overrun()
    follower = Follower(worker)
    follower.send((topic, 0, 0), wait_ms=30)

    def answered() -> bool:
        worker.room.expire()
        worker.loop.flush_dirty()
        return not nothing_came(follower.wire)

    until(answered, "the fetch is answered")
    assert counts(follower.receive()[1]) == {0: 0}


def test_a_stop_and_a_half_closed_connection_end_the_wait(worker: HandWorker) -> None:
    _, topic = led(worker, True)
    overrun()
    first, second = Follower(worker), Follower(worker)
    for follower in (first, second):
        follower.send((topic, 0, 0), wait_ms=60_000, session=False)
        assert nothing_came(follower.wire)
    first.wire.socket.shutdown(socket.SHUT_WR)
    worker.turn()
    assert counts(first.receive()[1]) == {0: 0}
    worker.room.end()
    worker.loop.flush_dirty()
    assert counts(second.receive()[1]) == {0: 0}


def test_in_sync_followers_and_consumers_are_not_throttled(worker: HandWorker) -> None:
    _, topic = led(worker, True, in_sync=True)
    overrun()
    assert counts(Follower(worker).ask((topic, 0, 0))[1]) == {0: 3}
    assert counts(Follower(worker).ask((topic, 0, 3))[1]) == {0: 0}
    assert counts(Follower(worker, version=12, broker_id=CONSUMER).ask(("t", 0, 0))[1]) == {0: 3}
    assert total_bytes(SIDE) == OVERRUN


def test_without_a_limit_nothing_is_left_out_or_counted(worker: HandWorker) -> None:
    _, topic = led(worker, True)
    overrun()
    set_limit(SIDE, None)
    assert counts(Follower(worker).ask((topic, 0, 0))[1]) == {0: 3}
    assert total_bytes(SIDE) == OVERRUN


def test_a_response_contains_what_there_is_room_for(worker: HandWorker) -> None:
    _, topic = led(worker, True, False, records=40)
    _, parts = Follower(worker).ask((topic, 0, 0), (topic, 1, 0))
    assert counts(parts) == {0: RATE // len(batch(bytes(1000))), 1: 40}, (
        "as much as one window permits, in whole batches"
    )


@pytest.mark.parametrize("others_first", [True, False])
def test_a_batch_that_is_larger_than_the_room_is_sent_whole_and_then_others_wait(
    worker: HandWorker, others_first: bool
) -> None:
    _, topic = led(worker, True, True, False, records=2, size=2 * RATE)
    places = [(topic, 2, 0), (topic, 0, 0), (topic, 1, 0)] if others_first else [(topic, 0, 0), (topic, 1, 0)]
    _, parts = Follower(worker).ask(*places)
    found = counts(parts)
    assert found[0] + found[1] == 1
    assert total_bytes(SIDE) >= 2 * RATE
    assert Follower(worker).ask((topic, 0, 0))[1][0].records == b""


def test_throttled_partitions_take_turns(worker: HandWorker) -> None:
    _, topic = led(worker, True, True, True, records=4, size=2 * RATE)
    follower = Follower(worker)
    follower.ask(*[(topic, number, 0) for number in range(3)], max_bytes=0)
    at = dict.fromkeys(range(3), 0)
    served = []
    for _ in range(6):
        quota_probe.clear(SIDE)
        _, parts = follower.ask(*[(topic, number, at[number]) for number in served[-1:]])
        (number,) = [number for number, count in counts(parts).items() if count]
        served.append(number)
        at[number] += 1
    assert sorted(served) == [0, 0, 1, 1, 2, 2]
