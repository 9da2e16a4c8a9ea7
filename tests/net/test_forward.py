"""Frames between workers and coordinator, and the guarantees of both ends when the other one dies, is slow or sends malformed
frames.
"""

import asyncio
import socket
import time
from pathlib import Path

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from odradek._ext.net.forward_frames import FrameCutter
from odradek._ext.net.transaction_questions import decode_codes, decode_questions, encode_codes, encode_questions
from odradek.net.forward import ConnectionLost, DeadlinePassed, ForwardClient, QueueFull
from odradek.net.forward_frames import (
    ForwardContext,
    ForwardReply,
    Kind,
    MalformedFrame,
    Status,
    decode_auto_created,
    decode_names,
    encode_auto_created,
    encode_names,
)
from odradek.net.forward_server import ForwardServer
from tests.net.frames import ForwardRequest, decode_reply, decode_request, encode_reply, encode_request

NUMBERS = st.integers(0, 2**64 - 1)
NULLABLE = st.none() | st.text(max_size=30)
CONTEXTS = st.builds(
    ForwardContext,
    NUMBERS,
    st.integers(0, 65535),
    st.text(max_size=30),
    NULLABLE,
    st.text(max_size=30),
    NULLABLE,
    NULLABLE,
)
REQUESTS = st.builds(ForwardRequest, st.sampled_from(Kind), CONTEXTS, st.floats(0, 1e12), st.binary(max_size=50))
REPLIES = st.builds(ForwardReply, st.sampled_from(Status), NUMBERS, st.binary(max_size=50))


@given(NUMBERS, REQUESTS)
def test_requests_survive_the_round_trip(correlation, request):
    frame = encode_request(correlation, request.kind, request.context, request.deadline, request.payload)
    assert FrameCutter().feed(frame) == [frame[4:]]
    assert decode_request(frame[4:]) == (correlation, request)


@given(NUMBERS, REPLIES)
def test_replies_survive_the_round_trip(correlation, reply):
    assert decode_reply(encode_reply(correlation, reply)[4:]) == (correlation, reply)


@given(
    st.lists(st.text(max_size=20), max_size=5),
    st.lists(st.tuples(st.text(), st.integers(-1, 200), NULLABLE), max_size=5),
)
def test_auto_create_survives_the_round_trip(names, errors):
    assert decode_names(encode_names(names)) == names
    assert decode_auto_created(encode_auto_created(errors)) == errors


def test_frames_are_cut_wherever_the_stream_is_split():
    context = ForwardContext(1, 0, "peer")
    whole = b"".join(encode_request(n, Kind.KAFKA, context, 1.0, bytes(n)) for n in range(3))
    for at in range(len(whole) + 1):
        cutter = FrameCutter()
        frames = cutter.feed(whole[:at]) + cutter.feed(whole[at:])
        assert [decode_request(frame)[0] for frame in frames] == [0, 1, 2]


def test_frames_with_wrong_lengths_are_refused():
    with pytest.raises(MalformedFrame, match="at most 1000"):
        FrameCutter(1000).feed((1001).to_bytes(4, "big"))
    frame = encode_request(1, Kind.KAFKA, ForwardContext(1, 0, "peer", "client"), 1.0, b"")[4:]
    for end in range(len(frame)):
        with pytest.raises(MalformedFrame):
            decode_request(frame[:end])
    with pytest.raises(MalformedFrame, match="kind 9"):
        decode_request(frame[:8] + b"\x09" + frame[9:])
    with pytest.raises(MalformedFrame):
        decode_reply(b"\0" * 8 + b"\x63" + b"\0" * 8)


@given(st.binary(max_size=80), st.booleans())
def test_hostile_bytes_are_either_refused_or_a_frame_that_encodes_to_the_same_bytes(data, as_request):
    decode, head = (decode_request, 21) if as_request else (decode_reply, 17)
    try:
        correlation, message = decode(data)
    except MalformedFrame:
        return
    assert len(data) >= head
    assert data.endswith(message.payload)
    if as_request:
        assert message.context.connection_id == int.from_bytes(data[21:29], "big")
    else:
        assert encode_reply(correlation, message)[4:] == data


