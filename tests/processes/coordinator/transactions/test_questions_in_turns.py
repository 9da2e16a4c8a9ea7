"""Questions of workers about very many partitions: the coordinator's loop asks them one after the other, in several turns."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek._ext.net.transaction_questions import decode_codes, encode_questions
from odradek.net.forward_frames import Kind, Status
from odradek.processes import slices
from odradek.processes.coordinator.request_steps import RequestSteps
from odradek.processes.coordinator.transactions import service as transaction_service
from odradek.processes.coordinator.transactions.service import TransactionService
from odradek.protocol.errors import ErrorCode
from tests.processes.coordinator.test_request_steps import Request
from tests.waiting import until_async

MOST = 3


@pytest.fixture(autouse=True)
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_service, "MOST_ADDED", MOST)
    monkeypatch.setattr(slices, "TURN_S", 0)


class Worker(Request):
    """A request of a worker: the questions of an append."""

    def __init__(self, *questions: Any) -> None:
        super().__init__()
        self.kind, self.payload = int(Kind.ADD_PARTITIONS), encode_questions(list(questions))
        self.count = sum(len(places) for *_, places in questions)
        self.codes: tuple[int, ...] = ()

    def answer(self, payload: bytes, metadata_version: int = 0, status: int = 0) -> None:
        if not self.answered and status == Status.OK:
            self.codes = decode_codes(payload, self.count)
        super().answer(payload, metadata_version, status)


class Service:
    """The service with a verification that the test answers.

    :ivar asked: the questions, each with the turn of the loop in which it was asked. :ivar later: the test answers them.
    """

    def __init__(self, later: bool = False) -> None:
        self.asked: list[tuple[Any, int]] = []
        self.waiting: list[Any] = []
        self.turn = 0
        self.later = later
        self.service: Any = TransactionService.__new__(TransactionService)
        self.service._steps = RequestSteps(asyncio.get_running_loop())
        self.service._owner_of = lambda peer: 7
        self.service.verification = SimpleNamespace(ask=self._ask)
        self._count_turn()

    def _count_turn(self) -> None:
        self.turn += 1
        asyncio.get_running_loop().call_soon(self._count_turn)

    def _ask(self, question: Any, then: Any) -> None:
        self.asked.append((question, self.turn))
        self.waiting.append(lambda: then({place: code(place) for place in question.places}))
        if not self.later:
            self.waiting.pop()()

    @property
    def turns(self) -> list[int]:
        return [turn for _, turn in self.asked]


def code(place: tuple[str, int]) -> ErrorCode:
    return ErrorCode.NONE if place[1] % 2 else ErrorCode.TRANSACTION_ABORTABLE


def places(topic: str, count: int) -> list[tuple[str, int]]:
    return [(topic, number) for number in range(count)]


def question(name: str, count: int, verify_only: bool = False) -> Any:
    return name, 5, 0, verify_only, places(name, count)


def test_few_partitions_are_asked_about_at_once() -> None:
    async def ask() -> None:
        service, request = Service(), Worker(question("a", 1), question("b", MOST - 1))
        assert service.service.at_once(request)
        assert request.statuses == [Status.OK] and len(service.asked) == 2

    asyncio.run(ask())


def test_many_partitions_are_asked_about_some_in_a_turn_and_answered_in_their_order() -> None:
    async def ask() -> None:
        service = Service()
        asked = [question("a", 2 * MOST + 1), question("b", 1, verify_only=True), question("c", MOST)]
        request = Worker(*asked)
        service.service.at_once(request)
        assert not service.asked and not request.answered
        await until_async(lambda: request.answered)
        assert [(one.transactional_id, one.verify_only, len(one.places), one.owner) for one, _ in service.asked] == [
            ("a", False, MOST, 7), ("a", False, MOST, 7), ("a", False, 1, 7), ("b", True, 1, 7), ("c", False, MOST, 7),
        ]  # fmt: skip
        assert len(set(service.turns)) == len(service.turns), "two questions in one turn of the loop"
        assert request.statuses == [Status.OK]
        assert request.codes == tuple(code(place) for *_, named in asked for place in named)

    asyncio.run(ask())


def test_a_question_waits_for_the_answer_to_the_one_before() -> None:
    async def ask() -> None:
        service, request = Service(later=True), Worker(question("a", 3 * MOST))
        service.service.at_once(request)
        for count in (1, 2, 3):
            await until_async(lambda count=count: len(service.asked) == count)
            turn = service.turn
            await until_async(lambda turn=turn: service.turn > turn + 3)
            assert len(service.asked) == count and not request.answered
            service.waiting.pop()()
        assert request.statuses == [Status.OK]

    asyncio.run(ask())


@pytest.mark.parametrize("later", [True, False])
def test_no_more_questions_after_the_client_has_disconnected(later: bool) -> None:
    async def ask() -> None:
        service, request = Service(later), Worker(question("a", 5 * MOST))
        service.service.at_once(request)
        while not service.asked:
            await asyncio.sleep(0)
        assert request.gone is not None
        request.gone()
        count = len(service.asked)
        while service.waiting:
            service.waiting.pop()()
        turn = service.turn
        await until_async(lambda: service.turn > turn + 5)
        assert len(service.asked) == count < 5
        assert request.statuses == [Status.FAILED]
        assert not service.service._steps._queues

    asyncio.run(ask())


def test_other_requests_of_the_owner_are_served_after_the_questions() -> None:
    async def ask() -> None:
        service = Service()
        first, second = Worker(question("a", 4 * MOST)), Worker(question("b", 2 * MOST))
        service.service.at_once(first)
        service.service.at_once(second)
        await until_async(lambda: first.answered and second.answered)
        assert first.statuses == second.statuses == [Status.OK]
        assert len(service.asked) == 6 and len(set(service.turns)) == 6

    asyncio.run(ask())
