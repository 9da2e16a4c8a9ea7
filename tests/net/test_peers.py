"""Requests to other brokers: order, repetition after a lost connection, versions, and malformed responses."""

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from odradek.net import peers
from odradek.net.peers import Peer, PeerClosed, PeerError, UnsendableRequest, UnsupportedRequest
from odradek.protocol import decode, encode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas import allocate_producer_ids, api_versions, controlled_shutdown
from odradek.protocol.schemas.header import decode_request_header, response_header_version

SERVED = {7: (0, 3), 18: (0, 3), 67: (0, 0)}


class FakeBroker:
    """Responds to requests by a script. ``handle`` gets (api key, version, message) and returns a response message, raw
    bytes, or None to close the connection."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int, Any]] = []
        self.clients: list[str] = []
        self.connections = 0
        self.newest_versions = api_versions.SCHEMA.max_version  # of ApiVersions
        self.versions_requests: list[int] = []
        self.handle: Callable[[int, int, Any], Any] = lambda key, version, message: by_key(key).response()
        self.server: asyncio.Server | None = None
        self.port = 0
        self.arrived = asyncio.Event()
        self.released = asyncio.Event()
        self.released.set()

    async def start(self, port: int = 0) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self.server is not None
        self.server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                header, body = decode_request_header(frame)
                key, version = header.request_api_key, header.request_api_version
                message, _ = decode(by_key(key).request, version, frame, body)
                if key == api_versions.API_KEY:
                    self.versions_requests.append(version)
                    unknown = version > self.newest_versions
                    rows = [
                        api_versions.Response.ApiVersion(api_key=k, min_version=low, max_version=high)
                        for k, (low, high) in ({18: (0, self.newest_versions)} if unknown else SERVED).items()
                    ]
                    answer: Any = api_versions.Response(error_code=35 if unknown else 0, api_keys=rows)
                    version = 0 if unknown else version
                else:
                    self.requests.append((key, version, message))
                    self.clients.append(header.client_id)
                    self.arrived.set()
                    await self.released.wait()
                    answer = self.handle(key, version, message)
                if answer is None:
                    writer.close()
                    return
                if not isinstance(answer, bytes):
                    head = struct.pack(">i", header.correlation_id)
                    if response_header_version(key, version) == 1:
                        head += b"\0"
                    answer = head + encode(answer, version)
                    answer = struct.pack(">i", len(answer)) + answer
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await test()

    uvloop.run(limited())  # as in the coordinator


def peer_of(broker: FakeBroker, timeout_s: float = 30.0) -> Peer:
    loop = asyncio.get_running_loop()
    return Peer(loop, "broker 1", lambda: ("127.0.0.1", broker.port), "7", timeout_s)


def shutdown_request(broker_id: int = 1) -> Any:
    return controlled_shutdown.Request(broker_id=broker_id, broker_epoch=4)


async def ask(peer: Peer, api: Any, message: Any, **options: Any) -> Any:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    peer.send(api, message, future.set_result, **options)
    return await future


def test_requests_are_sent_one_at_a_time_in_order_with_the_fixed_version():
    async def test() -> None:
        broker = FakeBroker()
        await broker.start()
        broker.released.clear()
        peer = peer_of(broker)
        order: list[int] = []
        done = asyncio.Event()

        def note(number: int) -> Callable[[Any], None]:
            def then(_: Any) -> None:
                order.append(number)
                if number == 2:
                    done.set()

            return then

        for number in range(3):
            peer.send(controlled_shutdown.SCHEMA, shutdown_request(number), note(number), version=3)
        await broker.arrived.wait()
        assert (len(broker.requests), peer.waiting) == (1, 3)
        broker.released.set()
        await done.wait()
        assert order == [0, 1, 2]
        assert [(key, version, message.broker_id) for key, version, message in broker.requests] == [
            (7, 3, 0), (7, 3, 1), (7, 3, 2),
        ]  # fmt: skip
        assert broker.clients == ["7"] * 3
        assert broker.connections == 1
        peer.close()
        await broker.stop()

    run(test)


def test_a_request_that_is_given_up_fails_with_its_connection_and_the_next_one_is_sent():
    async def test() -> None:
        broker = FakeBroker()
        await broker.start()
        peer = peer_of(broker)
        peer.give_up("nothing is under way")
        broker.released.clear()
        waiting = asyncio.ensure_future(ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3))
        await broker.arrived.wait()
        peer.give_up("another broker leads")
        outcome = await waiting
        assert isinstance(outcome, PeerError) and "another broker leads" in str(outcome)
        broker.released.set()
        assert not isinstance(await ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3), PeerError)
        assert broker.connections == 2 and len(broker.requests) == 2
        peer.close()
        await broker.stop()

    run(test)


def test_a_request_without_a_version_uses_the_newest_that_both_know():
    async def test() -> None:
        broker = FakeBroker()
        await broker.start()
        peer = peer_of(broker)
        await ask(peer, allocate_producer_ids.SCHEMA, allocate_producer_ids.Request(broker_id=1, broker_epoch=4))
        assert [(key, version) for key, version, _ in broker.requests] == [(67, 0)]
        error = await ask(peer, by_key(56), by_key(56).request(broker_id=1))
        assert isinstance(error, UnsupportedRequest)
        response = await ask(peer, controlled_shutdown.SCHEMA, shutdown_request())
        assert response.error_code == 0
        assert broker.requests[-1][:2] == (7, 3)
        peer.close()
        await broker.stop()

    run(test)


def test_a_broker_that_does_not_know_the_version_of_api_versions_is_asked_in_one_that_it_knows():
    async def test() -> None:
        broker = FakeBroker()
        broker.newest_versions = 2
        await broker.start()
        peer = peer_of(broker)
        assert (await ask(peer, controlled_shutdown.SCHEMA, shutdown_request())).error_code == 0
        assert broker.requests[-1][:2] == (7, 3)
        assert (broker.versions_requests, broker.connections) == ([3, 2], 1)
        peer.close()
        await broker.stop()

    run(test)


def test_both_questions_for_versions_have_one_deadline(monkeypatch: pytest.MonkeyPatch):
    async def test() -> None:
        broker = FakeBroker()
        broker.newest_versions = 2
        await broker.start()
        peer = peer_of(broker)
        started = []
        begin = peer._begin_deadline
        monkeypatch.setattr(peer, "_begin_deadline", lambda: (started.append(list(broker.versions_requests)), begin()))
        await ask(peer, controlled_shutdown.SCHEMA, shutdown_request())
        assert started == [[], [3, 2]]  # one before the versions, one before the request
        peer.close()
        await broker.stop()

    run(test)


def test_a_request_is_repeated_after_a_lost_connection_only_if_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(peers, "RETRY_S", 0.001)

    async def test() -> None:
        broker = FakeBroker()
        await broker.start()
        answers = iter([None, None, controlled_shutdown.Response(error_code=3), None])
        broker.handle = lambda key, version, message: next(answers)
        peer = peer_of(broker)
        response = await ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3, repeat=True)
        assert response.error_code == 3
        assert len(broker.requests) == 3
        error = await ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3)
        assert isinstance(error, PeerError)
        peer.close()
        await broker.stop()

    run(test)


def test_a_request_waits_until_the_broker_listens_and_follows_its_address(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(peers, "RETRY_S", 0.001)

    async def test() -> None:
        first, second = FakeBroker(), FakeBroker()
        await first.start()
        await second.start()
        place: list[FakeBroker | None] = [None]
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()

        def address() -> tuple[str, int] | None:
            asked.set()
            return ("127.0.0.1", place[0].port) if place[0] is not None else None

        peer = Peer(loop, "the controller", address, "7", 30.0)
        request = asyncio.ensure_future(
            ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3, repeat=True)
        )
        await asked.wait()
        assert not request.done()
        place[0] = first
        assert (await request).error_code == 0
        place[0] = second
        await ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3)
        assert (len(first.requests), len(second.requests)) == (1, 1)
        place[0] = None
        error = await ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3)
        assert "address of the controller is not known" in str(error)
        peer.close()
        await first.stop()
        await second.stop()

    run(test)


def test_a_broker_that_does_not_respond_in_time_counts_as_lost():
    async def test() -> None:
        broker = FakeBroker()
        await broker.start()
        broker.released.clear()
        peer = peer_of(broker, timeout_s=0.05)
        error = await ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3)
        assert isinstance(error, PeerError)
        assert "no response within 0.05 s" in str(error)
        broker.released.set()
        peer.close()
        await broker.stop()

    run(test)


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", -1),
        struct.pack(">i", peers.MAX_RESPONSE_BYTES + 1),
        struct.pack(">ii", 4, 99),
        struct.pack(">iib", 5, 1, 0),
        struct.pack(">ii", 10, 1) + b"\xff\xff\xff\xff\xff\xff",
    ],
    ids=["negative size", "huge size", "wrong correlation id", "cut response", "endless header"],
)
def test_a_malformed_response_closes_the_connection(garbage: bytes):
    async def test() -> None:
        broker = FakeBroker()
        await broker.start()
        broker.handle = lambda key, version, message: garbage
        peer = peer_of(broker)
        error = await ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3)
        assert isinstance(error, PeerError)
        broker.handle = lambda key, version, message: controlled_shutdown.Response(error_code=0)
        assert (await ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3)).error_code == 0
        assert broker.connections == 2
        peer.close()
        await broker.stop()

    run(test)


def test_close_fails_every_request_once():
    async def test() -> None:
        broker = FakeBroker()
        await broker.start()
        broker.released.clear()
        peer = peer_of(broker)
        requests = [
            asyncio.ensure_future(ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3, repeat=True))
            for _ in range(3)
        ]
        await broker.arrived.wait()
        peer.close()
        assert all(isinstance(outcome, PeerClosed) for outcome in await asyncio.gather(*requests))
        assert isinstance(await ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3), PeerClosed)
        broker.released.set()
        await broker.stop()

    run(test)


def test_a_denied_request_is_repeated_before_later_ones_until_the_right_is_granted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(peers, "DENIED_RETRY_S", 0.01)
    caplog.set_level(logging.INFO, "odradek.replication")

    async def test() -> None:
        broker = FakeBroker()
        codes = iter([31, 31, 31])  # CLUSTER_AUTHORIZATION_FAILED

        def handle(key: int, version: int, message: Any) -> Any:
            return controlled_shutdown.Response(error_code=next(codes, 0))

        broker.handle = handle
        await broker.start()
        peer = peer_of(broker)
        order: list[tuple[int, int]] = []
        done = asyncio.Event()

        def note(number: int) -> Callable[[Any], None]:
            def then(response: Any) -> None:
                order.append((number, response.error_code))
                if number == 1:
                    done.set()

            return then

        for number in range(2):
            peer.send(controlled_shutdown.SCHEMA, shutdown_request(number), note(number), version=3, repeat=True)
        await done.wait()
        assert order == [(0, 0), (1, 0)]
        assert [message.broker_id for _, _, message in broker.requests] == [0, 0, 0, 0, 1]
        assert broker.connections == 1
        peer.close()
        await broker.stop()

    run(test)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2, lines
    assert "broker 1 denies ControlledShutdown requests" in lines[0] and "super.users" in lines[0]
    assert lines[1] == "broker 1 does not deny requests any more"


def test_a_denied_request_that_is_not_to_be_repeated_returns_the_response() -> None:
    async def test() -> None:
        broker = FakeBroker()
        broker.handle = lambda key, version, message: controlled_shutdown.Response(error_code=31)
        await broker.start()
        peer = peer_of(broker)
        assert (await ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3)).error_code == 31
        assert len(broker.requests) == 1
        peer.close()
        await broker.stop()

    run(test)


@pytest.mark.parametrize("repeat", [False, True])
@pytest.mark.parametrize("version", [None, 0])
@pytest.mark.parametrize("broken", ["build", "encode"])
def test_a_request_that_cannot_be_made_does_not_stop_those_behind_it(
    repeat: bool, version: int | None, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    def build(version: int) -> Any:
        raise LookupError("the role ended")

    async def test() -> None:
        broker = FakeBroker()
        await broker.start()
        peer = peer_of(broker)
        message = build if broken == "build" else shutdown_request(broker_id=1 << 40)
        answers = [
            asyncio.ensure_future(ask(peer, controlled_shutdown.SCHEMA, request, version=version, repeat=repeat))
            for request in (shutdown_request(5), message, message, shutdown_request(6))
        ]
        first, *failed, last = await asyncio.gather(*answers)
        assert [type(answer) for answer in failed] == [UnsendableRequest] * 2
        assert first.error_code == last.error_code == 0
        assert [message.broker_id for _, _, message in broker.requests] == [5, 6]
        assert (peer.waiting, broker.connections) == (0, 1)
        peer.close()
        await broker.stop()

    with caplog.at_level(logging.ERROR):
        run(test)
    assert [record.exc_info is not None for record in caplog.records] == [True, False]
