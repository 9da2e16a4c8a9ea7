"""Requests about transactions while a task serves an earlier request of the same connection: for example, the creation of
`__transaction_state`, for which a FindCoordinator request no longer waits.
"""

import asyncio
import socket
import threading
from contextlib import asynccontextmanager

import pytest

from odradek._ext.net.transaction_questions import decode_codes, encode_questions
from odradek.net.forward import ForwardClient
from odradek.net.forward_frames import (
    ForwardContext,
    ForwardReply,
    Kind,
    Status,
    encode_names,
)
from odradek.net.forward_server import ForwardServer
from odradek.processes.coordinator.coordinator import Coordinator
from odradek.processes.coordinator.store_thread import StoreThread
from odradek.protocol import decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas import end_txn, txn_offset_commit
from odradek.protocol.schemas.header import ResponseHeader, response_header_version
from tests.processes.coordinator.transactions.test_moving_transactions import FIRST, ORDERS, coordinating, loaded
from tests.processes.coordinator.transactions.test_moving_transactions import broker as broker
from tests.processes.coordinator.transactions.test_moving_transactions import orders as orders
from tests.processes.coordinator.transactions.test_moving_transactions import state as state
from tests.wire import request_frame

HOLD, OTHER = ForwardContext(7, 0, "192.0.2.1:1000"), ForwardContext(8, 0, "192.0.2.1:1001")
"""Two connections; a task serves a request of the first one."""
NAMES = encode_names(["__transaction_state"])


class Store:
    """Creates topics when the test allows it; serves nothing else."""

    def __init__(self):
        self.allowed = threading.Event()
        self.unsupported = 0

    def execute(self, request, report_errors):
        if request.kind != Kind.AUTO_CREATE:
            self.unsupported += 1
            return ForwardReply(Status.UNSUPPORTED, 0)
        self.allowed.wait(60)
        yield
        return ForwardReply(Status.OK, 1, b"created")


class Process:
    """The coordinator process of a broker, and a worker that forwards requests to it."""

    def __init__(self, coordinator, store, client):
        self.coordinator = coordinator
        self.store = store
        self.client = client

    def send(self, payload, context, kind=Kind.KAFKA):
        reply = asyncio.get_running_loop().create_future()
        deadline = asyncio.get_running_loop().time() + 60
        self.client.send(payload, context, deadline, reply.set_result, kind)
        return reply


@asynccontextmanager
async def process(transactions, path):
    """A process whose store thread creates a topic for the first connection."""
    made = Coordinator.__new__(Coordinator)
    made._stepping = set()
    made._loop, made._cluster, made._thread = asyncio.get_running_loop(), None, StoreThread(bool)
    made._store_service, made._transactions, made._groups = Store(), transactions, transactions._groups
    made._turn = transactions._turn
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    server = ForwardServer(made._serve, made._at_once, made._end_of_read)
    await server.start(listener)
    client = ForwardClient(made._loop, str(path))
    running = Process(made, made._store_service, client)
    creation = running.send(NAMES, HOLD, Kind.AUTO_CREATE)
    try:
        yield running
        assert not creation.done()
        running.store.allowed.set()
        assert (await creation).payload == b"created"
    finally:
        running.store.allowed.set()
        client.close()
        await server.stop(10)
        listener.close()
        made._thread.shutdown()


def framed(api, request, version):
    return request_frame(request, api.API_KEY, version, 1, "c")[4:]


def response_of(reply, api, version):
    assert reply.status == Status.OK
    _, at = decode(ResponseHeader, response_header_version(api.API_KEY, version), reply.payload)
    return decode(by_key(api.API_KEY).response, version, reply.payload, at)[0]


async def answers(broker, state, path, send, look):
    """What `look` makes of the answers, on a connection with a task and on one without."""
    async with coordinating(broker, state) as coordinated:
        await loaded(coordinated)
        coordinated.init()
        await coordinated.written(1)
        coordinated.copied()
        async with process(coordinated.service, path) as running:
            found = []
            for context in (OTHER, HOLD):
                waiting = send(running, context)
                while not waiting.done():
                    await asyncio.sleep(0)
                    coordinated.copied()
                found.append(look(waiting.result()))
            assert running.store.unsupported == 0
            return found


def test_requests_for_transactional_ids(broker, state, tmp_path):
    request = end_txn.Request(transactional_id="t", producer_id=FIRST, producer_epoch=5, committed=True)

    def send(running, context):
        return running.send(framed(end_txn, request, 1), context)

    def look(reply):
        return response_of(reply, end_txn, 1).error_code

    codes = asyncio.run(answers(broker, state, tmp_path / "socket", send, look))
    assert codes == [ErrorCode.INVALID_PRODUCER_EPOCH] * 2


@pytest.mark.parametrize("epoch", [0, 5])
def test_questions_of_workers(broker, state, orders, tmp_path, epoch):
    def send(running, context):
        return running.send(encode_questions([("t", FIRST, epoch, False, [ORDERS])]), context, Kind.ADD_PARTITIONS)

    def look(reply):
        assert reply.status == Status.OK
        return decode_codes(reply.payload, 1)

    codes = asyncio.run(answers(broker, state, tmp_path / "socket", send, look))
    assert codes == [(ErrorCode.PRODUCER_FENCED if epoch else ErrorCode.NONE,)] * 2


def test_offsets_of_transactions_are_committed_by_the_code_that_recognises_late_requests(broker, state, tmp_path):
    served = []

    def at_once(request, view):
        served.append(request.context)
        request.answer(request.payload[:1])
        return True

    def send(running, context):
        groups = running.coordinator._groups
        groups._view, groups._at_once = object(), {txn_offset_commit.API_KEY: at_once}
        return running.send(framed(txn_offset_commit, txn_offset_commit.Request(), 3), context)

    replies = asyncio.run(answers(broker, state, tmp_path / "socket", send, lambda reply: reply))
    assert replies == [ForwardReply(Status.OK, 0, b"\0")] * 2
    assert served == [OTHER, HOLD]
