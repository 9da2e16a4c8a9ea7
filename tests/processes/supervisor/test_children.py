"""Restart delays, exit reasons and stuck processes, with a clock that the test controls."""

import os
import signal
from types import SimpleNamespace

import pytest

from odradek._ext.shm.layout import ProcessState
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.processes.supervisor.children import Children, RestartDelay, describe_request, exit_reason
from odradek.processes.supervisor.event_loop import EventLoop
from odradek.processes.table import PROCESSES


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_the_delay_grows_while_lives_are_short_and_not_beyond_ten_seconds():
    delay = RestartDelay()
    delays = [round(delay.after(0.5), 3) for _ in range(10)]
    assert delays == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert [delay.after(10.0), delay.after(9.9), delay.after(11), delay.after(0), delay.after(0)] == [
        0,
        0.1,
        0,
        0.1,
        0.2,
    ]


@pytest.mark.parametrize(
    ("number", "words"), [(9, "ended by SIGKILL"), (11, "ended by SIGSEGV"), (40, "ended by signal 40")]
)
def test_exit_reasons_of_signals(number, words):
    assert exit_reason(number) == (words, number)


def test_exit_reasons_of_exit_codes():
    assert exit_reason(3 << 8) == ("exit code 3", None)


@pytest.mark.parametrize(("client_id", "shown"), [("billing", "client id billing"), ("", "no client id")])
def test_the_request_of_a_process_that_died_is_described_with_its_client(client_id, shown):
    request = {"api_key": 0, "api_version": 9, "correlation_id": 17, "client_id": client_id, "peer": "10.1.2.3:4"}
    text, fields = describe_request(request)
    assert text == (f"; it was executing a request of API key 0 version 9, correlation id 17, of 10.1.2.3:4 ({shown})")
    assert fields == {"client_id": client_id or None, "client_address": "10.1.2.3:4"}


def test_timers_run_once_when_due_and_in_no_turn_before():
    clock, ran = Clock(), []
    loop = EventLoop(clock)
    loop.after(5, "a", lambda: ran.append("a"))
    loop.after(7, "b", lambda: ran.append("b"))
    loop.after(6, "b", lambda: ran.append("b again"))
    loop.after(6, "c", lambda: ran.append("c"))
    loop.after(0, "now", lambda: ran.append("now"))
    loop.cancel("c")
    loop.turn()
    assert ran == ["now"] and loop.has_timer("a")
    clock.now += 20
    loop.turn()
    assert ran == ["now", "a", "b again"] and not loop.has_timer("a")
    loop.close()


@pytest.fixture
def children():
    """The children of the real table, none forked, seen through a process table that the test writes."""
    clock = Clock()
    shm = SharedMemory(64)
    shm.add_process(0)
    watched = Children(shm, [(row, 1) for row in PROCESSES], lambda child: lambda: 0, clock)
    infos = {
        child.index: SimpleNamespace(state=ProcessState.SERVING, progress=0, locked_slot=0, locked_since_ms=0)
        for child in watched.all
    }
    watched.shm = SimpleNamespace(process=infos.__getitem__)
    for child in watched.all:
        child.pid = os.getpid()
    return watched, infos, clock


def names(stuck):
    return [child.name for child, _ in stuck]


def test_a_loop_that_does_not_run_is_detected_after_the_limit(children):
    watched, infos, clock = children
    for _ in range(31):
        for child in watched.all:
            infos[child.index].progress += child.name != "worker-0"
        assert watched.stuck(10, 30) == []
        clock.now += 1
    for child in watched.all:
        infos[child.index].progress += child.name != "worker-0"
    assert names(watched.stuck(10, 30)) == ["worker-0"]


@pytest.mark.parametrize("state", [ProcessState.STARTING, ProcessState.STOPPING])
def test_a_loop_need_not_run_before_or_after_it_serves(children, state):
    watched, infos, clock = children
    for info in infos.values():
        info.state = state
    for _ in range(3):
        assert watched.stuck(10, 30) == []
        clock.now += 31