@given(REQUESTS, st.integers(17, 20), st.integers(0, 255))
def test_a_context_of_another_length_is_refused_or_stays_within_its_frame(request, at, byte):
    frame = bytearray(encode_request(1, request.kind, request.context, request.deadline, request.payload)[4:])
    frame[at] = byte
    try:
        _, message = decode_request(bytes(frame))
    except MalformedFrame:
        return
    assert len(message.payload) <= len(frame) - 21 - 10


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_frames_are_independent_of_the_pieces_in_which_they_arrive(payloads, data):
    whole = b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)
    cutter, frames, rest = FrameCutter(), [], whole
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        frames += cutter.feed(rest[:size])
        rest = rest[size:]
    assert frames == payloads


class Bench:
    """The supervisor's listening socket, a client as a worker has it, servers as coordinators come and go."""

    def __init__(self, path, **limits):
        self.path = str(path)
        self.loop = asyncio.get_running_loop()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(16)
        self.client = ForwardClient(self.loop, self.path, **limits)
        self.servers = []

    def hide(self):
        """Nobody can connect any more."""
        Path(self.path).rename(self.path + ".away")

    def show(self):
        Path(self.path + ".away").rename(self.path)

    async def coordinator(self, handler, **options):
        server = ForwardServer(handler, **options)
        await server.start(self.listener.dup())
        self.servers.append(server)
        return server

    def ask(self, payload=b"", connection=1, timeout_s=100.0, kind=Kind.KAFKA):
        """The future of the answer, or of the ForwardError."""
        future = self.loop.create_future()

        def callback(result):
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        context = ForwardContext(connection, 2, "[::1]:99", "c", "User:ANONYMOUS", "name", "1.0")
        self.client.send(payload, context, self.loop.time() + timeout_s, callback, kind)
        return future

    async def close(self):
        self.client.close()
        for server in self.servers:
            await server.stop(0)
        self.listener.close()


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request, tmp_path):
    """Runs `test(bench)` on a fresh loop within 120 s."""

    def runner(test, **limits):
        async def main():
            bench = Bench(tmp_path / "forward", **limits)
            try:
                await asyncio.wait_for(test(bench), 120)
            finally:
                await bench.close()

        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as loop:
            loop.run(main())

    return runner


async def echo(request):
    return ForwardReply(Status.OK, 7, request.payload)


def test_requests_are_answered_with_context_and_version(run):
    seen = []

    async def handler(request):
        seen.append(request)
        return ForwardReply(Status.OK, 42, request.payload[::-1])

    async def test(bench):
        await bench.coordinator(handler)
        replies = await asyncio.gather(bench.ask(b"abc"), bench.ask(b"x" * 1_000_000), bench.ask(kind=Kind.AUTO_CREATE))
        assert replies == [
            ForwardReply(Status.OK, 42, b"cba"),
            ForwardReply(Status.OK, 42, b"x" * 1_000_000),
            ForwardReply(Status.OK, 42, b""),
        ]
        assert bench.client.waiting == 0

    run(test)
    assert seen[0].context == ForwardContext(1, 2, "[::1]:99", "c", "User:ANONYMOUS", "name", "1.0")
    assert [request.kind for request in seen] == [Kind.KAFKA, Kind.KAFKA, Kind.AUTO_CREATE]


