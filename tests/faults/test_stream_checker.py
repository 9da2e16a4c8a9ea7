"""The checker of chaos runs finds each kind of error, and none in a correct run."""

import random

from tests.faults.chaos.resources import SMALLEST_SAMPLE, Sample, growth
from tests.faults.chaos.stream_checker import StreamChecker


def test_sound_records_in_any_order_of_acknowledgement_and_reading():
    rng = random.Random(7)
    checker = StreamChecker(1)
    events = [("ack", n) for n in range(200)]
    rng.shuffle(events)
    reads = [("read", n) for n in range(200)]
    while events or reads:
        chosen = events if events and (not reads or rng.random() < 0.5) else reads
        kind, number = chosen.pop(0)
        if kind == "ack":
            checker.acknowledge(("p", number), 0, number)
        else:
            checker.read(0, number, ("p", number))
    assert checker.faults == []
    assert checker.unread() == checker.unacknowledged() == 0
    assert checker.position(0) == 200


def test_a_lost_record_stays_unread():
    checker = StreamChecker(1)
    checker.acknowledge(("p", 0), 0, 0)
    checker.acknowledge(("p", 1), 0, 1)
    checker.read(0, 0, ("p", 0))
    assert checker.unread() == 1


def test_an_acknowledged_offset_that_holds_another_record_is_a_fault():
    for read_first in (True, False):
        checker = StreamChecker(1)
        steps = [lambda c=checker: c.read(0, 0, ("p", 1)), lambda c=checker: c.acknowledge(("p", 0), 0, 0)]
        for step in steps if read_first else reversed(steps):
            step()
        assert len(checker.faults) == 1


def test_two_records_acknowledged_at_one_offset_are_a_fault():
    checker = StreamChecker(1)
    checker.acknowledge(("p", 0), 0, 0)
    checker.acknowledge(("q", 0), 0, 0)
    assert len(checker.faults) == 1


def test_a_record_that_comes_twice_or_out_of_order_is_a_fault():
    checker = StreamChecker(1)
    for offset, number in enumerate([0, 1, 1, 0]):
        checker.read(0, offset, ("p", number))
    assert len(checker.faults) == 2


def test_a_skipped_offset_is_a_fault():
    checker = StreamChecker(1)
    checker.read(0, 0, ("p", 0))
    checker.read(0, 2, ("p", 1))
    assert len(checker.faults) == 1


def test_growth_is_found_and_noise_is_not():
    flat = [Sample(300 + n % 7, 0, 80 << 20, 100 << 20, 400, 6) for n in range(5 * SMALLEST_SAMPLE)]
    assert growth(flat) == []
    leaking = [Sample(300 + 10 * n, 0, 80 << 20, 100 << 20, 400, 6) for n in range(5 * SMALLEST_SAMPLE)]
    assert [line.split()[0] for line in growth(leaking)] == ["descriptors"]
