"""The questions of Produce requests to the coordinator, and the answers; the test simulates the coordinator."""

import asyncio
import socket
from typing import Any

import pytest
import uvloop

from odradek._ext.net.transaction_questions import decode_questions, encode_codes
from odradek._ext.partition import slots
from odradek._ext.shm.meter_reading import read_counters
from odradek._ext.testing import slot_probe
from odradek.net.forward import ForwardClient
from odradek.net.forward_frames import (
    ForwardReply,
    Kind,
    Status,
)
from odradek.net.forward_server import ForwardServer
from odradek.processes.worker.transaction_questions import TransactionQuestions
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import produce
from odradek.shm.running_config import Running
from tests.processes.worker.test_worker import WorkerUnderTest
from tests.waiting import readable
from tests.wire import Wire, batch, produce_request

LIMIT_S = 60
QUESTIONS = [
    ("id", 7, 3, False, (("t", 0), ("t", 1))),
    ("ïd", 8, 0, True, (("t", 0),)),
]


class Connection:
    connection_id, listener_index, peer, client_id, principal = 5, 0, "client:1", b"client", None
    client_software_name = client_software_version = None
    by_token = False


class Pending:
    """Replaces a `DelayedProduce`."""

    questions = 1
    connection = Connection()

    def __init__(self) -> None:
        self.answers: asyncio.Queue[tuple[int, tuple[int, ...] | None]] = asyncio.Queue()

    def verified(self, number: int, codes: tuple[int, ...] | None) -> None:
        self.answers.put_nowait((number, codes))


class Bench:
    """Both ends of a stream. :param handler: the coordinator's."""

    def __init__(self, path, handler, **limits) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.loop = asyncio.get_running_loop()
        self.forward = ForwardClient(self.loop, str(path), self.settle, **limits)
        self.server = ForwardServer(handler)
        self.settled = 0
        self.failed: list[BaseException] = []
        self.questions = TransactionQuestions(
            self.loop, self.forward, self.settle, lambda pending, error: self.failed.append(error)
        )

    def settle(self) -> None:
        self.settled += 1

    def ask(self, pending, *, timeout_s=LIMIT_S):
        self.questions.ask(pending, QUESTIONS, int((self.loop.time() + timeout_s) * 1000))

    async def close(self) -> None:
        self.forward.close()
        await self.server.stop(0)
        self.listener.close()


@pytest.fixture
def run(tmp_path):
    def runner(test, handler, **limits):
        async def main():
            bench = Bench(tmp_path / "socket", handler, **limits)
            try:
                await test(bench)
            finally:
                await bench.close()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            loop.run(asyncio.wait_for(main(), LIMIT_S))

    return runner


def test_the_answer_has_a_code_for_each_partition(run):
    seen = []

    async def handler(request):
        seen.append((request.kind, request.context.connection_id, request.context.client_id))
        assert decode_questions(request.payload) == QUESTIONS
        return ForwardReply(Status.OK, 0, encode_codes([0, 48, -1]))

    async def test(bench):
        await bench.server.start(bench.listener.dup())
        pending = Pending()
        bench.ask(pending)
        assert pending.answers.empty()
        assert await pending.answers.get() == (1, (0, 48, -1))
        assert seen == [(Kind.ADD_PARTITIONS, 5, "client")]

    run(test, handler)


@pytest.mark.parametrize(
    "reply",
    [
        ForwardReply(Status.OK, 0, encode_codes([0, 0])),
        ForwardReply(Status.OK, 0, b"\0\0\0\0\0\0\0"),
        ForwardReply(Status.UNSUPPORTED, 0),
        ForwardReply(Status.MALFORMED, 0),
    ],
)
def test_an_answer_of_another_form_is_none(run, caplog, reply):
    async def handler(request):
        return reply

    async def test(bench):
        await bench.server.start(bench.listener.dup())
        pending = Pending()
        bench.ask(pending)
        assert await pending.answers.get() == (1, None)

    run(test, handler)
    assert "transaction" in caplog.text


def test_a_coordinator_that_raises_gives_no_answer(run):
    async def handler(request):
        raise RuntimeError("as if a defect were in it")

    async def test(bench):
        await bench.server.start(bench.listener.dup())
        pending = Pending()
        bench.ask(pending)
        assert await pending.answers.get() == (1, None)

    run(test, handler)


def test_a_coordinator_that_ends_or_hangs_gives_no_answer(run):
    began = asyncio.Event()

    async def handler(request):
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def test(bench):
        await bench.server.start(bench.listener.dup())
        lost, late = Pending(), Pending()
        bench.ask(late, timeout_s=0.05)
        assert await late.answers.get() == (1, None)
        bench.ask(lost)
        await began.wait()
        await bench.server.stop(0)
        assert await lost.answers.get() == (1, None)
        unreachable = Pending()
        bench.ask(unreachable, timeout_s=0.05)
        assert await unreachable.answers.get() == (1, None)

    run(test, handler)