def test_a_handler_that_raises_fails_its_own_request_only(run, caplog):
    async def handler(request):
        if request.payload == b"bad":
            raise RuntimeError("broken handler")
        return await echo(request)

    async def test(bench):
        await bench.coordinator(handler)
        bad, good = await asyncio.gather(bench.ask(b"bad"), bench.ask(b"good"))
        assert (bad.status, good.payload) == (Status.FAILED, b"good")

    run(test)
    (line,) = [record for record in caplog.records if record.name == "odradek.forwarding" and record.exc_info]
    assert line.message == "a forwarded request of [::1]:99 (client id c) failed"
    assert (line.connection_id, line.client_address, line.client_id) == (1, "[::1]:99", "c")


def test_requests_sent_before_the_coordinator_died_fail_and_are_never_sent_again(run):
    async def test(bench):
        seen = []
        arrived = asyncio.Event()

        async def never(request):
            seen.append(request.payload)
            arrived.set()
            await asyncio.Event().wait()

        first = await bench.coordinator(never)
        lost = bench.ask(b"lost")
        await arrived.wait()
        await first.stop(0)
        with pytest.raises(ConnectionLost):
            await lost

        async def second(request):
            seen.append(request.payload)
            return await echo(request)

        await bench.coordinator(second)
        assert (await bench.ask(b"next")).payload == b"next"
        assert seen == [b"lost", b"next"]

    run(test)


def test_requests_wait_for_the_first_coordinator(run):
    async def test(bench):
        waiting = [bench.ask(b"%d" % n) for n in range(5)]
        await asyncio.wait(waiting, timeout=0.05)
        assert not any(future.done() for future in waiting)
        await bench.coordinator(echo)
        assert [reply.payload for reply in await asyncio.gather(*waiting)] == [b"0", b"1", b"2", b"3", b"4"]

    run(test)


def test_requests_wait_for_a_socket_that_does_not_exist_yet(run):
    async def test(bench):
        bench.hide()
        waiting = bench.ask(b"early")
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
        await bench.coordinator(echo)
        bench.show()
        assert (await waiting).payload == b"early"

    run(test)


def test_a_deadline_ends_the_wait_and_reports_whether_the_request_was_sent(run):
    async def test(bench):
        arrived = asyncio.Event()

        async def slow(request):
            arrived.set()
            await asyncio.Event().wait()

        bench.hide()
        with pytest.raises(DeadlinePassed) as unsent:
            await bench.ask(timeout_s=0.05)
        bench.show()
        await bench.coordinator(slow)
        bench.ask(connection=2)
        await arrived.wait()  # what is asked now is sent at once, however long anybody is kept from running
        bench.client.cancel(2)
        with pytest.raises(DeadlinePassed) as sent:
            await bench.ask(timeout_s=0.05)
        assert (unsent.value.sent, sent.value.sent) == (False, True)
        assert bench.client.waiting == 0

    run(test)


def test_a_request_whose_deadline_passed_in_the_socket_is_not_executed(run):
    async def test(bench):
        seen = []

        async def handler(request):
            seen.append(request.payload)
            return await echo(request)

        with pytest.raises(DeadlinePassed):  # the socket takes it, nobody reads
            await bench.ask(b"old", timeout_s=0.05)
        await bench.coordinator(handler)
        await bench.ask(b"new")
        assert seen == [b"new"]

    run(test)


def test_a_request_read_in_the_millisecond_of_its_deadline_is_not_executed(run):
    async def test(bench):
        seen = []
        context = ForwardContext(1, 0, "peer")

        async def handler(request):
            seen.append(request.payload)
            return await echo(request)

        await bench.coordinator(handler)
        reader, writer = await asyncio.open_unix_connection(bench.path)
        for n in range(20):
            late = encode_request(2 * n, Kind.METRICS, context, time.monotonic(), b"late")
            writer.write(late + encode_request(2 * n + 1, Kind.METRICS, context, time.monotonic() + 100, b"in time"))
            size = int.from_bytes(await reader.readexactly(4), "big")
            assert decode_reply(await reader.readexactly(size))[0] == 2 * n + 1
        assert set(seen) == {b"in time"}
        writer.close()

    run(test)


