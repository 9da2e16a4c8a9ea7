"""The words about pauses of a whole broker [R 12]: what supervisor and coordinator store, and what a worker concludes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek._ext.shm import pauses
from odradek._ext.testing import replica_probe
from tests.shm.one_broker import OneBroker

TIMEOUT_MS = 1_000_000
"""A session timeout in comparison with which a test takes no time."""
LIMIT_MS = TIMEOUT_MS // 2


def supervisor_silent_since(beat_ms: int, now_ms: int) -> None:
    """The last beat of the supervisor is old, and that of the coordinator is new."""
    pauses.begin(TIMEOUT_MS, beat_ms)
    replica_probe.keep_session(now_ms)


@pytest.fixture
def now_ms(tmp_path: Path) -> Iterator[int]:
    """The time when the broker began to look for pauses. Its coordinator keeps the session unless a test says otherwise."""
    with OneBroker(tmp_path):
        now_ms = pauses.clock_ms()
        pauses.begin(TIMEOUT_MS, now_ms)
        yield now_ms


def test_without_a_supervisor_that_looks_for_pauses_there_is_none(tmp_path: Path) -> None:
    with OneBroker(tmp_path):
        assert not replica_probe.may_be_deposed()


def test_a_broker_that_runs_is_in_no_doubt(now_ms: int) -> None:
    assert not replica_probe.may_be_deposed() and not pauses.unconfirmed()
    for step in range(1, 5):
        assert pauses.beat(now_ms + step * LIMIT_MS) == 0, "exactly the limit is no pause"
    assert not replica_probe.may_be_deposed() and not pauses.unconfirmed()


def test_a_worker_that_runs_before_the_supervisor_finds_the_pause(now_ms: int) -> None:
    supervisor_silent_since(now_ms - LIMIT_MS - 1, now_ms)
    assert replica_probe.may_be_deposed()
    assert not pauses.unconfirmed(), "nobody has noted it yet"


def test_a_pause_ends_with_a_round_trip_that_began_after_it(now_ms: int) -> None:
    supervisor_silent_since(now_ms - LIMIT_MS - 1, now_ms)
    assert pauses.beat(now_ms) == LIMIT_MS + 1
    assert replica_probe.may_be_deposed() and pauses.unconfirmed(), "the beat alone confirms nothing"
    pauses.confirm(now_ms - 1)
    assert replica_probe.may_be_deposed() and pauses.unconfirmed(), "the response may be older than the pause"
    pauses.confirm(now_ms)
    assert not replica_probe.may_be_deposed() and not pauses.unconfirmed()
    assert pauses.beat(now_ms + 1) == 0


def test_a_second_pause_needs_another_confirmation(now_ms: int) -> None:
    supervisor_silent_since(now_ms - 2 * LIMIT_MS - 2, now_ms)
    pauses.beat(now_ms - LIMIT_MS - 1)
    pauses.confirm(now_ms - LIMIT_MS)
    assert replica_probe.may_be_deposed(), "the second pause is not noted yet"
    assert pauses.beat(now_ms) == LIMIT_MS + 1
    pauses.confirm(now_ms - LIMIT_MS + 1)
    assert pauses.unconfirmed(), "this round trip began before the second pause ended"
    pauses.confirm(now_ms + 1)
    pauses.confirm(now_ms)
    assert not pauses.unconfirmed(), "a late confirmation of an earlier round trip takes nothing back"


def test_a_coordinator_that_stands_still_or_is_dead_is_a_pause_although_the_supervisor_beats(now_ms: int) -> None:
    pauses.begin(TIMEOUT_MS, now_ms - LIMIT_MS - 1)
    pauses.beat(now_ms)
    pauses.confirm(now_ms)
    assert replica_probe.may_be_deposed(), "nobody keeps the session"
    assert not pauses.unconfirmed(), "nobody has noted it yet"
    assert pauses.session_beat(now_ms + 1) == LIMIT_MS + 2
    assert replica_probe.may_be_deposed() and pauses.unconfirmed(), "the session may have ended meanwhile"
    pauses.confirm(now_ms)
    assert replica_probe.may_be_deposed(), "the response may be older than the pause"
    pauses.confirm(now_ms + 1)
    assert not replica_probe.may_be_deposed() and not pauses.unconfirmed()


def test_a_coordinator_that_keeps_the_session_is_in_no_doubt(now_ms: int) -> None:
    for step in range(1, 5):
        assert pauses.session_beat(now_ms + step * LIMIT_MS) == 0, "exactly the limit is no pause"
    assert not pauses.unconfirmed()


def test_before_anybody_looks_for_pauses_a_coordinator_finds_none(tmp_path: Path) -> None:
    with OneBroker(tmp_path):
        assert pauses.session_beat(pauses.clock_ms()) == 0
        assert not pauses.unconfirmed()


def test_the_granted_session_timeout_decides_what_a_pause_is(now_ms: int) -> None:
    pauses.set_session_timeout(100)
    assert pauses.beat(now_ms + 50) == 0
    assert pauses.beat(now_ms + 101) == 51


@pytest.mark.parametrize(("timeout_ms", "interval_s"), [(18_000, 1.0), (6_000, 0.75), (400, 0.05)])
def test_several_beats_are_in_the_time_that_is_no_pause(now_ms: int, timeout_ms: int, interval_s: float) -> None:
    pauses.set_session_timeout(timeout_ms)
    assert pauses.interval_s() == interval_s
