"""The rates of throttled replication: what may be sent when, with a clock of the test."""

import os
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from odradek._ext.shm.replication_quota import QuotaSide, byte_rate, set_limit, set_windows, total_bytes
from odradek._ext.testing import quota_probe
from tests.children import fork, kill_child
from tests.shm.one_broker import OneBroker

LEADER, FOLLOWER = QuotaSide.QUOTA_LEADER, QuotaSide.QUOTA_FOLLOWER
RATE = 1_000_000
START_MS = 123_456_789
WINDOWS = 11


@pytest.fixture
def quotas(tmp_path: Path) -> Iterator[OneBroker]:
    with OneBroker(tmp_path) as broker:
        set_windows(WINDOWS, 1)
        set_limit(LEADER, RATE, now_ms=0)
        set_limit(FOLLOWER, RATE, now_ms=0)
        yield broker


def send(now_ms: int, bytes_: int) -> None:
    quota_probe.record(LEADER, bytes_, now_ms)


def sent_in(seconds: int, step_ms: int, batch_bytes: int, start_ms: int = START_MS, senders: int = 1) -> list[int]:
    """What senders with endless records send in each ms, if they look every `step_ms`. They look at the same time, and then
    send as much as there was room for, in whole batches, as the leader does."""
    sent = []
    for now_ms in range(start_ms, start_ms + seconds * 1000):
        total = 0
        if now_ms % step_ms == 0:
            for room in [quota_probe.room(LEADER, now_ms) for _ in range(senders)]:
                bytes_ = max(room // batch_bytes, 1) * batch_bytes if room else 0
                send(now_ms, bytes_)
                total += bytes_
        sent.append(total)
    return sent


def test_an_idle_broker_may_send_what_one_window_permits(quotas: OneBroker) -> None:
    assert quota_probe.room(LEADER, START_MS) == RATE
    assert quota_probe.room(LEADER, START_MS + 3_600_000) == RATE, "idle time is not saved"
    assert byte_rate(LEADER, START_MS) == 0


def test_nothing_is_sent_after_an_overrun_until_its_time_has_passed(quotas: OneBroker) -> None:
    send(START_MS, 5 * RATE)
    for second in range(1, 5):
        assert quota_probe.room(LEADER, START_MS + second * 1000) == 0
        assert byte_rate(LEADER, START_MS + second * 1000) == pytest.approx(5 * RATE / second)
    assert quota_probe.room(LEADER, START_MS + 5_099) == 0, "at least a tenth of a second's bytes at a time"
    assert quota_probe.room(LEADER, START_MS + 5_200) == RATE // 5
    send(START_MS + 5_200, RATE // 5)
    assert quota_probe.room(LEADER, START_MS + 5_299) == 0
    assert quota_probe.room(LEADER, START_MS + 5_301) > 0


def test_the_wait_ends_when_there_is_room(quotas: OneBroker) -> None:
    send(START_MS, RATE + 300_000)
    now = START_MS
    for _ in range(10):
        assert quota_probe.room(LEADER, now) == 0
        wait = quota_probe.wait_ms(LEADER, now)
        assert 10 <= wait <= 1000
        now += wait
        if quota_probe.room(LEADER, now):
            break
    assert START_MS + 1_390 <= now <= START_MS + 1_420


@pytest.mark.parametrize("step_ms", [1, 7, 50, 333])
@pytest.mark.parametrize("batch_bytes", [100, 16_000, 100_000, 500_000])
def test_the_rate_is_the_limit_in_the_long_run(quotas: OneBroker, step_ms: int, batch_bytes: int) -> None:
    sent = sent_in(60, step_ms, batch_bytes)
    assert sum(sent) / 60 == pytest.approx(RATE, rel=0.1)
    assert total_bytes(LEADER) == sum(sent)
    for first in range(0, 60_000 - WINDOWS * 1000, 250):
        span = sum(sent[first : first + WINDOWS * 1000])
        assert span <= 1.1 * RATE * WINDOWS + batch_bytes


@pytest.mark.parametrize(("senders", "batch_bytes"), [(2, 500_000), (8, 100), (8, 500_000), (32, 100), (32, 16_000)])
def test_processes_that_look_at_the_same_time_share_the_room(quotas: OneBroker, senders: int, batch_bytes: int) -> None:
    set_limit(LEADER, RATE, senders, now_ms=START_MS)
    sent = sent_in(60, 10, batch_bytes, senders=senders)
    assert sum(sent) <= 1.1 * RATE * 60 + senders * batch_bytes
    assert sum(sent) >= 0.9 * RATE * 60


def test_one_of_many_that_share_can_use_all_of_the_rate(quotas: OneBroker) -> None:
    set_limit(LEADER, RATE, 32, now_ms=START_MS)
    sent = sent_in(60, 10, 1_000)
    assert sum(sent) / 60 == pytest.approx(RATE, rel=0.1)


def test_an_interval_without_records_is_not_made_up_for(quotas: OneBroker) -> None:
    sent_in(20, 10, 16_000)
    sent = sent_in(20, 10, 16_000, start_ms=START_MS + 27_500)
    for seconds in (1, 2, 5, 20):
        assert sum(sent[: seconds * 1000]) <= (seconds + 1.5) * RATE + 16_000
    assert sum(sent) >= 0.9 * RATE * 20


def test_windows_are_forgotten_after_their_time(quotas: OneBroker) -> None:
    send(START_MS, 100 * RATE)
    assert quota_probe.room(LEADER, START_MS + 10_000) == 0
    assert quota_probe.room(LEADER, START_MS + 12_000) == RATE
    assert total_bytes(LEADER) == 100 * RATE


def test_a_changed_limit_is_used_at_once(quotas: OneBroker) -> None:
    sent_in(20, 10, 16_000)
    now = START_MS + 22_000
    set_limit(LEADER, 10 * RATE, now_ms=now)
    assert quota_probe.room(LEADER, now) == 10 * RATE
    send(now, 10 * RATE)
    assert quota_probe.room(LEADER, now + 1000) == 0
    set_limit(LEADER, 10 * RATE, now_ms=now + 1000)
    assert quota_probe.room(LEADER, now + 1000) == 0, "the limit is the same"
    set_limit(LEADER, 2**63 - 2, now_ms=now + 1000)
    assert quota_probe.room(LEADER, now + 1000) > 2**39
    send(now + 1000, 1)
    set_limit(LEADER, 0, now_ms=now + 1000)
    assert quota_probe.room(LEADER, now + 1000) == 0
    assert quota_probe.wait_ms(LEADER, now + 1000) == 1000


@pytest.mark.parametrize("former", [RATE // 50, RATE // 2, 3 * RATE])
def test_a_changed_limit_makes_up_for_nothing(quotas: OneBroker, former: int) -> None:
    set_limit(LEADER, former, now_ms=START_MS)
    sent_in(20, 10, 1_000)
    changed_ms = START_MS + 20_000
    set_limit(LEADER, RATE, now_ms=changed_ms)
    sent = sent_in(20, 10, 1_000, start_ms=changed_ms)
    for seconds in (1, 2, 5, 10):
        assert sum(sent[: seconds * 1000]) <= seconds * RATE + 1_000
    assert sum(sent) >= 0.9 * RATE * 20 - 3 * RATE, "the last bytes under a larger limit count, too"


def test_with_a_limit_of_0_one_batch_is_sent_in_the_time_of_all_windows(quotas: OneBroker) -> None:
    set_limit(LEADER, 0, now_ms=START_MS)
    assert quota_probe.room(LEADER, START_MS) == 1
    send(START_MS, 1000)
    assert quota_probe.room(LEADER, START_MS + 10_000) == 0
    assert quota_probe.room(LEADER, START_MS + 12_000) == 1


def test_leader_and_follower_are_separate(quotas: OneBroker) -> None:
    send(START_MS, 5 * RATE)
    assert quota_probe.room(FOLLOWER, START_MS) == RATE
    assert (total_bytes(LEADER), total_bytes(FOLLOWER)) == (5 * RATE, 0)
    with pytest.raises(ValueError, match="5 is no quota"):
        set_limit(5, 1)


@pytest.mark.parametrize(
    ("windows", "seconds"), [(1, 1), (2, 30), (60, 1), (61, 1), (100_000, 1), (2**31 - 1, 2**31 - 1)]
)
def test_any_configured_windows_can_be_used(quotas: OneBroker, windows: int, seconds: int) -> None:
    set_windows(windows, seconds)
    room = quota_probe.room(LEADER, START_MS)
    assert room >= RATE * min(seconds, 1000)
    send(START_MS, room)
    assert quota_probe.room(LEADER, START_MS) == 0
    assert byte_rate(LEADER, START_MS) == pytest.approx(RATE, rel=0.1)


def test_the_number_of_a_window_wraps(quotas: OneBroker) -> None:
    wrap_ms = (1 << 24) * 1000
    send(wrap_ms - 500, 600_000)
    send(wrap_ms + 500, 400_000)
    assert byte_rate(LEADER, wrap_ms + 1500) == pytest.approx(500_000)


def test_processes_count_together_and_a_death_leaves_a_usable_quota(quotas: OneBroker) -> None:
    """Each process counts as fast as it can until it is killed."""

    def record(progress: int) -> None:
        while True:
            for _ in range(1000):
                quota_probe.record(LEADER, 1, START_MS)
            os.write(progress, b"x" * 10)  # a byte for each 100 records

    children = []
    for _ in range(4):
        reading, writing = os.pipe()
        children.append((fork(partial(record, writing)), reading))
        os.close(writing)
    counted = 0
    for pid, reading in children:
        counted += 100 * len(os.read(reading, random.randint(1, 1000)))
        kill_child(pid)
        os.close(reading)
    rate = byte_rate(LEADER, START_MS)
    assert counted <= total_bytes(LEADER)
    assert total_bytes(LEADER) - len(children) <= rate <= total_bytes(LEADER), (
        "each death loses at most its last record"
    )
    assert quota_probe.room(LEADER, START_MS + 60_000) == RATE
