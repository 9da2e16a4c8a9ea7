"""The memory that a worker keeps for idle connections is counted, limited in total, and freed in an order that spares active
clients.
"""

import contextlib
import gc
import struct
import time
import tracemalloc

import pytest

from odradek._ext.net.kept_memory import KeptMemory
from odradek._ext.testing import slot_probe
from odradek._ext.testing.connection_times import set_last_activity
from odradek.protocol import decode
from odradek.protocol.schemas import fetch, produce
from tests.api.worker_harness import HandWorker
from tests.wire import batch, fetch_request, produce_request, values

PARTITION = 336
IDLE_MS, UNFINISHED_MS = 2_000, 11_000
LONG_MS = 600_000


@pytest.fixture
def worker(tmp_path):
    worker = HandWorker(tmp_path)
    yield worker
    worker.close()


def look(worker, budget, after_ms=IDLE_MS):
    """A look at what is kept, as if so much time had passed since the last byte."""
    memory = KeptMemory(worker.loop.connections, budget)
    memory.look(int(time.monotonic() * 1000) + after_ms)
    return memory


def fetches(worker, wire, partitions, **options):
    """A Fetch without a session of so many partitions of topics that are not there."""
    places = [(f"topic-{number % 10}", 1 + number, 0) for number in range(partitions)]
    places.sort()
    send(worker, wire, fetch_request(places, **options))
    return receive(worker, wire)


def send(worker, wire, request):
    """A Fetch that may be larger than what the socket takes at once."""
    left = memoryview(wire.frame(request, fetch.API_KEY, 4))
    wire.socket.setblocking(False)
    while left:
        with contextlib.suppress(BlockingIOError):
            left = left[wire.socket.send(left) :]
        worker.turn()
    wire.socket.settimeout(90)


def receive(worker, wire):
    """A response of any size."""
    data = bytearray()
    wire.socket.setblocking(False)
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        with contextlib.suppress(BlockingIOError):
            data += wire.socket.recv(1 << 20)
        worker.turn()
    wire.socket.settimeout(90)
    wire._sent.pop(0)
    response, _ = decode(fetch.Response, 4, bytes(data), 8)
    return response