def test_the_holder_of_one_lock_is_detected_and_the_holder_of_many_locks_is_not(children):
    watched, infos, clock = children
    worker, cleaner = (next(child for child in watched.all if child.name == name) for name in ("worker-0", "cleaner-0"))
    infos[worker.index].locked_slot, infos[worker.index].locked_since_ms = 8, 1
    for second in range(11):
        infos[cleaner.index].locked_slot, infos[cleaner.index].locked_since_ms = 8, second
        assert watched.stuck(10, 30) == []
        clock.now += 1
    infos[cleaner.index].locked_since_ms = 99
    assert [(child.name, reason) for child, reason in watched.stuck(10, 30)] == [
        ("worker-0", "it has held the lock of a partition (slot 7) for more than 10 s")
    ]


def test_time_in_which_the_supervisor_was_suspended_does_not_count(children):
    watched, infos, clock = children
    for info in infos.values():
        info.locked_slot = 3
    watched.stuck(10, 30)
    clock.now += 1000
    watched.reset_progress()
    assert watched.stuck(10, 30) == []
    clock.now += 31
    assert set(names(watched.stuck(10, 30))) == {
        "coordinator-0",
        "cleaner-0",
        "worker-0",
        "replicator-0",
        "reporter-0",
    }


def test_a_process_that_cannot_be_forked_is_reported_and_its_place_is_free(monkeypatch):
    shm = SharedMemory(64)
    shm.add_process(0)
    watched = Children(shm, [(PROCESSES[-1], 1)], lambda child: lambda: 0)
    child = watched.all[0]

    def no_process():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", no_process)
        assert watched.start(child) is False
    assert not child.running and child.last_exit == "not started: Resource temporarily unavailable"
    assert shm.process(child.index).state == ProcessState.DEAD
    assert watched.start(child) is True
    os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED | os.WNOWAIT)
    assert watched.reap(child) is None and child.ended and child.last_exit == "exit code 0"


@pytest.mark.parametrize("outcome", [None, SystemExit(None), SystemExit("a text"), KeyboardInterrupt()])
def test_a_main_that_ends_abnormally_ends_its_process(outcome):
    shm = SharedMemory(64)
    shm.add_process(0)

    def run():
        if outcome is not None:
            raise outcome

    watched = Children(shm, [(PROCESSES[-1], 1)], lambda child: run)
    child = watched.all[0]
    assert watched.start(child)
    os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED | os.WNOWAIT)
    watched.reap(child)
    expected_code = 0 if isinstance(outcome, SystemExit) and outcome.code is None else 1
    assert child.last_exit == f"exit code {expected_code}"


def test_all_are_killed_and_reaped():
    shm = SharedMemory(64)
    shm.add_process(0)
    watched = Children(shm, [(PROCESSES[-1], 3)], lambda child: lambda: signal.pause() or 0)
    assert all(watched.start(child) for child in watched.all)
    pids = [child.pid for child in watched.all]
    watched.kill_all()
    assert not any(child.running for child in watched.all)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(("stopping", "level"), [(True, "INFO"), (False, "ERROR")])
def test_a_child_ended_by_sigterm_is_an_error_unless_the_broker_stops(caplog, stopping, level):
    shm = SharedMemory(64)
    shm.add_process(0)

    def run():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()

    watched = Children(shm, [(PROCESSES[-1], 1)], lambda child: run)
    child = watched.all[0]
    assert watched.start(child)
    os.waitid(os.P_PIDFD, child.pidfd, os.WEXITED | os.WNOWAIT)
    with caplog.at_level("INFO", logger="odradek"):
        assert watched.reap(child, stopping=stopping) == signal.SIGTERM
    assert [record.levelname for record in caplog.records if "ended by SIGTERM" in record.getMessage()] == [level]
