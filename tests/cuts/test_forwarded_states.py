"""A client's connection ends while requests of it are on their way to the coordinator or back, or held back behind such."""

import asyncio

import pytest
import uvloop

from odradek._ext.shm.topics import TopicDirectory
from odradek.net.forward_frames import ForwardReply, Status
from odradek.net.forward_server import ForwardServer
from tests.cuts.cutting import CUTS
from tests.net.forwarding_bench import COMMIT, HEARTBEAT, JOIN, Bench, frame
from tests.shm.one_broker import OneBroker
from tests.wire import Wire

STATES = {}
LIMIT_S = 120


def state(arrange):
    """Registers a coroutine that brings requests into a state, and returns one that makes an end of it."""
    STATES[arrange.__name__.replace("_", " ")] = arrange
    return arrange


async def nothing() -> None:
    """The state ends by itself."""


@state
async def not_sent(bench, sock):
    await bench.send(sock, frame(COMMIT, 1) + frame(COMMIT, 2))
    await until(lambda: bench.client.queued == 2)
    return bench.serve


@state
async def sent_and_not_read(bench, sock):
    await bench.serve()
    await bench.send(sock, frame(COMMIT, 1))
    (first,) = await bench.until_arrived(1)
    for stream in bench.server._streams:
        stream.pause(True)
    await bench.send(sock, frame(COMMIT, 2))
    await until(lambda: bench.client.waiting == 2)

    async def finish():
        for stream in bench.server._streams:
            stream.pause(False)
        first.answer(b"first")

    return finish


@state
async def not_answered(bench, sock):
    await bench.serve()
    await bench.send(sock, frame(COMMIT, 1) + frame(COMMIT, 2))
    requests = await bench.until_arrived(2)

    async def finish():
        for request in requests:
            request.answer(b"x" * 100)

    return finish


@state
async def answered_in_part(bench, sock):
    await bench.serve()
    await bench.send(sock, frame(COMMIT, 1) + frame(COMMIT, 2) + frame(COMMIT, 3))
    first, second, third = await bench.until_arrived(3)
    second.answer(b"second")
    await until(lambda: bench.client.waiting == 2)

    async def finish():
        third.answer(b"third")
        first.answer(b"first")

    return finish


@state
async def answered_and_not_taken(bench, sock):
    await bench.serve()
    await bench.send(sock, frame(COMMIT, 1) + frame(COMMIT, 2))
    first, second = await bench.until_arrived(2)
    first.answer(b"x" * (4 << 20))
    await until(lambda: bench.client.waiting == 1)

    async def finish():
        second.answer(b"second")

    return finish


@state
async def parked_and_others_held_back(bench, sock):
    await bench.serve()
    await bench.send(sock, frame(JOIN, 1) + frame(HEARTBEAT, 2) + frame(COMMIT, 3))
    (join,) = await bench.until_arrived(1)
    join.park()

    async def finish():
        join.answer(b"joined")

    return finish


@state
async def refused_by_the_coordinator(bench, sock):
    await bench.serve()
    await bench.send(sock, frame(COMMIT, 1) + frame(COMMIT, 2))
    requests = await bench.until_arrived(2)

    async def finish():
        for request in requests:
            request.answer(b"", 0, Status.FAILED)

    return finish


@state
async def served_by_a_task(bench, sock):
    began, go_on = asyncio.Event(), asyncio.Event()

    async def handler(request):
        began.set()
        await go_on.wait()
        return ForwardReply(Status.OK, 0, b"done")

    bench.server = ForwardServer(handler)
    await bench.server.start(bench.listener.dup())
    await bench.send(sock, frame(JOIN, 1) + frame(HEARTBEAT, 2))
    await began.wait()

    async def finish():
        go_on.set()
        await another_coordinator(bench)

    return finish


@state
async def lost_with_the_coordinator(bench, sock):
    await bench.serve()
    await bench.send(sock, frame(COMMIT, 1) + frame(COMMIT, 2))
    await bench.until_arrived(2)

    async def finish():
        await another_coordinator(bench)

    return finish


async def another_coordinator(bench) -> None:
    """The coordinator ends, the worker notices, and another one takes its place."""
    await bench.server.stop(0)
    await until(lambda: not bench.client.writable)
    await bench.serve()


async def until(condition) -> None:
    """Return when it is so; the test's own limit ends the waiting."""
    while not condition():
        await asyncio.sleep(0)


@pytest.fixture(scope="module")
def topics(tmp_path_factory):
    with OneBroker(tmp_path_factory.mktemp("data")) as made:
        made.create("t")
        directory = TopicDirectory()
        directory.refresh()
        yield directory


@pytest.mark.parametrize("seen_first", [True, False], ids=["seen at once", "seen later"])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("waiting", STATES)
def test_a_connection_that_ends_while_requests_of_it_are_forwarded_disturbs_nobody(
    tmp_path, topics, waiting, cut, seen_first
):
    async def works(bench, sock):
        answered = len(bench.arrived)
        await bench.send(sock, frame(HEARTBEAT, 9, client=b"another"))
        while True:
            await bench.until_arrived(answered + 1)
            request = bench.arrived[answered]
            request.answer(b"x")
            if request.context.client_id == "another":
                break
            answered += 1
        assert await bench.receive(sock) == b"x"

    async def drained(sock):
        """Read to the end, which comes when all was answered that could be."""
        try:
            while await asyncio.get_running_loop().sock_recv(sock, 1 << 20):
                pass
        except ConnectionResetError:
            return

    async def main():
        bench = Bench(tmp_path, topics)
        try:
            staying = bench.connect()
            sock = bench.connect(tcp=True)
            finish = await STATES[waiting](bench, sock)
            CUTS[cut](Wire.over(sock))
            if cut == "half close":
                sock.setblocking(False)
            if seen_first:
                for _ in range(20):
                    await asyncio.sleep(0)
            await finish()
            if cut == "half close":
                for request in bench.arrived:
                    request.answer(b"late")
                reading = asyncio.ensure_future(drained(sock))
                while not reading.done():
                    for request in bench.arrived:
                        request.answer(b"late")
                    await asyncio.sleep(0)
            await works(bench, staying)
            for request in bench.arrived:
                request.answer(b"late")
            await until(lambda: len(bench.loop.connections.by_id) == 1)
            await until(lambda: bench.client.waiting == 0)
            assert bench.client.queued == 0
            assert bench.loop.pool.lent_bytes == 0
        finally:
            await bench.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(asyncio.wait_for(main(), LIMIT_S))