def test_the_state_of_a_fetch_without_a_session_is_counted_and_dropped_above_the_limit(worker):
    wires = [worker.connect() for _ in range(4)]
    for wire in wires:
        fetches(worker, wire, 1000)
    each = look(worker, 1 << 30).kept // 4
    assert 1000 * PARTITION <= each <= 1200 * PARTITION
    memory = look(worker, 2 * each + each // 2)
    assert (memory.kept, memory.dropped, memory.closed) == (2 * each, 2, 0)
    again = look(worker, 0)
    assert (again.kept, again.dropped, again.closed) == (0, 2, 0)
    assert look(worker, 1 << 30).kept == 0
    for wire in wires:
        assert len(fetches(worker, wire, 1000).responses) == 10
    assert look(worker, 1 << 30).kept == 4 * each


def test_the_longest_idle_connections_lose_their_memory_first(worker):
    wires = [worker.connect() for _ in range(3)]
    for wire in wires:
        fetches(worker, wire, 1000)
        time.sleep(0.02)
    fetches(worker, wires[0], 1000)  # the second one is idle for the longest now
    connections = list(worker.loop.connections.by_id.values())
    each = look(worker, 1 << 30).kept // 3
    look(worker, 2 * each)
    assert [one.session is not None for one in connections] == [True, False, True]


def test_a_fetch_whose_state_was_dropped_continues_at_its_offset(worker):
    slot = worker.create("t")
    wire = worker.connect()
    for number in range(3):
        assert slot_probe.append(slot, [batch(b"%d" % number)])[0][0] == 0
        wire.send(fetch_request([("t", 0, number)], wait_ms=LONG_MS), fetch.API_KEY, 12)
        worker.turn()
        assert values(wire.receive().responses[0].partitions[0].records) == [b"%d" % number]
        assert look(worker, 0).dropped == 1


def test_a_session_is_not_dropped(worker):
    """Sessions have bounds of their own."""
    slot = worker.create("t")
    wire = worker.connect()
    wire.send(fetch_request([("t", 0, 0)], session_epoch=0), fetch.API_KEY, 12)
    worker.turn()
    session_id = wire.receive().session_id
    memory = look(worker, 0)
    assert (memory.kept, memory.dropped, memory.closed) == (0, 0, 0)
    assert slot_probe.append(slot, [batch(b"x")])[0][0] == 0
    wire.send(fetch_request([], session_id=session_id, session_epoch=1), fetch.API_KEY, 12)
    worker.turn()
    assert values(wire.receive().responses[0].partitions[0].records) == [b"x"]


def test_the_state_of_an_ended_session_is_counted_and_dropped(worker):
    """Whoever knows its id may end it, and so does the eviction of sessions that nobody uses."""
    wire, other = worker.connect(), worker.connect()
    places = [("topic", number, 0) for number in range(1000)]
    wire.send(fetch_request(places, session_epoch=0), fetch.API_KEY, 12)
    worker.turn()
    session_id = wire.receive().session_id
    assert session_id and look(worker, 0).kept == 0
    other.send(fetch_request([], session_id=session_id, session_epoch=-1), fetch.API_KEY, 12)
    worker.turn()
    other.receive()
    assert look(worker, 1 << 30).kept >= 1000 * PARTITION
    memory = look(worker, 0)
    assert (memory.kept, memory.dropped, memory.closed) == (0, 1, 0)
    assert len(fetches(worker, wire, 1000).responses) == 10


def test_an_active_connection_keeps_its_memory(worker):
    wire = worker.connect()
    fetches(worker, wire, 1000)
    set_last_activity(next(iter(worker.loop.connections.by_id.values())), int(time.monotonic() * 1000) + LONG_MS)
    memory = look(worker, 0, after_ms=LONG_MS)
    assert (memory.kept, memory.dropped) == (0, 0)


def begin_frame(worker, wire, size, sent):
    """A part of a request."""
    wire.socket.sendall(struct.pack(">i", size) + bytes(sent))
    worker.turn()


def test_requests_that_do_not_arrive_whole_are_counted_and_their_connections_closed_after_a_while(worker, caplog):
    staying, leaving, small = worker.connect(), worker.connect(), worker.connect()
    begin_frame(worker, leaving, 60_000_000, 100_000)
    time.sleep(0.02)
    begin_frame(worker, staying, 60_000_000, 100_000)
    begin_frame(worker, small, 100, 20)
    total = look(worker, 1 << 30).kept
    assert total == 2 * 100_004 + 24
    assert look(worker, total - 1, after_ms=5_000).closed == 0
    memory = look(worker, total - 1, after_ms=UNFINISHED_MS)
    assert (memory.closed, memory.kept) == (1, 100_004 + 24)
    assert leaving.closed_by_broker()
    assert len(worker.loop.connections.by_id) == 2
    assert "connections that are idle or slow kept 200032 bytes, this worker may keep 200031" in caplog.text
    assert worker.loop.connections.closes["idle"] == 1


def test_responses_that_are_not_read_are_counted_and_their_connections_closed_after_a_while(worker):
    slot = worker.create("t")
    assert slot_probe.append(slot, [batch(b"x" * 10_000)])[0][0] == 0
    wire = worker.connect(tcp=True)
    (connection,) = worker.loop.connections.by_id.values()
    wire.socket.settimeout(0.01)
    for _ in range(500):
        try:
            wire.send(fetch_request([("t", 0, 0)]), fetch.API_KEY, 12)
        except TimeoutError:
            break
        worker.turn()
        if connection.queued_bytes > 20_000:
            break
    queued = connection.queued_bytes
    assert queued > 20_000
    assert look(worker, 1 << 30).kept >= queued
    assert look(worker, queued // 2, after_ms=UNFINISHED_MS).closed == 1
    assert not worker.loop.connections.by_id


def test_long_polls_of_very_many_partitions_are_closed_the_largest_first(worker, caplog):
    wires = [worker.connect() for _ in range(3)]
    worker.create_many("t", 40)
    for wire, partitions in zip(wires, (10, 40, 20), strict=True):
        places = [("t", number, 0) for number in range(partitions)]
        send(worker, wire, fetch_request(places, wait_ms=LONG_MS, min_bytes=1 << 30))
    assert worker.room.waiters == 3
    total = look(worker, 1 << 30).kept
    memory = look(worker, total - 1)
    assert memory.closed == 1
    assert wires[1].closed_by_broker()
    assert worker.room.waiters == 2
    assert "the broker keeps" in caplog.text and "odradek.connections.kept.bytes" in caplog.text
    small = look(worker, 64 * total)
    assert small.closed == 0


def long_poll(worker, address, partitions):
    """A connection from an address whose Fetch waits for so many partitions of the topic "t"."""
    wire = worker.connect(address=address)
    places = [("t", number, 0) for number in range(partitions)]
    send(worker, wire, fetch_request(places, wait_ms=LONG_MS, min_bytes=1 << 30))
    return wire


def addresses(worker):
    """The clients' addresses of all connections that are open, sorted."""
    return sorted(connection.peer.rpartition(":")[0] for connection in worker.loop.connections.by_id.values())


def test_long_polls_of_the_address_that_keeps_most_are_closed_its_largest_first(worker):
    worker.create_many("t", 40)
    long_poll(worker, "127.0.0.2", 40)  # the largest of all
    greedy = [long_poll(worker, "127.0.0.1", partitions) for partitions in (20, 30, 20, 20)]
    assert worker.room.waiters == 5
    total = look(worker, 1 << 30).kept
    assert look(worker, total - 1).closed == 1
    assert greedy[1].closed_by_broker()
    assert addresses(worker) == ["127.0.0.1"] * 3 + ["127.0.0.2"]
    total = look(worker, 1 << 30).kept
    assert look(worker, total - 1).closed == 1
    assert addresses(worker) == ["127.0.0.1"] * 2 + ["127.0.0.2"]


def test_an_address_within_its_share_loses_no_long_poll_to_one_with_many_small_ones(worker):
    worker.create_many("t", 40)
    long_poll(worker, "127.0.0.2", 40)
    alone = look(worker, 1 << 30).kept
    greedy = [long_poll(worker, "127.0.0.1", 1) for _ in range(150)]
    budget = 2 * alone
    assert look(worker, 1 << 30).kept > budget
    assert look(worker, budget).closed == 0
    assert addresses(worker) == ["127.0.0.1"] * len(greedy) + ["127.0.0.2"]


def test_incomplete_requests_of_the_address_that_keeps_most_are_closed(worker):
    begin_frame(worker, worker.connect(address="127.0.0.2"), 60_000_000, 1_000)
    time.sleep(0.02)  # idle for longer than the others
    greedy = [worker.connect(address="127.0.0.1") for _ in range(10)]
    for wire in greedy:
        begin_frame(worker, wire, 60_000_000, 1_000)
    memory = look(worker, 5_000, after_ms=UNFINISHED_MS)
    assert (memory.closed, memory.kept) == (7, 4 * 1_004)
    assert addresses(worker) == ["127.0.0.1"] * 3 + ["127.0.0.2"]


class ActiveClients:
    """Looks of one KeptMemory, twice a second by the test's time, which begins when this is made, before the clients begin. All
    clients send or read something before each look."""

    def __init__(self, worker, budget):
        self._worker = worker
        self.memory = KeptMemory(worker.loop.connections, budget)
        self._start_ms = int(time.monotonic() * 1000)
        self.now_ms = 0

    def took_ms(self):
        """The real time in ms since this was made: by so much the clients may have begun later than the test's time."""
        return int(time.monotonic() * 1000) - self._start_ms

    def step(self, *wires, sent=1):
        """Half a second: each of `wires` sends so many bytes."""
        self.now_ms += 500
        for wire in wires:
            wire.socket.sendall(bytes(sent))
        self._worker.turn()
        for connection in self._worker.loop.connections.by_id.values():
            set_last_activity(connection, self._start_ms + self.now_ms)
        self.memory.look(self._start_ms + self.now_ms)


def test_a_client_that_sends_a_byte_now_and_then_is_counted_and_closed_as_a_silent_one(worker):
    clients = ActiveClients(worker, 50_000)
    wire = worker.connect()
    begin_frame(worker, wire, 60_000_000, 100_000)
    late_ms = clients.took_ms()
    while worker.loop.connections.by_id and clients.now_ms < 60_000:
        clients.step(wire)
        assert clients.memory.kept > 100_000 or clients.now_ms < 1_500 + late_ms or clients.memory.closed
    assert 10_000 <= clients.now_ms <= 10_500 + late_ms
    assert wire.closed_by_broker()


def test_a_frame_may_take_any_time_to_arrive_while_the_memory_is_plentiful(worker):
    clients = ActiveClients(worker, 1 << 20)
    wire = worker.connect()
    begin_frame(worker, wire, 60_000_000, 100_000)
    while clients.now_ms < 120_000:
        clients.step(wire)
    assert clients.memory.kept > 100_000 and clients.memory.closed == 0


def test_frames_that_have_just_begun_do_not_count(worker):
    """However many clients produce: their frames, each incomplete for a moment, push nobody's state out."""
    now_ms = int(time.monotonic() * 1000)  # before they begin
    waiting = worker.connect()
    fetches(worker, waiting, 1000)
    for _ in range(10):
        begin_frame(worker, worker.connect(), 60_000_000, 100_000)
    for connection in list(worker.loop.connections.by_id.values())[1:]:
        set_last_activity(connection, now_ms + IDLE_MS)
    memory = KeptMemory(worker.loop.connections, 400_000)
    memory.look(now_ms + 900)
    assert (memory.kept, memory.dropped, memory.closed) == (0, 0, 0)


def test_of_the_frames_of_one_address_those_with_the_least_progress_are_closed_first(worker):
    clients = ActiveClients(worker, 180_000)
    *stalled, moving = [worker.connect(address="127.0.0.1") for _ in range(3)]
    for wire in (
        *stalled,
        moving,
    ):  # in this order: only a frame that began ten seconds before, by real time, is closed
        begin_frame(worker, wire, 60_000_000, 100_000)
    while clients.memory.closed < 2 and clients.now_ms < 60_000:
        for wire in stalled:
            with contextlib.suppress(OSError):  # closed
                wire.socket.sendall(b"x")
        clients.step(moving, sent=2_000)
    assert all(wire.closed_by_broker() for wire in stalled)
    clients.step(moving)
    assert len(worker.loop.connections.by_id) == 1


def test_a_client_that_reads_a_byte_now_and_then_keeps_its_responses_no_longer_than_one_that_reads_nothing(worker):
    slot = worker.create("t")
    assert slot_probe.append(slot, [batch(b"x" * 10_000)])[0][0] == 0
    clients = ActiveClients(worker, 50_000)
    wire = worker.connect(tcp=True)
    (connection,) = worker.loop.connections.by_id.values()
    wire.socket.settimeout(0.01)
    for _ in range(500):
        try:
            wire.send(fetch_request([("t", 0, 0)]), fetch.API_KEY, 12)
        except TimeoutError:
            break
        worker.turn()
        if connection.queued_bytes > 200_000:
            break
    assert connection.queued_bytes > 200_000
    late_ms = clients.took_ms()
    while worker.loop.connections.by_id and clients.now_ms < 60_000:
        wire.socket.recv(1)
        clients.step()
    assert 10_000 <= clients.now_ms <= 11_500 + late_ms


def test_a_request_that_waits_does_not_protect_the_frames_behind_it(worker):
    """A long poll, and after it a large frame that does not arrive."""
    worker.create("t")
    wire = worker.connect()
    wire.send(fetch_request([("t", 0, 0)], wait_ms=LONG_MS), fetch.API_KEY, 12)
    worker.turn()
    begin_frame(worker, wire, 60_000_000, 100_000)
    assert worker.room.waiters == 1
    assert look(worker, 50_000, after_ms=UNFINISHED_MS).closed == 1
    assert wire.closed_by_broker()


def test_many_small_long_polls_are_never_closed(worker):
    worker.create("t")
    wires = [worker.connect() for _ in range(100)]
    for wire in wires:
        wire.send(fetch_request([("t", 0, 0)], wait_ms=LONG_MS), fetch.API_KEY, 12)
    worker.turn()
    total = look(worker, 1 << 30).kept
    memory = look(worker, total - 1, after_ms=UNFINISHED_MS)
    assert (memory.closed, memory.dropped, worker.room.waiters) == (0, 0, 100)


@pytest.mark.parametrize("parked", [False, True], ids=["at once", "after a wait"])
def test_the_counted_memory_is_close_to_the_used_memory(worker, parked):
    topics = 50 if parked else 500
    for number in range(topics if parked else 0):
        worker.create(f"a-topic-{number}")
    wire = worker.connect()
    request = fetch_request(
        [(f"a-topic-{number}", 0, 0) for number in range(topics)], wait_ms=LONG_MS, min_bytes=1 << 30
    )
    fetches(worker, worker.connect(), 1)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    send(worker, wire, request)
    worker.turn()
    if parked:
        assert worker.room.waiters == 1
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    counted = look(worker, 1 << 30).kept
    assert 0.6 * taken < counted < 1.6 * taken


def test_memory_of_idle_connections_stays_within_its_limit_for_all_requests(worker):
    budget = 2 << 20
    memory = KeptMemory(worker.loop.connections, budget)
    for _ in range(10):
        fetches(worker, worker.connect(), 3_000)
        memory.look(int(time.monotonic() * 1000) + IDLE_MS)
        assert memory.kept <= budget
    assert memory.dropped >= 8


def test_an_idle_producer_keeps_nothing(worker):
    worker.create("t")
    wire = worker.connect()
    wire.send(produce_request([("t", [(0, batch(b"x" * 1000))])], -1), produce.API_KEY, 9)
    worker.turn()
    assert wire.receive().responses[0].partition_responses[0].error_code == 0
    assert look(worker, 0, after_ms=UNFINISHED_MS).kept == 0