def test_a_full_queue_gives_no_answer_in_a_later_turn(run):
    async def test(bench):
        pending = Pending()
        bench.ask(pending)
        assert pending.answers.empty()
        assert bench.settled == 0
        assert await pending.answers.get() == (1, None)
        await asyncio.sleep(0)
        assert bench.settled == 1

    run(test, None, max_queued=0)


def test_nobody_is_told_after_the_clients_connection_was_closed(run):
    async def handler(request):
        return ForwardReply(Status.OK, 0, encode_codes([0, 0, 0]))

    async def test(bench):
        gone, staying = Pending(), Pending()
        bench.ask(gone)
        bench.forward.cancel(Connection.connection_id)
        await bench.server.start(bench.listener.dup())
        bench.ask(staying)
        assert await staying.answers.get() == (1, (0, 0, 0))
        assert gone.answers.empty()

    run(test, handler)


def test_an_error_while_the_answer_is_taken_ends_the_request(run):
    class Failing(Pending):
        def verified(self, number, codes):
            super().verified(number, codes)
            raise MemoryError("as if memory were short")

    async def handler(request):
        return ForwardReply(Status.OK, 0, encode_codes([0, 0, 0]))

    async def test(bench):
        await bench.server.start(bench.listener.dup())
        pending = Failing()
        bench.ask(pending)
        await pending.answers.get()
        assert [str(error) for error in bench.failed] == ["as if memory were short"]

    run(test, handler)


class Coordinated:
    """A client of a worker, whose coordinator process is a task of the test."""

    def __init__(self, held, path) -> None:
        self.held = held
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path / "no-coordinator"))
        self.listener.listen()
        self.server = ForwardServer(self.answer)
        self.asked: list[Any] = []
        self.go_on = asyncio.Event()
        self.wire = Wire.over(held.connect(1, "client:1"))
        held.take_over()

    async def answer(self, request):
        questions = decode_questions(request.payload)
        self.asked += questions
        await self.go_on.wait()
        codes = []
        for transactional_id, producer_id, producer_epoch, _, places in questions:
            for topic, partition in places:
                slot = self.held.worker.topics.get(topic).slot(partition)
                incarnation = slot_probe.incarnation_of(slot)
                codes.append(
                    slots.allow_transaction(slot, incarnation, -1, transactional_id, producer_id, producer_epoch, 2)
                )
        return ForwardReply(Status.OK, 0, encode_codes(codes))

    async def produce(self, topic, sequence, version, epoch=0):
        """The error code of a transactional batch."""
        fields = {"producer_id": 7, "producer_epoch": epoch, "base_sequence": sequence, "attributes": 0x10}
        request = produce_request([(topic, [(0, batch(**fields))])], 1, 30_000, "id")
        self.wire.send(request, produce.API_KEY, version)
        self.held.worker._on_data()
        while not readable(self.wire.socket):
            await asyncio.sleep(0)
        return self.wire.receive().responses[0].partition_responses[0].error_code

    async def close(self) -> None:
        self.wire.socket.close()
        await self.server.stop(0)
        self.listener.close()


@pytest.fixture
def run_worker(tmp_path):
    def runner(test) -> None:
        async def main() -> None:
            held = WorkerUnderTest(tmp_path)
            coordinated = Coordinated(held, tmp_path)
            try:
                await asyncio.wait_for(test(held, coordinated), LIMIT_S)
            finally:
                await coordinated.close()
                held.close()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            loop.run(main())

    return runner


def test_a_worker_asks_once_for_a_transaction(run_worker):
    async def test(held, coordinated):
        held.broker.create("t")
        held.worker.topics.refresh()
        await coordinated.server.start(coordinated.listener.dup())
        coordinated.go_on.set()
        assert [await coordinated.produce("t", sequence, 12) for sequence in range(3)] == [0, 0, 0]
        assert coordinated.asked == [("id", 7, 0, False, (("t", 0),))]
        counted = read_counters(0)
        assert (counted["verifications"], counted["verification_failures"]) == (1, 0)

    run_worker(test)


def test_a_worker_whose_coordinator_ends_refuses_the_batch(run_worker):
    async def test(held, coordinated):
        held.broker.create("t")
        held.worker.topics.refresh()
        await coordinated.server.start(coordinated.listener.dup())
        refused = asyncio.ensure_future(coordinated.produce("t", 0, 12))
        while not coordinated.asked:
            await asyncio.sleep(0)
        await coordinated.server.stop(0)
        assert await refused == ErrorCode.NOT_ENOUGH_REPLICAS

    run_worker(test)


def test_verification_is_switched_at_run_time(run_worker):
    async def test(held, coordinated):
        held.broker.create("t")
        held.worker.topics.refresh()
        await coordinated.server.start(coordinated.listener.dup())
        coordinated.go_on.set()
        for epoch, (value, asked) in enumerate([("false", 0), ("true", 1), ("false", 1)]):
            held.worker._running.publish(Running({"transaction.partition.verification.enable": value}, {}, {}))
            held.worker._take_over_settings()
            assert await coordinated.produce("t", 0, 11, epoch) == 0
            assert len(coordinated.asked) == asked

    run_worker(test)
