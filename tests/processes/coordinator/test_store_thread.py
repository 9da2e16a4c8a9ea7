"""The store thread: clients take turns, and the kinds of work do."""

import asyncio
import threading
from concurrent.futures import CancelledError
from types import SimpleNamespace

import pytest

from odradek.processes.coordinator.coordinator import Coordinator
from odradek.processes.coordinator.store_thread import StoreThread, Work
from odradek.stepwise import MUST_GO_ON
from tests.waiting import until


@pytest.fixture
def thread():
    thread = StoreThread(lambda: None)
    yield thread
    thread.shutdown()


class Gate:
    """Holds the thread, so that jobs wait for their turns."""

    def __init__(self, thread):
        self._open, begun = threading.Event(), threading.Event()
        self.done = []
        thread.submit(lambda: (begun.set(), self._open.wait()))
        assert begun.wait(60)  # before the other jobs are queued
        self._thread = thread
        self._futures = []

    def job(self, owner, name, kind=Work.REQUESTS):
        future = self._thread.submit_for(owner, kind, lambda: self.done.append(name))
        self._futures.append(future)
        return future

    def open(self):
        self._open.set()
        for future in self._futures:
            if not future.cancelled():
                future.result(60)
        return self.done


def test_clients_take_turns_whatever_the_number_of_their_requests(thread):
    gate = Gate(thread)
    for number in range(100):
        gate.job("many", f"many-{number}")
    gate.job("few", "few-0")
    gate.job("few", "few-1")
    done = gate.open()
    assert done[:4] == ["many-0", "few-0", "many-1", "few-1"]
    assert done[4:] == [f"many-{number}" for number in range(2, 100)]


def test_logins_and_the_work_of_the_broker_wait_for_one_step_of_each_other_kind(thread):
    gate = Gate(thread)
    for number in range(20):
        gate.job(f"client-{number}", f"request-{number}")
    for number in range(3):
        gate.job(f"address-{number}", f"login-{number}", Work.CREDENTIALS)
    thread.submit(gate.done.append, "broker")
    done = gate.open()
    assert done[:7] == ["login-0", "request-0", "broker", "login-1", "request-1", "login-2", "request-2"]


def test_a_job_that_was_cancelled_is_not_executed_and_an_error_reaches_its_waiter(thread):
    gate = Gate(thread)
    cancelled = gate.job("a", "cancelled")
    gate.job("a", "kept")
    failing = thread.submit_for("b", Work.REQUESTS, lambda: 1 // 0)
    assert cancelled.cancel()
    assert gate.open() == ["kept"]
    with pytest.raises(ZeroDivisionError):
        failing.result(60)
    with pytest.raises(CancelledError):
        cancelled.result(0)


def test_a_thread_that_was_shut_down_takes_no_jobs():
    thread = StoreThread(lambda: None)
    done = thread.submit(str, 5)
    thread.shutdown()
    assert done.result(0) == "5"
    with pytest.raises(RuntimeError):
        thread.submit(str, 5)


class Office(Coordinator):
    """Only what executes steps."""

    def __init__(self, thread):
        self._thread = thread
        self._stepping = set()
        self._store_service = SimpleNamespace()


def test_the_store_is_closed_after_all_jobs_also_those_that_are_queued_meanwhile(thread):
    gate = Gate(thread)
    for number in range(50):
        gate.job(f"client-{number % 3}", f"request-{number}")

    def continued(_):
        gate.job("client-0", "its last step")

    gate.job("client-0", "begins a change").add_done_callback(continued)
    closed = thread.submit_last(lambda: gate.done.append("closed"), 60)
    thread.submit(gate.done.append, "broker")
    gate.open()
    closed.result(60)
    assert len(gate.done) == 54 and gate.done[-2:] == ["its last step", "closed"]


def test_jobs_do_not_keep_the_store_open_for_longer_than_the_limit(thread):
    gate = Gate(thread)
    gate.job("client", "request")
    closed = thread.submit_last(lambda: gate.done.append("closed"), 0)
    gate.open()
    closed.result(60)
    assert gate.done == ["closed", "request"]


def test_a_stop_executes_the_queued_steps_and_completes_changes_before_it_closes_the_store(thread):
    """As `Coordinator.run`: the streams of the workers are closed, so the tasks of unanswered requests are cancelled, and then
    the store is closed in the same turn of the loop."""
    done, gate = [], threading.Event()

    def change():
        done.append("the topic is stored")
        yield MUST_GO_ON
        gate.wait(60)
        done.append("its partitions are open")
        yield MUST_GO_ON
        done.append("complete")

    def commit():
        done.append("acknowledged")
        yield

    async def stop():
        office = Office(thread)
        office._store_service.close = lambda: done.append("closed")
        changing = asyncio.create_task(office._in_steps(change()))
        while not done:
            await asyncio.sleep(0)
        others = [asyncio.create_task(office._in_steps(commit())) for _ in range(3)]
        await asyncio.sleep(0)
        changing.cancel()
        gate.set()
        await asyncio.wait_for(office._close_store(), 60)
        assert not office._stepping
        return await asyncio.gather(changing, *others, return_exceptions=True)

    changed, *others = asyncio.run(stop())
    assert isinstance(changed, asyncio.CancelledError) and others == [None] * 3
    assert done[-1] == "closed" and done.count("acknowledged") == 3 and "complete" in done


def test_a_change_of_a_client_that_disconnects_is_completed_and_its_other_work_ends(thread):
    done = []
    gate = threading.Event()

    def steps():
        try:
            done.append("begun")
            yield
            done.append("stored")
            gate.wait(60)
            yield MUST_GO_ON
            done.append("opened")
            yield MUST_GO_ON
            done.append("complete")
            yield
            done.append("the next topic")
        finally:
            done.append(threading.current_thread().name)

    async def ask():
        task = asyncio.create_task(Office(thread)._in_steps(steps()))
        while "stored" not in done:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())
    until(lambda: len(done) == 5, "the generator to be closed")
    assert done[:4] == ["begun", "stored", "opened", "complete"]
    assert done[4].startswith("store")
