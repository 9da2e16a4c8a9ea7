"""A client's requests that the coordinator serves, from the connection's bytes to the response: order, answers, failures."""

import asyncio
import logging
from pathlib import Path

import pytest
import uvloop

from odradek._ext.net.forwarding import Route
from odradek._ext.shm.topics import TopicDirectory
from odradek.api.api import FORWARDED, LONG_PATIENCE_S
from odradek.api.routes import ROUTES
from odradek.api.table import BY_KEY
from odradek.net.forward_frames import Status
from odradek.protocol.registry import by_key
from tests.net.forwarding_bench import COMMIT, FETCH_OFFSETS, HEARTBEAT, PATIENCE_S, Bench, frame
from tests.shm.one_broker import OneBroker


@pytest.fixture(autouse=True)
def ends_are_logged(caplog):
    caplog.set_level(logging.DEBUG)


@pytest.fixture(scope="module")
def topics(tmp_path_factory):
    with OneBroker(tmp_path_factory.mktemp("data")) as made:
        made.create("t")
        directory = TopicDirectory()
        directory.refresh()
        yield directory


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request, tmp_path, topics):
    """Runs `test(bench)` on a fresh loop; with `serving` false there is no coordinator yet."""

    def runner(test, serving=True, **options):
        async def main():
            bench = Bench(tmp_path, topics, **options)
            try:
                if serving:
                    await bench.serve()
                await asyncio.wait_for(test(bench), 3 * PATIENCE_S)
            finally:
                await bench.close()

        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as loop:
            loop.run(main())

    return runner


def test_a_request_arrives_unchanged_with_its_context(run):
    async def test(bench):
        sock = bench.connect()
        await bench.send(sock, frame(HEARTBEAT, 7, b"body", b"cl\xc3\xa9"))
        (request,) = await bench.until_arrived(1)
        assert request.payload == frame(HEARTBEAT, 7, b"body", b"cl\xc3\xa9")[4:]
        context = request.context
        assert (context.connection_id, context.listener, context.peer, context.client_id) == (
            1,
            3,
            "peer-1",
            "cl\u00e9",
        )
        assert (context.principal, context.software_name, request.api_key) == ("User:ANONYMOUS", None, 12)
        request.answer(b"answer" * 50_000)
        assert await bench.receive(sock) == b"answer" * 50_000
        assert (bench.client.waiting, bench.server.in_flight, bench.server.bytes_in_flight) == (0, 0, 0)

    run(test)


def test_a_changed_context_of_a_connection_is_sent_again(run):
    async def test(bench):
        sock = bench.connect()
        connection = bench.loop.connections.by_id[1]
        contexts = []
        for number, change in enumerate([lambda: None, lambda: setattr(connection, "principal", "User:a"),
                                         lambda: connection.runs("lib", "1.2"), lambda: None]):  # fmt: skip
            change()
            await bench.send(sock, frame(HEARTBEAT, number, client=b"b" if number == 3 else b"a"))
            *_, request = await bench.until_arrived(number + 1)
            request.answer(b"x")
            await bench.receive(sock)
            context = request.context
            contexts.append((context.principal, context.software_name, context.software_version, context.client_id))
        assert contexts == [
            ("User:ANONYMOUS", None, None, "a"),
            ("User:a", None, None, "a"),
            ("User:a", "lib", "1.2", "a"),
            ("User:a", "lib", "1.2", "b"),
        ]

    run(test)


def test_commits_follow_each_other_and_are_answered_in_their_order(run):
    async def test(bench):
        sock = bench.connect()
        await bench.send(sock, b"".join(frame(COMMIT, number) for number in range(5)))
        requests = await bench.until_arrived(5)
        assert [request.payload for request in requests] == [frame(COMMIT, number)[4:] for number in range(5)]
        for number in (3, 0, 4, 2, 1):  # the coordinator may answer in any order
            requests[number].answer(b"answer-%d" % number)
        assert [await bench.receive(sock) for _ in range(5)] == [b"answer-%d" % number for number in range(5)]

    run(test)


@pytest.mark.parametrize("other", [HEARTBEAT, FETCH_OFFSETS, (8, 0)])
def test_other_requests_and_commits_wait_for_each_other(run, other):
    async def test(bench):
        sock = bench.connect()
        await bench.send(sock, frame(COMMIT, 0) + frame(COMMIT, 1) + frame(other, 2) + frame(COMMIT, 3))
        first, second = await bench.until_arrived(2)
        second.answer(b"1")
        first.answer(b"0")
        assert [await bench.receive(sock), await bench.receive(sock)] == [b"0", b"1"]
        *_, third = await bench.until_arrived(3)
        assert third.payload == frame(other, 2)[4:]
        other_sock = bench.connect()
        await bench.send(other_sock, frame(HEARTBEAT, 9))  # what came later than the fourth, of another connection
        assert (await bench.until_arrived(4))[3].payload == frame(HEARTBEAT, 9)[4:]
        third.answer(b"2")
        assert await bench.receive(sock) == b"2"
        assert (await bench.until_arrived(5))[4].payload == frame(COMMIT, 3)[4:]

    run(test)


