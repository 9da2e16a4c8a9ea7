"""Waits that grow: the rule, those who count failures for it, and the numbers of each user."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import odradek
from odradek import backoff
from odradek.backoff import Backoff, RecentFailures, SetupTimeout, Waits
from odradek.clients import cluster, parallel_consumer
from odradek.jobs.usage_report import prometheus_http
from odradek.mirror import commits, flow_worker, lane, membership, switch
from odradek.mirror.bookkeeping import _Job
from odradek.net import forward, peers
from odradek.processes.supervisor.children import RestartDelay
from odradek.replication import follow
from odradek.security.sasl.token_settings import Renewal
from odradek.transactions.environment import Settings
from odradek.transactions.markers import Completions

PACKAGE = Path(odradek.__file__).parent


class Clock:
    """A clock that only sleeps move."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(backoff, "time", made)
    return made


def test_waits_become_longer_and_the_last_one_ends_at_the_deadline(clock: Clock) -> None:
    waits = Waits(1, 4, 14)
    while waits.wait():
        pass
    assert clock.slept == [1, 2, 4, 4, 3]
    assert waits.left_s == 0


def test_without_a_deadline_the_waits_do_not_end(clock: Clock) -> None:
    waits = Waits(0.5, 2)
    assert all(waits.wait() for _ in range(5))
    assert clock.slept == [0.5, 1, 2, 2, 2]


def test_after_the_deadline_nothing_is_waited_for(clock: Clock) -> None:
    waits = Waits(1, 1, 0)
    assert not waits.wait()
    assert clock.slept == []


def test_the_first_wait_is_doubled_up_to_the_longest() -> None:
    rule = Backoff(20, 100)
    assert [rule.after(failures) for failures in range(7)] == [0, 20, 40, 80, 100, 100, 100]
    assert rule.after(10**9) == 100
    assert Backoff(0.1, 10.0).after(10**9) == 10.0
    assert [Backoff(20, 5).after(failures) for failures in (1, 2)] == [5, 5]
    assert [Backoff(0, 0).after(failures) for failures in (1, 2)] == [0, 0]


def test_the_shortest_wait_is_above_the_others() -> None:
    assert [Backoff(0, 50, shortest=10).after(failures) for failures in (1, 9)] == [10, 10]
    assert [Backoff(120, 60, shortest=60).after(failures) for failures in (1, 2)] == [60, 60]


def test_the_jitter_shortens_each_wait_by_chance() -> None:
    waits = [Backoff(8, 100, jitter=0.5).after(2) for _ in range(1000)]
    assert min(waits) >= 8 and max(waits) <= 16
    assert min(waits) < 9 and max(waits) > 15, "the waits are spread over the whole range"


def test_failures_are_forgotten_after_a_quiet_time_as_long_as_the_longest_wait() -> None:
    failures = RecentFailures(20, 100)
    now_ms, waits = 1_000_000, []
    for _ in range(5):
        waits.append(failures.next(now_ms))
        now_ms += waits[-1]
    assert waits == [20, 40, 80, 100, 100]
    assert failures.next(now_ms + 100) == 100
    assert failures.next(now_ms + 100 + 100 + 101) == 20
    limited = RecentFailures(20, 5)
    assert [limited.next(now_ms) for now_ms in (100, 105, 110)] == [5, 5, 5]
    assert [RecentFailures(20, 0).next(now_ms) for now_ms in (100, 100)] == [0, 0]


def test_the_time_for_a_setup_is_doubled_until_one_succeeds() -> None:
    timeout = SetupTimeout(10_000, 30_000)
    seconds = []
    for _ in range(4):
        seconds.append(timeout.seconds)
        timeout.timed_out()
    assert seconds == [10, 20, 30, 30]
    timeout.succeeded()
    assert timeout.seconds == 10
    assert SetupTimeout(0, 0).seconds == 0.001
    small = SetupTimeout(5000, 1000)
    small.timed_out()
    assert small.seconds == 5, "the first time is a lower bound of the limit"


def waits_of_markers(failures: int) -> float:
    markers: Any = SimpleNamespace(_settings=Settings())
    completion: Any = SimpleNamespace(attempt=failures - 1)
    return Completions._backoff_ms(markers, completion)


def waits_of_bookkeeping(failures: int) -> float:
    job = _Job("job", 5.0, lambda _: None, SimpleNamespace())  # type: ignore[arg-type]
    job.failures = failures
    return job.wait_s


def waits_after_short_lives(failures: int) -> float:
    delay = RestartDelay()
    return [delay.after(0.5) for _ in range(failures + 1)][-1]


def waits_of_loop(first: float, longest: float) -> Callable[[int], float]:
    return Backoff(first, longest).after


def waits_of_failures(first: int, longest: int) -> Callable[[int], float]:
    def after(failures: int) -> float:
        recent = RecentFailures(first, longest)
        return [recent.next(1) for _ in range(failures)][-1]

    return after


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (waits_of_markers, [20, 40, 80, 160, 320, 640, 1000, 1000]),
        (waits_of_bookkeeping, [10, 20, 40, 60, 60, 60, 60, 60]),
        (waits_after_short_lives, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10]),
        (lane.RETRIES_S.after, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]),
        (membership.RETRIES_S.after, [0.1, 0.2, 0.4, 0.8, 1.6, 2, 2]),
        (flow_worker.RETRIES_S.after, [1, 2, 4, 8, 16, 30, 30]),
        (forward.RETRIES_S.after, [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1]),
        (Renewal().retry_s, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10]),
        (prometheus_http._BACKOFF.after, [0.5, 1, 2, 4]),
        (waits_of_failures(peers.FIRST_RETRY_MS, peers.LONGEST_RETRY_MS), [20, 40, 80, 160, 320, 640, 1280, 2000]),
        (waits_of_failures(follow.FIRST_BACKOFF_MS, 1000), [20, 40, 80, 160, 320, 640, 1000, 1000]),
        (waits_of_loop(cluster.FIRST_PAUSE_S, cluster.LONGEST_PAUSE_S), [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]),
        (waits_of_loop(switch.FIRST_PAUSE_S, switch.LONGEST_PAUSE_S), [0.05, 0.1, 0.2, 0.4, 0.8, 1, 1]),
        (waits_of_loop(commits.FIRST_PAUSE_S, commits.LONGEST_PAUSE_S), [0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.1]),
        (waits_of_loop(parallel_consumer.FIRST_BACKOFF_S, 10.0), [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10]),
    ],
)  # fmt: skip
def test_each_user_waits_for_these_times(user: Callable[[int], float], expected: list[float]) -> None:
    assert [user(failures) for failures in range(1, len(expected) + 1)] == expected


def test_no_other_file_computes_growing_waits() -> None:
    """`epochs.py` raises a leader epoch by more with each attempt, which is no wait."""
    growth = re.compile(
        r"\*\* ?min\(|<< min\(|= min\((self\.)?\w+ \* 2\b|min\(\w+ \* (self\._)?\w*(next|retry|wait|pause|delay)"
    )
    found = [path.name for path in PACKAGE.rglob("*.py") if growth.search(path.read_text())]
    assert sorted(found) == ["backoff.py", "epochs.py"]
