"""Requests that waited long for the coordinator: their worker checks which clients have disconnected before they are served."""

import asyncio

import pytest
import uvloop

from odradek._ext.shm.topics import TopicDirectory
from odradek.net.forward_frames import ForwardReply, Status
from odradek.net.forward_server import ForwardServer
from tests.net.forwarding_bench import COMMIT, HEARTBEAT, Bench, frame
from tests.shm.one_broker import OneBroker

LEAVE = (13, 1)
LEAVING = (1).to_bytes(2, "big") + b"g" + (1).to_bytes(2, "big") + b"m"
STILL_S = 1.1
LIMIT_S = 90


@pytest.fixture(scope="module")
def topics(tmp_path_factory):
    with OneBroker(tmp_path_factory.mktemp("data")) as made:
        made.create("t")
        directory = TopicDirectory()
        directory.refresh()
        yield directory


@pytest.fixture
def run(tmp_path, topics):
    def runner(test):
        async def main():
            bench = Bench(tmp_path, topics)
            try:
                await bench.serve()
                first = bench.connect()
                await bench.send(first, frame(HEARTBEAT, 0, client=b"first"))
                (request,) = await bench.until_arrived(1)
                request.answer(b"x")
                await bench.receive(first)
                bench.arrived.clear()
                await test(bench)
            finally:
                await bench.close()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
            loop.run(asyncio.wait_for(main(), LIMIT_S))

    return runner


async def sent(bench, count):
    """Until the worker has handed over so many requests."""
    while bench.client.waiting < count or bench.client.queued:
        await asyncio.sleep(0)


def still(bench):
    """The coordinator reads nothing."""
    for stream in bench.server._streams:
        stream.pause(True)


def goes_on(bench):
    for stream in bench.server._streams:
        stream.pause(False)


async def stand_still():
    """The fault itself: for so long the coordinator does nothing."""
    await asyncio.sleep(STILL_S)


def clients(bench):
    """Whose requests were served, in order."""
    return [request.context.client_id for request in bench.arrived]


def test_late_requests_of_disconnected_clients_are_not_served_and_the_others_keep_their_order(run, caplog):
    caplog.set_level("INFO")

    async def test(bench):
        still(bench)
        connected, disconnected, half, leaving = (bench.connect() for _ in range(4))
        await bench.send(connected, frame(COMMIT, 1, client=b"connected 1"))
        await bench.send(
            disconnected, frame(COMMIT, 2, client=b"disconnected") + frame(COMMIT, 3, client=b"disconnected")
        )
        await bench.send(half, frame(COMMIT, 4, client=b"half"))
        await bench.send(leaving, frame(LEAVE, 5, LEAVING, client=b"leaving"))
        await sent(bench, 5)
        disconnected.close()
        half.shutdown(1)
        leaving.close()
        await bench.send(connected, frame(COMMIT, 6, client=b"connected 2"))
        await sent(bench, 6)
        await stand_still()
        goes_on(bench)
        await bench.send(connected, frame(COMMIT, 7, client=b"connected 3"))
        await bench.until_arrived(4)
        assert clients(bench) == ["connected 1", "leaving", "connected 2", "connected 3"]
        assert await bench.receive(half) == b"", "it is closed without a response"
        for request in bench.arrived:
            request.answer(b"x")
        assert [await bench.receive(connected) for _ in range(3)] == [b"x"] * 3
        assert (bench.client.waiting, bench.server.in_flight, bench.server.bytes_in_flight) == (0, 0, 0)

    run(test)
    assert "2 request(s) of" in caplog.text
    assert "(client id disconnected) were not executed: they had waited for over 1 s" in caplog.text


def test_a_late_request_of_a_connected_client_is_served(run):
    async def test(bench):
        still(bench)
        sock = bench.connect()
        for number in range(3):
            await bench.send(sock, frame(COMMIT, number))
        await sent(bench, 3)
        await stand_still()
        goes_on(bench)
        for request in await bench.until_arrived(3):
            request.answer(b"x")
        assert [await bench.receive(sock) for _ in range(3)] == [b"x"] * 3

    run(test)


