"""The number of stop requests that the supervisor counts."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.processes.supervisor.event_loop import REPEATED_S, StopSignals


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def signals(clock: Clock, hang_up_by_default: None) -> Iterator[StopSignals]:
    made = StopSignals(clock)
    yield made
    made.close()


def test_a_signal_to_the_process_and_to_its_group_is_one_request(signals: StopSignals) -> None:
    """As `timeout` sends it. A second request would kill the processes that are still stopping."""
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    assert signals.count == 1


def test_the_same_signal_counts_again_after_a_moment(signals: StopSignals, clock: Clock) -> None:
    signal.raise_signal(signal.SIGINT)
    clock.now += REPEATED_S
    signal.raise_signal(signal.SIGINT)
    assert signals.count == 2


def test_another_signal_counts_at_once(signals: StopSignals) -> None:
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    assert signals.count == 2


def test_a_hang_up_signal_without_the_end_of_a_terminal_requests_a_reload(
    clock: Clock, hang_up_by_default: None
) -> None:
    requests: list[int] = []
    signals = StopSignals(clock, lambda: requests.append(1))
    try:
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        assert requests == [], "nothing is done in the signal handler"
        signals.drain()
        signals.drain()
        assert (signals.count, len(requests)) == (0, 1)
    finally:
        signals.close()


PROGRAM = """
import os, select, signal, sys
from odradek.processes.supervisor.event_loop import StopSignals
signals = StopSignals()
os.kill(os.getpid(), signal.SIGHUP)
print(signals.count, flush=True)
select.select([signals], [], [])
signals.drain()
while not signals.count:
    select.select([signals], [], [])
    signals.drain()
open(sys.argv[1], "w").write(str(signals.count))
"""


def test_the_end_of_its_terminal_stops_a_program(tmp_path: Path, hang_up_by_default: None) -> None:
    """Its first SIGHUP comes while the terminal is there."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY);" + PROGRAM]
    with subprocess.Popen(
        [*command, tmp_path / "count"], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as program:  # fmt: skip
        try:
            os.close(theirs)
            assert program.stdout is not None
            assert program.stdout.readline() == "0\n"
            os.close(ours)
            assert program.wait(60) == 0, program.stderr and program.stderr.read()
        finally:
            program.kill()
    assert (tmp_path / "count").read_text() == "1"


def test_what_the_parent_ignores_stays_ignored(clock: Clock) -> None:
    """As `nohup` does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        signals = StopSignals(clock)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        signals.close()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