@pytest.mark.parametrize("status", [Status.FAILED, Status.MALFORMED, Status.UNSUPPORTED])
def test_a_request_that_was_not_served_closes_only_its_connection(run, status, caplog):
    async def test(bench):
        sock, other = bench.connect(), bench.connect()
        await bench.send(sock, frame(HEARTBEAT, 1))
        await bench.send(other, frame(HEARTBEAT, 2))
        bad, good = await bench.until_arrived(2)
        bad, good = (bad, good) if bad.connection_id == 1 else (good, bad)
        bad.answer(b"", 0, status)
        good.answer(b"fine")
        assert await bench.receive(sock) == b""
        assert await bench.receive(other) == b"fine"

    run(test)
    assert f"cannot answer the Heartbeat request: {status.name.lower()}" in caplog.text


def test_an_answer_with_newer_metadata_waits_until_the_worker_has_taken_it_over(run):
    async def test(bench):
        sock = bench.connect()
        for number, newer in enumerate((0, 1)):
            await bench.send(sock, frame(HEARTBEAT, number))
            *_, request = await bench.until_arrived(number + 1)
            request.answer(b"x", bench.topics.version + newer)
            await bench.receive(sock)
            bench.answers.append(number)
        assert bench.newer == [1]  # for the second answer, before it left

    run(test)


def test_a_connection_that_closes_is_forgotten_and_its_answers_dropped(run):
    async def test(bench):
        sock, other = bench.connect(), bench.connect()
        await bench.send(sock, frame(COMMIT, 1) + frame(COMMIT, 2))
        requests = await bench.until_arrived(2)
        sock.close()
        await bench.send(other, frame(HEARTBEAT, 3))
        *_, last = await bench.until_arrived(3)
        while 1 in bench.loop.connections.by_id:
            await asyncio.sleep(0)
        assert bench.client.waiting == 1
        for request in (*requests, last):
            request.answer(b"x")
            request.answer(b"once more")  # no answer leaves twice
        assert await bench.receive(other) == b"x"
        assert bench.client.waiting == 0

    run(test)


def test_a_lost_coordinator_closes_only_the_connections_that_wait(run, caplog):
    async def test(bench):
        sock, other = bench.connect(), bench.connect()
        await bench.send(sock, frame(COMMIT, 1))
        await bench.until_arrived(1)
        await bench.server.stop(0)
        assert await bench.receive(sock) == b""
        await bench.serve()
        await bench.send(other, frame(COMMIT, 2))
        *_, request = await bench.until_arrived(2)
        assert request.payload == frame(COMMIT, 2)[4:]  # the first one was not sent again
        request.answer(b"x")
        assert await bench.receive(other) == b"x"

    run(test)
    assert "cannot answer the OffsetCommit request: the coordinator ended before it answered" in caplog.text


def test_a_deadline_that_passes_closes_the_connection(run, caplog):
    async def test(bench):
        sock = bench.connect()
        await bench.send(sock, frame(COMMIT, 0))
        (first,) = await bench.until_arrived(1)  # the coordinator is reached: the next request is sent at once
        first.answer(b"x")
        assert await bench.receive(sock) == b"x"
        await bench.send(sock, frame(HEARTBEAT, 1))
        assert await bench.receive(sock) == b""
        assert bench.client.waiting == 0

    run(test, routes={**ROUTES, HEARTBEAT: Route("Heartbeat", 0.05, 8, False)})
    assert "1 requests fail: the coordinator has not answered them in time" in caplog.text
    assert "cannot answer the Heartbeat request: the coordinator did not answer in time" in caplog.text


def test_a_request_that_says_how_long_its_client_waits_is_not_given_up_before():
    """Creating thousands of partitions on a busy machine takes longer than 30 s, and its client may wait for minutes."""
    timed = {
        row.name: row.patience_s
        for row in BY_KEY.values()
        if row.place in FORWARDED and hasattr(by_key(row.key).request(), "timeout_ms")
    }
    assert {"CreateTopics", "CreatePartitions", "DeleteTopics", "DeleteRecords", "ElectLeaders"} <= timed.keys()
    assert set(timed.values()) == {LONG_PATIENCE_S}


def test_a_full_queue_closes_the_connection_of_the_next_request(run, caplog):
    async def test(bench):
        hidden = Path(bench.path).rename(bench.path + ".away")  # nobody can connect: what is asked stays in the queue
        socks = [bench.connect() for _ in range(3)]
        for number, sock in enumerate(socks[:2]):
            await bench.send(sock, frame(COMMIT, number))
            while bench.client.queued <= number:
                await asyncio.sleep(0)
        await bench.send(socks[2], frame(COMMIT, 2))
        assert await bench.receive(socks[2]) == b""
        hidden.rename(bench.path)
        await bench.serve()
        for request in await bench.until_arrived(2):
            request.answer(b"x")
        assert [await bench.receive(sock) for sock in socks[:2]] == [b"x", b"x"]

    run(test, serving=False, max_queued=2)
    assert "cannot answer the OffsetCommit request: 2 requests of" in caplog.text


def test_the_requests_of_a_turn_are_sent_in_one_write(run):
    async def test(bench):
        await bench.serve()
        first = bench.connect()
        await bench.send(first, frame(COMMIT, 0))
        await bench.until_arrived(1)
        writes = []
        write = bench.client._transport.write

        def counted(data):
            writes.append(len(data))
            write(data)

        bench.client.opened(counted)
        socks = [bench.connect() for _ in range(4)]
        for number, sock in enumerate(socks):
            sock.send(frame(COMMIT, 2 * number) + frame(COMMIT, 2 * number + 1))
        await bench.until_arrived(9)
        assert len(writes) == 1

    run(test, serving=False)