def test_cancelling_a_connection_cancels_only_its_requests_in_the_coordinator(run):
    async def test(bench):
        states = {}
        started = asyncio.Semaphore(0)
        ended = asyncio.Event()

        async def handler(request):
            connection = request.context.connection_id
            started.release()
            if connection == 2:
                await ended.wait()
                return await echo(request)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                states[connection] = "cancelled"
                ended.set()
                raise

        await bench.coordinator(handler)
        dropped, kept = bench.ask(connection=1), bench.ask(b"kept", connection=2)
        await started.acquire()
        await started.acquire()
        bench.client.cancel(1)
        assert (await kept).payload == b"kept"
        assert (states, dropped.done()) == ({1: "cancelled"}, False)

    run(test)


def test_a_request_cancelled_before_it_is_sent_is_never_sent(run):
    async def test(bench):
        seen = []

        async def handler(request):
            seen.append(request.payload)
            return await echo(request)

        bench.hide()
        bench.ask(b"dropped", connection=1)
        kept = bench.ask(b"kept", connection=2)
        bench.client.cancel(1)
        bench.show()
        await bench.coordinator(handler)
        await kept
        assert seen == [b"kept"]

    run(test)


def test_the_queue_is_bounded_by_count_and_bytes_of_the_waiting_requests(run):
    async def test(bench):
        bench.hide()
        bench.ask(b"12345", connection=1)
        with pytest.raises(QueueFull, match="1 requests of 5 bytes"):
            bench.ask(b"123456")
        bench.ask(b"", connection=1)
        bench.ask(b"", connection=2)
        with pytest.raises(QueueFull):
            bench.ask(b"")
        bench.client.cancel(1)
        for _ in range(500):
            bench.ask(b"1234567890", connection=3)
            bench.client.cancel(3)
        assert len(bench.client.queue) < 100
        last = bench.ask(b"1234567890")
        bench.show()
        await bench.coordinator(echo)
        assert (await last).payload == b"1234567890"

    run(test, max_queued=3, max_queued_bytes=10)


def test_a_coordinator_with_too_many_bytes_in_flight_stops_reading(run):
    async def test(bench):
        running, gate = [], asyncio.Event()

        async def handler(request):
            running.append(request)
            await gate.wait()
            return ForwardReply(Status.OK, 0)

        server = await bench.coordinator(handler, max_bytes_in_flight=1_000_000)
        futures = [bench.ask(bytes(300_000)) for _ in range(40)]
        while server.bytes_in_flight <= 1_000_000:
            await asyncio.sleep(0.01)
        await asyncio.wait(futures, timeout=0.1)  # were it still reading, more would come
        assert server.bytes_in_flight < 3_000_000
        assert bench.client.queue  # the rest waits with the worker, where it can be cancelled
        gate.set()
        await asyncio.gather(*futures)
        assert (server.bytes_in_flight, len(running)) == (0, 40)

    run(test)


@pytest.mark.parametrize("with_task", [False, True])
def test_parked_requests_are_in_flight_but_do_not_count_in_bytes(run, with_task):
    async def test(bench):
        parked, gate = [], asyncio.Event()

        def park(request):
            assert len(request.payload) in (0, 300_000)
            if not request.payload:
                return False
            request.park()
            assert request.payload == b""
            parked.append(request)
            return True

        def at_once(request):
            return not with_task and park(request)

        async def handler(request):
            if with_task and park(request):
                await gate.wait()
                return ForwardReply(Status.OK, 5)
            return await echo(request)

        server = await bench.coordinator(handler, at_once=at_once, max_bytes_in_flight=1_000_000)
        futures = [bench.ask(bytes(300_000), connection=number) for number in range(2, 22)]
        assert (await bench.ask(b"")).metadata_version == 7
        assert (server.bytes_in_flight, server.in_flight, len(parked)) == (0, 20, 20)
        gate.set()
        for request in parked:
            request.answer(b"", 5)
            request.park()  # nothing more to give back
        replies = await asyncio.gather(*futures)
        assert {reply.metadata_version for reply in replies} == {5}
        assert (server.bytes_in_flight, server.in_flight) == (0, 0)

    run(test)


