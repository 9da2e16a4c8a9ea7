"""Records that a worker has taken and not begun: they keep their order, and do not wait for a worker that is busy."""

import threading
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.clients import work_queues
from odradek.clients.work_queues import Order, Work, WorkQueues, drained
from tests.waiting import until

A, B = ("t", 0), ("t", 1)
LONG_S = 3600.0


class Room:
    """Queues of two partitions with two workers that never wait."""

    def __init__(self, order):
        self.queues = WorkQueues(order)
        self.queues.assign([A, B])
        self.hands = [self.queues.hand() for _ in range(2)]

    def put(self, place, *records):
        self.queues.put([Work(place, offset, key, None, size_bytes=10) for offset, key in records])

    def ready(self):
        return any(buffer.ready for buffer in self.queues._buffers.values())


def offsets(works):
    return [work.offset for work in works]


def test_a_worker_takes_several_records_also_of_one_lane():
    room = Room(Order.KEY)
    room.put(A, *((offset, b"a") for offset in range(20)), (20, b"b"))
    assert room.queues.take(room.hands[0], 64)
    assert offsets(room.hands[0].unbegun) == [*range(work_queues.LONGEST_RUN), 20]
    assert not room.ready(), "the lane is closed"
    assert all(room.queues.finished(drained(room.hands[0].unbegun)))
    assert room.queues.take(room.hands[1], 64)
    assert offsets(room.hands[1].unbegun) == [16, 17, 18, 19]


def test_what_is_given_back_keeps_its_order_and_waits_for_what_was_begun():
    room = Room(Order.KEY)
    first, second = room.hands
    room.put(A, (0, b"a"), (1, b"a"), (2, b"a"), (3, b"b"))
    assert room.queues.take(first, 3)
    begun = first.next()
    room.put(A, (4, b"a"))
    room.queues.give_back(first)
    assert room.queues.take(second, 64)
    assert offsets(second.unbegun) == [3]
    assert room.queues.fill(A) == (5, 50)
    assert room.queues.finished([begun]) == [True]
    assert room.queues.take(first, 64)
    assert offsets(first.unbegun) == [1, 2, 4]


def test_a_record_that_waits_for_a_retry_keeps_its_lane_closed_although_earlier_ones_finish_later():
    room = Room(Order.KEY)
    hand, other = room.hands
    room.put(A, (0, b"a"), (1, b"a"), (2, b"a"))
    assert room.queues.take(hand, 64)
    earlier, failed = hand.next(), hand.next()
    room.queues.give_back(hand)
    assert room.queues.retry(failed, LONG_S)
    assert room.queues.finished([earlier]) == [True]
    assert not room.ready()
    with room.queues._lock:
        room.queues._release(float("inf"))
    assert room.queues.take(other, 64)
    assert offsets(other.unbegun) == [1, 2]


def test_holding_takes_back_what_was_not_begun_and_counts_it():
    room = Room(Order.NONE)
    hand = room.hands[0]
    room.put(A, *((offset, None) for offset in range(5)))
    room.put(B, (0, None))
    assert room.queues.take(hand, 64)
    begun = hand.next()
    assert room.queues.hold([A]) == 4
    assert room.queues.fill(A) == (1, 10)
    assert room.queues.take(hand, 64)
    assert [work.place for work in hand.unbegun] == [B]
    room.queues.revoke([A])
    assert room.queues.finished([begun]) == [False]
    assert room.queues.total_bytes == 10


def test_a_waiting_worker_takes_what_a_busy_one_does_not_begin():
    queues = WorkQueues(Order.NONE)
    queues.assign([A])
    busy, waiting = queues.hand(), queues.hand()
    took = threading.Event()

    def wait():
        assert queues.take(waiting, 64)
        took.set()

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: queues._watched, "the worker waits")
    queues.put([Work(A, offset, None, None) for offset in range(10)])
    assert took.wait(60)
    thread.join()
    assert len(waiting.unbegun) == 10
    other = threading.Thread(target=lambda: queues.take(busy, 64))
    other.start()
    other.join(60)
    assert not other.is_alive()
    assert offsets([*busy.unbegun]) == list(range(10)) and not waiting.unbegun


@pytest.mark.parametrize("order", Order)
@given(data=st.data())
def test_any_schedule_of_two_workers_keeps_lanes_in_order_and_loses_nothing(order, data):
    room = Room(order)
    queues, put, ended = room.queues, defaultdict(int), defaultdict(list)
    begun = [None, None]
    later = set()

    def report(works, place_of=lambda work: (work.place, work.lane)):
        assert all(queues.finished(works))
        for work in works:
            ended[place_of(work)].append(work.offset)

    def step(number, verb):
        hand = room.hands[number]
        if verb == "take":
            if begun[number] is None and not hand.unbegun and room.ready():
                assert queues.take(hand, data.draw(st.integers(1, 5)))
        elif verb == "begin":
            if begun[number] is None:
                begun[number] = hand.next()
                assert begun[number] not in later or later.discard(begun[number]) is None
        elif verb == "done":
            if begun[number] is not None:
                hand.done.append(begun[number])
                begun[number] = None
        elif verb == "report":
            report(drained(hand.done))
        elif verb == "back":
            queues.give_back(hand)
        elif begun[number] is not None:  # fail
            queues.give_back(hand)
            report(drained(hand.done))
            assert queues.retry(begun[number], LONG_S)
            later.add(begun[number])
            begun[number] = None

    def release():
        with queues._lock:
            queues._release(float("inf"))

    def check():
        for place in (A, B):
            finished = sum(len(some) for (where, _), some in ended.items() if where == place)
            assert queues.fill(place) == (put[place] - finished, 10 * (put[place] - finished))
        assert queues.total_bytes == queues.fill(A)[1] + queues.fill(B)[1]
        held = [work for hand in room.hands for work in (*hand.unbegun, *hand.done)] + [it for it in begun if it]
        assert len(set(held)) == len(held) == sum(queues._busy.values())

    verbs = ("put", "put", "take", "take", "begin", "done", "report", "back", "fail", "release")
    for _ in range(data.draw(st.integers(0, 40))):
        verb = data.draw(st.sampled_from(verbs))
        if verb == "put":
            place = data.draw(st.sampled_from((A, B)))
            keys = data.draw(st.lists(st.sampled_from((None, b"a", b"b")), min_size=1, max_size=4))
            room.put(place, *((put[place] + index, key) for index, key in enumerate(keys)))
            put[place] += len(keys)
        elif verb == "release":
            release()
        else:
            step(data.draw(st.integers(0, 1)), verb)
        check()
    release()
    for _ in range(3 * (sum(put.values()) + 1)):
        for number in (0, 1):
            for verb in ("take", "begin", "done", "report"):
                step(number, verb)
    assert sum(map(len, ended.values())) == sum(put.values())
    for some in ended.values():
        assert some == sorted(some)
