"""The session keeper: which actions it takes, in which order, and what it repeats."""

import asyncio
import logging
import threading
from collections.abc import Callable

import pytest

from odradek.metadata.cluster import WrongCluster
from odradek.metadata.session import Action, SessionEvent, SessionState
from odradek.metadata.store import StoreUnavailable, WrongTree
from odradek.processes.coordinator.cluster import session_keeper
from odradek.processes.coordinator.cluster.session_keeper import SessionKeeper
from tests.waiting import until_async

REJOIN = [Action.REREAD, Action.REGISTER, Action.ELECT]


class Broker:
    """Takes the actions of a keeper. ``failures``: the next exceptions of each action."""

    def __init__(self, timeout_s: float = 1000.0) -> None:
        self.taken: list[Action] = []
        self.failures: dict[Action, list[Exception]] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.revived = self.replaced = 0
        self.noted: list[SessionState] = []
        self.wrong: list[bool] = []
        self.keeper = SessionKeeper(lambda: timeout_s, self.take, self.revive, self.replace, self.note)

    def note(self, state: SessionState) -> None:
        self.noted.append(state)
        self.wrong.append(self.keeper.wrong_tree)

    async def take(self, action: Action) -> None:
        await self.gate.wait()
        if self.failures.get(action):
            raise self.failures[action].pop(0)
        self.taken.append(action)

    async def revive(self) -> None:
        self.revived += 1
        raise StoreUnavailable("refuses the credentials")

    async def replace(self) -> None:
        self.replaced += 1

    async def expect(self, actions: list[Action]) -> None:
        await until_async(lambda: len(self.taken) >= len(actions), lambda: f"{actions} are taken: {self.taken}")
        assert self.taken == actions


def keeps(test: Callable[[], object]) -> Callable[[], None]:
    """Run an asynchronous test."""

    def run() -> None:
        asyncio.run(test())  # type: ignore[arg-type]

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_keeper, "RETRY_S", 0.01)
    monkeypatch.setattr(session_keeper, "REPLACE_S", 0.01)


@keeps
async def test_events_before_the_registration_need_no_action() -> None:
    broker = Broker()
    for event in (SessionEvent.SUSPENDED, SessionEvent.LOST, SessionEvent.NEW_SESSION):
        broker.keeper.on_event(event)
    await until_async(lambda: broker.keeper.losses == 2, "the losses are counted")
    broker.keeper.begin()
    broker.keeper.on_event(SessionEvent.NEW_SESSION)
    await broker.expect([Action.RESIGN, *REJOIN])
    broker.keeper.close()


@keeps
async def test_events_of_another_thread_are_handled_in_order() -> None:
    broker = Broker()
    broker.keeper.begin()

    def lose_the_connection_often() -> None:
        for _ in range(50):
            broker.keeper.on_event(SessionEvent.SUSPENDED)
            broker.keeper.on_event(SessionEvent.CONNECTED)
        broker.keeper.on_event(SessionEvent.SUSPENDED)
        broker.keeper.on_event(SessionEvent.LOST)
        broker.keeper.on_event(SessionEvent.NEW_SESSION)

    thread = threading.Thread(target=lose_the_connection_often)
    thread.start()
    await until_async(lambda: broker.taken[-4:] == [Action.RESIGN, *REJOIN], lambda: f"it joins again: {broker.taken}")
    thread.join()
    assert broker.keeper.state is SessionState.CONNECTED
    assert set(broker.taken[:-4]) <= {Action.RESUME, Action.RESIGN}
    broker.keeper.close()


@keeps
async def test_failures_are_repeated_until_they_succeed() -> None:
    broker = Broker()
    broker.failures = {
        Action.REREAD: [StoreUnavailable("away"), WrongCluster("another"), RuntimeError("unexpected")],
        Action.REGISTER: [StoreUnavailable("away")],
    }
    broker.keeper.begin()
    broker.keeper.on_event(SessionEvent.NEW_SESSION)
    await broker.expect([Action.RESIGN, *REJOIN])
    assert not any(broker.failures.values())
    broker.keeper.close()


