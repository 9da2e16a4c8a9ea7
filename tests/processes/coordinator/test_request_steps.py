"""Steps of a request in the coordinator's loop: other work runs between them; without a waiting client they are dropped."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.net.forward_frames import ForwardContext, Status
from odradek.processes import slices
from odradek.processes.coordinator.request_steps import RequestSteps


class Request:
    """A request of a client, which can disconnect."""

    kind, api_key, payload = 0, 0, b""

    def __init__(self, peer: str = "127.0.0.1:9") -> None:
        self.context = ForwardContext(1, 0, peer)
        self.statuses: list[int] = []
        self.gone: Callable[[], None] | None = None

    @property
    def answered(self) -> bool:
        return bool(self.statuses)

    def answer(self, payload: bytes, metadata_version: int = 0, status: int = 0) -> None:
        if not self.statuses:
            self.statuses.append(status)

    def when_gone(self, callback: Callable[[], None]) -> None:
        self.gone = callback


def run(request: Any, steps: Any, until: Callable[[], bool], after_first: Callable[[], None] = lambda: None) -> int:
    """Execute steps. Returns the number of turns of the loop that it took."""

    async def turns() -> int:
        RequestSteps(asyncio.get_running_loop()).begin(request, steps)
        after_first()
        count = 0
        while not until():
            count += 1
            await asyncio.sleep(0)
        return count

    return asyncio.run(asyncio.wait_for(turns(), 30))


@pytest.fixture(autouse=True)
def one_step_a_turn(monkeypatch):
    monkeypatch.setattr(slices, "TURN_S", 0)


def test_short_work_ends_at_once():
    request = Request()

    def steps():
        request.answer(b"")
        return
        yield

    assert run(request, steps(), lambda: request.answered) == 0
    assert request.gone is None


def test_other_work_runs_between_the_steps():
    request = Request()

    def steps():
        for _ in range(5):
            yield
        request.answer(b"")

    assert run(request, steps(), lambda: request.answered) >= 5
    assert request.statuses == [0]


def test_the_steps_for_a_client_that_has_disconnected_are_dropped():
    request, done, closed = Request(), [], []

    def steps():
        try:
            for number in range(5):
                done.append(number)
                yield
        finally:
            closed.append(True)

    run(request, steps(), lambda: bool(closed), lambda: request.gone and request.gone())
    assert done == [0]


def test_a_client_can_disconnect_after_the_last_step_and_before_the_answer():
    """The answer then waits for something else, such as an append."""
    request, done = Request(), []

    def steps():
        yield
        done.append(True)

    run(request, steps(), lambda: bool(done))
    request.gone()
    assert request.statuses == [int(Status.FAILED)]


def test_a_step_that_fails_closes_the_connection_of_its_client(caplog):
    request = Request()

    def steps():
        yield
        raise ValueError("this one")

    run(request, steps(), lambda: request.answered)
    assert request.statuses == [int(Status.FAILED)]
    assert "a request of 127.0.0.1:9 (no client id) failed; its connection is closed" in caplog.text


def several(requests: dict[str, Request], then: Callable[[list[str]], None], steps: int = 3) -> list[str]:
    """Begin several requests together. Returns the names of the requests whose steps were executed, in order."""
    order: list[str] = []

    def work(name: str):
        for _ in range(steps):
            order.append(name)
            yield
        requests[name].answer(b"")

    async def turns() -> None:
        executed = RequestSteps(asyncio.get_running_loop())
        for name, request in requests.items():
            executed.begin(request, work(name))
        then(order)
        while not all(request.answered for request in requests.values()):
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not executed._queues

    asyncio.run(asyncio.wait_for(turns(), 30))
    return order


def test_one_request_of_an_address_is_executed_at_a_time():
    requests = {
        "a": Request("127.0.0.1:9"), "b": Request("127.0.0.1:10"), "c": Request("127.0.0.2:9"), "d": Request("127.0.0.1:11"),
    }  # fmt: skip
    begun: list[str] = []
    order = several(requests, begun.extend)
    assert begun == ["a", "b", "c", "d"], "short requests end in their first step"
    assert order[4:] == ["a", "c", "a", "c", "b", "b", "d", "d"]
    assert all(request.statuses == [0] for request in requests.values())


def test_a_request_that_waits_is_dropped_when_its_client_disconnects():
    requests = {"a": Request("127.0.0.1:9"), "b": Request("127.0.0.1:10")}
    order = several(requests, lambda order: requests["b"].gone and requests["b"].gone())
    assert order == ["a", "b", "a", "a"]
    assert (requests["a"].statuses, requests["b"].statuses) == ([0], [int(Status.FAILED)])


def test_the_first_step_raises_to_the_caller():
    def steps():
        raise ValueError("this one")
        yield

    with pytest.raises(ValueError, match="this one"):
        run(Request(), steps(), lambda: True)