def at_once_for(*payloads):
    """Serves these without a task."""

    def at_once(request):
        if request.payload in payloads:
            request.answer(request.payload, 3)
            return True
        return False

    return at_once


def test_a_request_served_at_once_needs_no_handler(run):
    reads = []

    async def test(bench):
        async def handler(request):
            assert request.payload == b"slow"
            return await echo(request)

        await bench.coordinator(handler, at_once=at_once_for(b"quick"), end_of_read=lambda: reads.append(1))
        replies = await asyncio.gather(bench.ask(b"quick"), bench.ask(b"slow", connection=2), bench.ask(b"quick"))
        assert [reply.metadata_version for reply in replies] == [3, 7, 3]

    run(test)
    assert reads


def test_at_once_does_not_overtake_earlier_requests_of_the_connection(run):
    async def test(bench):
        order = []

        async def handler(request):
            order.append(request.payload)
            return await echo(request)

        def at_once(request):
            if not request.payload.startswith(b"quick"):
                return False
            order.append(request.payload)
            request.answer(b"", 3)
            return True

        await bench.coordinator(handler, at_once=at_once)
        await bench.ask(b"quick-first")
        bench.client.hold()
        requests = [bench.ask(b"slow"), bench.ask(b"quick-same"), bench.ask(b"quick-other", connection=2)]
        bench.client.release()
        await asyncio.gather(*requests)
        assert order.index(b"slow") < order.index(b"quick-same")
        assert order.index(b"quick-other") < order.index(b"slow")
        await bench.ask(b"quick-again")
        assert order[-1] == b"quick-again"

    run(test)


def test_at_once_that_raises_fails_its_own_request_only(run):
    async def test(bench):
        def at_once(request):
            if request.payload == b"bad":
                raise RuntimeError("broken")
            return False

        server = await bench.coordinator(echo, at_once=at_once)
        bad, good = await asyncio.gather(bench.ask(b"bad"), bench.ask(b"good", connection=2))
        assert (bad.status, good.payload) == (Status.FAILED, b"good")
        assert server.bytes_in_flight == 0

    run(test)


def test_a_stop_lets_requests_under_way_finish(run):
    async def test(bench):
        gate, arrived = asyncio.Event(), asyncio.Event()

        async def handler(request):
            arrived.set()
            await gate.wait()
            return await echo(request)

        server = await bench.coordinator(handler)
        future = bench.ask(b"last")
        await arrived.wait()
        stopping = asyncio.ensure_future(server.stop(10))
        gate.set()
        assert (await future).payload == b"last"
        await stopping

    run(test)


def test_a_malformed_frame_ends_only_its_stream(run):
    async def test(bench):
        await bench.coordinator(echo)
        reader, writer = await asyncio.open_unix_connection(bench.path)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        assert (await bench.ask(b"fine")).payload == b"fine"

    run(test)


def test_a_callback_that_raises_does_not_prevent_other_answers(run, caplog):
    async def test(bench):
        await bench.coordinator(echo)
        payloads = []

        def callback(result):
            payloads.append(result.payload)
            if result.payload == b"bad":
                raise RuntimeError("a broken asker")

        bench.client.hold()
        for payload in (b"first", b"bad", b"last"):
            context = ForwardContext(1, 0, "peer")
            bench.client.send(payload, context, bench.loop.time() + 100, callback)
        after = bench.ask(b"after")
        bench.client.release()
        await after
        assert payloads == [b"first", b"bad", b"last"]

    run(test)
    assert "a broken asker" in caplog.text