@keeps
async def test_a_session_that_is_lost_while_it_is_registered_is_replaced() -> None:
    broker = Broker()
    broker.keeper.begin()
    broker.gate.clear()
    broker.keeper.on_event(SessionEvent.NEW_SESSION)
    await until_async(lambda: broker.keeper.losses == 1, "the first action has begun")
    for event in (SessionEvent.SUSPENDED, SessionEvent.LOST, SessionEvent.NEW_SESSION):
        broker.keeper.on_event(event)
    await until_async(lambda: broker.keeper.losses == 3, "the second loss is known")
    broker.gate.set()
    await until_async(lambda: broker.taken[-3:] == REJOIN, lambda: f"it joins again: {broker.taken}")
    broker.keeper.close()


@keeps
async def test_without_a_connection_it_resigns_after_the_timeout_and_resumes_later() -> None:
    broker = Broker(timeout_s=0.05)
    broker.keeper.begin()
    broker.keeper.on_event(SessionEvent.SUSPENDED)
    await broker.expect([Action.RESIGN])
    assert broker.keeper.state is SessionState.OVERDUE
    broker.keeper.on_event(SessionEvent.CONNECTED)
    await broker.expect([Action.RESIGN, Action.RESUME])
    assert broker.noted == [
        SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.OVERDUE, SessionState.CONNECTED
    ]  # fmt: skip
    broker.keeper.close()


@keeps
async def test_a_short_loss_of_the_connection_does_not_end_the_controller() -> None:
    broker = Broker()
    broker.keeper.begin()
    broker.keeper.on_event(SessionEvent.SUSPENDED)
    broker.keeper.on_event(SessionEvent.CONNECTED)
    await broker.expect([Action.RESUME])
    broker.keeper.close()


@keeps
async def test_a_lost_session_is_revived_again_and_again() -> None:
    broker = Broker()
    broker.keeper.begin()
    broker.keeper.on_event(SessionEvent.LOST)
    await until_async(lambda: broker.revived >= 3, "it is revived")
    broker.keeper.on_event(SessionEvent.NEW_SESSION)
    await broker.expect([Action.RESIGN, *REJOIN])
    broker.keeper.close()


@keeps
async def test_nothing_happens_after_the_end() -> None:
    broker = Broker(timeout_s=0.01)
    broker.keeper.begin()
    broker.keeper.on_event(SessionEvent.SUSPENDED)
    await broker.expect([Action.RESIGN])
    broker.keeper.close()
    broker.keeper.on_event(SessionEvent.NEW_SESSION)
    broker.keeper.begin()
    await until_async(lambda: broker.keeper.losses == 1, "the event arrived")
    assert broker.taken == [Action.RESIGN]


@keeps
async def test_a_session_that_zookeeper_does_not_accept_is_replaced_when_it_is_overdue() -> None:
    broker = Broker(timeout_s=0.01)
    broker.keeper.begin()
    broker.keeper.on_event(SessionEvent.SUSPENDED)
    await until_async(lambda: broker.replaced > 2, "the keeper looks again and again")
    broker.keeper.on_event(SessionEvent.NEW_SESSION)
    await broker.expect([Action.RESIGN, *REJOIN])
    assert broker.keeper.state is SessionState.CONNECTED and broker.revived == 0
    broker.keeper.close()


@keeps
async def test_a_wrong_tree_is_reported_once_until_it_is_right() -> None:
    broker = Broker()
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    session_keeper.log.addHandler(handler)
    try:
        broker.failures[Action.REREAD] = [*[WrongTree("no cluster id")] * 5, *[WrongTree("another cluster")] * 5]
        broker.keeper.begin()
        broker.keeper.on_event(SessionEvent.WRONG_TREE)
        await broker.expect([Action.RESIGN, *REJOIN])
        assert [line.partition(".")[0] for line in lines] == ["no cluster id", "another cluster"]
        assert broker.wrong == [False, True, False] and not broker.keeper.wrong_tree
    finally:
        session_keeper.log.removeHandler(handler)
        broker.keeper.close()


@keeps
async def test_an_unexpected_error_of_the_help_does_not_end_the_keeper() -> None:
    broker = Broker()
    failures = [RuntimeError("can't start new thread")] * 3

    async def revive() -> None:
        broker.revived += 1
        if failures:
            raise failures.pop()

    broker.keeper._revive = revive
    broker.keeper.begin()
    broker.keeper.on_event(SessionEvent.LOST)
    await until_async(lambda: broker.revived > 4, lambda: f"the session is revived: {broker.revived}")
    broker.keeper.on_event(SessionEvent.NEW_SESSION)
    await broker.expect([Action.RESIGN, *REJOIN])
    broker.keeper.close()
