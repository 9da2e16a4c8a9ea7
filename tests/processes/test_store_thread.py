"""The store thread: clients take turns, and the kinds of work do."""

import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from odradek.processes.coordinator import Coordinator
from odradek.processes.store_thread import StoreThread, Work, owner_of_request
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
        self._open = threading.Event()
        self.done = []
        thread.submit(self._open.wait)
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


def test_the_owner_is_the_user_or_the_address_of_a_client_without_a_login():
    assert owner_of_request("User:alice", "10.0.0.1:1") == owner_of_request("User:alice", "10.0.0.2:1")
    anonymous = owner_of_request("User:ANONYMOUS", "10.0.0.1:1")
    assert anonymous == owner_of_request("User:ANONYMOUS", "10.0.0.1:2") == owner_of_request("", "10.0.0.1:3")


class Office(Coordinator):
    """Only what executes steps."""

    def __init__(self, thread):
        self._thread = thread


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
