"""Lag in seconds from samples of where logs end."""

import pytest

from odradek._ext.partition import slots
from odradek._ext.testing import slot_probe
from odradek.metrics.lag import MOST_POINTS, EndHistory
from tests.shm.one_broker import OneBroker, batch


@pytest.fixture
def broker(tmp_path):
    with OneBroker(tmp_path) as one:
        yield one


def append(slot, records):
    slot_probe.append(slot, [batch(records)])


def seconds(history, slot, offset, now_ms):
    return history.lag_seconds(slot, slot_probe.incarnation_of(slot), offset, now_ms)


def test_the_lag_is_the_age_of_the_moment_when_the_log_went_past_the_offset(broker):
    slot, history = broker.create(), EndHistory()
    history.sample(0)
    append(slot, 10)
    history.sample(10_000)
    append(slot, 10)
    history.sample(20_000)
    # Offset 4 came half way between the first two samples, 19 just before the last.
    assert seconds(history, slot, 4, 20_000) == 15.0
    assert seconds(history, slot, 9, 20_000) == 10.0
    assert seconds(history, slot, 19, 25_000) == 5.0
    assert seconds(history, slot, 20, 25_000) == 0.0


def test_a_pause_of_the_writers_is_not_interpolated(broker):
    slot, history = broker.create(), EndHistory()
    for now_ms in range(0, 50_000, 1000):
        history.sample(now_ms)
    append(slot, 10)
    history.sample(50_000)
    assert seconds(history, slot, 0, 60_000) == pytest.approx(10.9)
    assert seconds(history, slot, 9, 60_000) == 10.0


def test_the_lag_of_older_records_is_at_least_the_time_since_the_first_sample(broker):
    slot = broker.create()
    append(slot, 10)
    history = EndHistory()
    history.sample(5_000)
    history.sample(9_000)
    assert seconds(history, slot, 3, 12_000) == 7.0


def test_partitions_that_are_made_and_stay_empty_take_no_memory(broker):
    history = EndHistory()
    history.sample(0)
    slot = broker.create()
    for now_ms in (1000, 2000, 8000):
        history.sample(now_ms)
    assert history._of_slot == {}
    append(slot, 10)
    history.sample(10_000)
    assert seconds(history, slot, 4, 10_000) == 1.0
    assert seconds(history, slot, 9, 10_000) == 0.0


def test_a_partition_made_between_two_looks_began_empty(broker):
    history = EndHistory()
    history.sample(0)
    slot = broker.create()
    append(slot, 10)
    history.sample(10_000)
    assert seconds(history, slot, 4, 10_000) == 5.0


def test_an_end_that_was_truncated_passes_an_offset_again(broker):
    slot, history = broker.create(), EndHistory()
    append(slot, 5)
    append(slot, 5)
    history.sample(0)
    broker.obey(slot, 1)
    slots.truncate(slot, 5, leader_epoch=1)
    broker.lead(slot, 2)
    history.sample(10_000)
    assert seconds(history, slot, 5, 10_000) == 0.0
    append(slot, 5)
    history.sample(20_000)
    assert 0 < seconds(history, slot, 7, 20_000) <= 10.0


def test_the_next_partition_in_a_slot_has_a_new_history(broker):
    slot, history = broker.create(), EndHistory()
    append(slot, 10)
    history.sample(0)
    assert history.lag_seconds(slot, slot_probe.incarnation_of(slot) + 1, 0, 10_000) == 0.0
    broker.table.delete(slot)
    history.sample(10_000)
    assert seconds(history, slot, 0, 10_000) == 0.0


def test_old_points_thin_and_the_error_stays_small_against_the_age(broker):
    slot, history = broker.create(), EndHistory()
    steps = 40 * MOST_POINTS
    for step in range(steps):
        history.sample(step * 1000)
        append(slot, 1)
    now_ms = steps * 1000
    history.sample(now_ms)
    assert len(history._of_slot[slot].at_ms) <= MOST_POINTS
    for offset in range(0, steps, 37):
        true = (now_ms - (offset + 1) * 1000) / 1000
        assert seconds(history, slot, offset, now_ms) == pytest.approx(true, rel=0.01, abs=1.5)
    # With a pause in the history, too, an age is wrong by no more than the distance of the points around it.
    for step in range(5 * MOST_POINTS):
        history.sample(now_ms + 1_000_000 + step * 1000)
        append(slot, 1)
    assert seconds(history, slot, 0, now_ms + 1_000_000) == pytest.approx((now_ms + 1_000_000) / 1000, rel=0.05)