def test_an_end_of_read_that_raises_delays_no_answer(run, caplog):
    async def test(bench):
        await bench.coordinator(echo, at_once=at_once_for(b"quick"), end_of_read=lambda: 1 / 0)
        assert (await bench.ask(b"quick")).payload == b"quick"
        assert (await bench.ask(b"slow")).payload == b"slow"

    run(test)
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    "protocol_error",
    [
        (200 << 20).to_bytes(4, "big"),  # a frame that is too long
        encode_reply(1, ForwardReply(Status.OK, 0))[:-1]
        + b"\0" * 5,  # a good one, and the beginning of one of length 0
        encode_reply(2, ForwardReply(Status.OK, 0)),  # for what was not sent: it is cancelled below
        b"\0\0\0\x11" + (1).to_bytes(8, "big") + b"\x09" + bytes(8),  # of no known status
    ],
)
def test_a_coordinator_that_sends_malformed_frames_loses_its_stream(run, protocol_error):
    async def test(bench):
        request = bench.ask(b"asked")
        accepted, _ = await bench.loop.run_in_executor(None, bench.listener.accept)
        with accepted:
            accepted.setblocking(False)
            await bench.loop.sock_recv(accepted, 1)
            await bench.loop.sock_sendall(accepted, protocol_error + bytes(4))
            outcome = await asyncio.gather(request, return_exceptions=True)
            assert isinstance(outcome[0], ForwardReply | ConnectionLost)
            while await bench.loop.sock_recv(accepted, 1000):
                pass
        await bench.coordinator(echo)
        assert (await bench.ask(b"fine")).payload == b"fine"

    run(test)


def test_a_stream_of_another_user_is_refused(run, monkeypatch):
    async def test(bench):
        monkeypatch.setattr("odradek.net.forward_server.os.geteuid", lambda: 12345)
        seen = []

        async def handler(request):
            seen.append(request)
            return await echo(request)

        await bench.coordinator(handler)
        with pytest.raises((ConnectionLost, DeadlinePassed)):
            await bench.ask(b"not for you", timeout_s=5)
        assert seen == []

    run(test)


PRODUCERS = st.tuples(st.text(max_size=20), st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.booleans())
ASKED = st.tuples(st.text(max_size=20), st.integers(-1, 2**31 - 1))
QUESTIONS = st.builds(lambda head, asked: (*head, tuple(asked)), PRODUCERS, st.lists(ASKED, max_size=4))


@given(st.lists(QUESTIONS, max_size=4), st.lists(st.integers(-1, 2**15 - 1), max_size=20))
def test_questions_of_transactions_survive_the_round_trip(questions, codes):
    assert decode_questions(encode_questions(questions)) == questions
    assert decode_codes(encode_codes(codes), len(codes)) == tuple(codes)


def test_questions_cut_anywhere_or_longer_are_refused():
    asked = [("topic", 1), ("tópico", 2)]
    payload = encode_questions([("id", 7, 0, False, asked), ("tränsaktion", 8, 1, True, asked)])
    for size in range(len(payload)):
        with pytest.raises(MalformedFrame):
            decode_questions(payload[:size])
    for longer in (b"\0", payload):
        with pytest.raises(MalformedFrame):
            decode_questions(payload + longer)
    for count in (0, 1, 3):
        with pytest.raises(MalformedFrame):
            decode_codes(encode_codes([0, 0]), count)
    with pytest.raises(MalformedFrame):
        decode_codes(b"\0\0\0", 1)


def test_questions_with_wrong_values_are_refused():
    payload = encode_questions([("id", 7, 0, False, [("topic", 1)])])
    flags_at, count_at, name_at, most = 4 + 4 + 2 + 8 + 2, 4 + 4 + 2 + 8 + 2 + 1, 4, b"\xff\xff\xff\xff"
    for at, wrong in ((flags_at, b"\x02"), (count_at, most), (name_at, most), (0, most)):
        with pytest.raises(MalformedFrame):
            decode_questions(payload[:at] + wrong + payload[at + len(wrong) :])