def test_requests_that_arrive_while_the_coordinator_is_suspended_are_late(run):
    async def test(bench):
        bench.server.tick()
        await stand_still()
        disconnected, connected = bench.connect(), bench.connect()
        still(bench)
        await bench.send(disconnected, frame(COMMIT, 1, client=b"disconnected"))
        await bench.send(connected, frame(COMMIT, 2, client=b"connected"))
        await sent(bench, 2)
        disconnected.close()
        goes_on(bench)
        await bench.until_arrived(1)
        assert clients(bench) == ["connected"]
        bench.server.tick()

    run(test)


def test_late_requests_are_not_served_after_their_worker_ended(run):
    """Its clients' connections ended with it."""

    async def test(bench):
        still(bench)
        sock = bench.connect()
        await bench.send(sock, frame(COMMIT, 1))
        await sent(bench, 1)
        await stand_still()
        bench.client.close_ended = lambda connections: bench.client._transport.abort()
        goes_on(bench)
        while bench.server._streams:
            await asyncio.sleep(0)
        assert not bench.arrived
        assert bench.server.in_flight == 0

    run(test)


def test_a_request_that_waited_in_the_workers_queue_for_a_coordinator_is_late_as_well(tmp_path, topics):
    async def main():
        bench = Bench(tmp_path, topics)
        try:
            disconnected, connected = bench.connect(), bench.connect()
            await bench.send(disconnected, frame(COMMIT, 1, client=b"disconnected"))
            await bench.send(connected, frame(COMMIT, 2, client=b"connected"))
            while bench.client.queued < 2:
                await asyncio.sleep(0)
            disconnected.shutdown(1)
            await stand_still()
            await bench.serve()
            (request,) = await bench.until_arrived(1)
            assert request.context.client_id == "connected"
            assert await bench.receive(disconnected) == b""
            request.answer(b"x")
            assert await bench.receive(connected) == b"x"
        finally:
            await bench.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(asyncio.wait_for(main(), LIMIT_S))


@pytest.mark.parametrize("unawaited", [True, False], ids=["leaves", "commits"])
def test_a_closed_connection_cancels_the_tasks_of_requests_that_are_awaited(tmp_path, topics, unawaited):
    async def main():
        done = []

        async def handler(request):
            await asyncio.sleep(0)
            done.append(request.context.client_id)
            return ForwardReply(Status.OK, 0, b"x")

        bench = Bench(tmp_path, topics)
        bench.server = ForwardServer(handler)
        await bench.server.start(bench.listener.dup())
        try:
            disconnected, connected = bench.connect(), bench.connect()
            await bench.send(connected, frame(HEARTBEAT, 1, client=b"connected"))
            await bench.receive(connected)
            api, body = (LEAVE, LEAVING) if unawaited else (COMMIT, b"")
            disconnected.send(frame(api, 2, body, client=b"disconnected"))
            bench._turn()  # it is forwarded, and the end of its connection is noticed in the same read of the stream
            bench.loop.connections.by_id[1].close()
            await bench.send(connected, frame(HEARTBEAT, 3, client=b"connected"))
            await bench.receive(connected)
            assert done == (["connected", "disconnected", "connected"] if unawaited else ["connected", "connected"])
        finally:
            await bench.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(asyncio.wait_for(main(), LIMIT_S))


def test_unawaited_requests_are_sent_even_after_their_connection_closed(tmp_path, topics):
    async def main():
        bench = Bench(tmp_path, topics)
        try:
            sock = bench.connect()
            await bench.send(sock, frame(COMMIT, 1, client=b"commit"))
            other = bench.connect()
            await bench.send(other, frame(LEAVE, 2, LEAVING, client=b"leave"))
            while bench.client.queued < 2:
                await asyncio.sleep(0)
            for connection in list(bench.loop.connections.by_id.values()):
                connection.close()
            assert (bench.client.queued, bench.client.waiting) == (1, 0)
            await bench.serve()
            (request,) = await bench.until_arrived(1)
            assert request.context.client_id == "leave"
            request.answer(b"nobody reads this")
            assert bench.client.queued == 0
        finally:
            await bench.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(asyncio.wait_for(main(), LIMIT_S))
