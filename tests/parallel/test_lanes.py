"""WorkQueues without a broker: turns of partitions, closed lanes, dropped and held records."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.clients.work_queues import Order, Work, WorkQueues, _Lane

A, B = ("t", 0), ("t", 1)
LONG_S = 3600.0


class Room:
    """Queues of two partitions, and a worker that never waits."""

    def __init__(self, order):
        self.queues = WorkQueues(order)
        self.queues.assign([A, B])
        self.hand = self.queues.hand()

    def put(self, place, offset, key=None, size_bytes=10):
        work = Work(place, offset, key, None, size_bytes=size_bytes)
        self.queues.put([work])
        return work

    def take(self):
        assert self.queues.take(self.hand)
        return self.hand.next()

    def finished(self, work, **options):
        (current,) = self.queues.finished([work], **options)
        return current

    def release(self):
        """Make all pending retries due."""
        with self.queues._lock:
            self.queues._release(float("inf"))

    def take_all(self):
        """Take all records that may be started now."""
        taken = []
        while any(buffer.ready for buffer in self.queues._buffers.values()):
            taken.append(self.take())
        return taken


def offsets(works):
    return [work.offset for work in works]


def test_partitions_take_turns_however_many_records_one_of_them_has():
    room = Room(Order.NONE)
    for offset in range(4):
        room.put(A, offset)
    room.put(B, 100)
    assert offsets(room.take_all()) == [0, 100, 1, 2, 3]


def test_order_by_key_lets_other_keys_of_a_hot_partition_pass():
    room = Room(Order.KEY)
    for offset, key in enumerate((b"a", b"a", b"b", None, None)):
        room.put(A, offset, key)
    taken = room.take_all()
    assert offsets(taken) == [0, 2, 3, 4]
    assert room.finished(taken[0])
    assert offsets(room.take_all()) == [1]


def test_a_record_to_be_tried_again_goes_before_its_lane_and_holds_no_worker():
    room = Room(Order.KEY)
    room.put(A, 0, b"a")
    room.put(A, 1, b"a")
    room.put(A, 2, b"b")
    first, other = room.take_all()
    assert room.queues.retry(first, LONG_S)
    room.put(A, 3, b"a")
    assert room.take_all() == []
    assert room.finished(other)
    room.release()
    assert offsets(room.take_all()) == [0]
    assert room.finished(first)
    assert offsets(room.take_all()) == [1]


def test_a_lane_stays_closed_while_its_record_is_in_flight_across_a_reassignment():
    room = Room(Order.KEY)
    room.put(A, 0, b"a")
    (old,) = room.take_all()
    room.queues.hold([A])
    room.queues.revoke([A])
    room.queues.assign([A])
    room.put(A, 0, b"a")
    room.put(A, 1, b"b")
    assert offsets(room.take_all()) == [1]
    assert not room.finished(old)
    assert offsets(room.take_all()) == [0]


def test_a_failed_record_of_a_revoked_partition_is_left_to_its_next_owner():
    room = Room(Order.KEY)
    room.put(A, 0, b"a")
    (work,) = room.take_all()
    assert room.queues.hold([A]) == 0
    assert not room.queues.retry(work, 0.0)
    assert room.finished(work)
    room.queues.revoke([A])
    room.queues.assign([A])
    room.put(A, 0, b"a")
    assert offsets(room.take_all()) == [0]


def test_holding_drops_waiting_records_and_pending_retries():
    room = Room(Order.PARTITION)
    for offset in range(3):
        room.put(A, offset)
    (work,) = room.take_all()
    assert room.queues.retry(work, LONG_S)
    assert room.queues.hold([A]) == 3
    room.release()
    room.put(A, 3)
    assert room.take_all() == []
    assert room.queues.fill(A) == (0, 0) and room.queues.total_bytes == 0


def test_bytes_in_flight_count_also_for_revoked_partitions():
    room = Room(Order.NONE)
    for offset in range(4):
        room.put(A, offset)
    room.put(B, 0, size_bytes=5)
    first, other, *_ = (room.take() for _ in range(2))
    assert (first.place, other.place) == (A, B)
    assert room.queues.retry(other, LONG_S)
    assert (room.queues.fill(A), room.queues.fill(B), room.queues.total_bytes) == ((4, 40), (1, 5), 45)
    assert room.queues.hold([A, B]) == 4
    assert (room.queues.fill(A), room.queues.fill(B), room.queues.total_bytes) == ((1, 10), (0, 0), 10)
    room.queues.revoke([A, B])
    assert room.queues.total_bytes == 10
    room.queues.assign([A])
    room.put(A, 0)
    assert room.queues.total_bytes == 20
    assert not room.finished(first)
    assert (room.queues.fill(A), room.queues.total_bytes) == ((1, 10), 10)
    room.queues.revoke([A])  # not held before
    assert room.queues.total_bytes == 0


def test_a_lane_of_a_million_records_is_dropped():
    lane = _Lane()
    for offset in range(1_000_000):
        lane.append(Work(A, offset, None, None))
    assert lane.popleft().offset == 0 and lane.popleft().offset == 1
    del lane  # not one within the other


def test_a_record_that_stops_the_consumer_keeps_its_lane_closed():
    room = Room(Order.KEY)
    room.put(A, 0, b"a")
    room.put(A, 1, b"a")
    (work,) = room.take_all()
    room.finished(work, open_lane=False)
    assert room.take_all() == []


@pytest.mark.parametrize("order", Order)
@given(data=st.data())
def test_any_schedule_keeps_lanes_in_order_and_loses_nothing(order, data):
    room = Room(order)
    queues = room.queues
    put, done, running, later = defaultdict(int), defaultdict(list), {}, set()

    def finish(work):
        lane = running.pop(work)
        assert room.finished(work)
        done[lane].append(work.offset)

    def take():
        for work in room.take_all():
            lane = (work.place, work.lane)
            assert lane not in running.values()
            assert all((one.place, one.lane) != lane for one in later)
            running[work] = lane

    for _ in range(data.draw(st.integers(0, 50))):
        verb = data.draw(st.sampled_from(("put", "put", "take", "done", "again", "release")))
        if verb == "put":
            place = data.draw(st.sampled_from((A, B)))
            room.put(place, put[place], data.draw(st.sampled_from((None, b"a", b"b"))), 7)
            put[place] += 1
        elif verb == "take":
            take()
        elif verb == "release":
            room.release()
            later.clear()
        elif running:
            work = data.draw(st.sampled_from(sorted(running, key=lambda one: (one.place, one.offset))))
            if verb == "done":
                finish(work)
            else:
                del running[work]
                assert queues.retry(work, LONG_S)
                later.add(work)
        for place in (A, B):
            finished = sum(len(some) for (where, _), some in done.items() if where == place)
            assert queues.fill(place) == (put[place] - finished, 7 * (put[place] - finished))
        assert queues.total_bytes == sum(queues.fill(place)[1] for place in (A, B))
    room.release()
    later.clear()
    take()
    while running:
        for work in list(running):
            finish(work)
        take()
    assert sum(map(len, done.values())) == sum(put.values())
    assert all(some == sorted(some) for some in done.values())
