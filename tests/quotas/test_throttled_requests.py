"""Requests of a worker whose client is above a quota: the response comes at once, the connection is muted."""

import socket
import struct
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from odradek._ext.net.charging import Charges
from odradek._ext.shm import client_quotas
from odradek.api.table import BY_KEY
from odradek.quotas.quotas import DEFAULT, FETCH, PRODUCE, REQUEST, Quotas
from tests.api.worker_harness import HandWorker, nothing_came
from tests.waiting import until
from tests.wire import Wire, batch, fetch_request, produce_request

PRODUCES, FETCHES = range(3, BY_KEY[0].max_version + 1), range(BY_KEY[1].max_version + 1)
RATE = 1000.0
BURST = 10 * RATE
HOUR_MS = 3_600_000


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[HandWorker]:
    made = HandWorker(tmp_path)
    client_quotas.set_windows(11, 1)
    made.create("t")
    yield made
    made.close()


def limit(worker: HandWorker, **quotas: float) -> None:
    """Every client id has these quotas."""
    worker.handler.charges = Charges(Quotas([((None, DEFAULT, None), quotas)]).resolve)
    worker.loop.connections.forget_quotas()


def topic_of(worker: HandWorker, version: int, first_by_id: int) -> str | bytes:
    topic_id: bytes = worker.topics.get("t").topic_id
    return topic_id if version >= first_by_id else "t"


def produce(worker: HandWorker, wire: Wire, size: int, version: int = 9, acks: int = 1) -> Any:
    request = produce_request([(topic_of(worker, version, 13), [(0, batch(bytes(size)))])], acks)
    if acks == 0:
        wire.send(request, 0, version)
        wire.forget_answer()
        worker.turn()
        return None
    wire.send(request, 0, version)
    worker.turn()
    return wire.receive()


def fetch(worker: HandWorker, wire: Wire, version: int = 12, **options: Any) -> Any:
    wire.send(fetch_request([(topic_of(worker, version, 13), 0, 0)], **options), 1, version)
    worker.turn()
    while worker.conversions:
        worker.convert()
    return wire.receive()


def only(worker: HandWorker) -> Any:
    """The only connection."""
    (connection,) = worker.loop.connections.by_id.values()
    return connection


def now() -> int:
    return time.monotonic_ns() // 1_000_000


@pytest.mark.parametrize("version", PRODUCES)
def test_a_produce_is_executed_answered_at_once_and_the_connection_muted(worker: HandWorker, version: int) -> None:
    limit(worker, **{PRODUCE: RATE})
    wire = worker.connect()
    assert produce(worker, wire, 100, version).throttle_time_ms == 0
    assert not only(worker).muted
    before = now()
    told = produce(worker, wire, 30_000, version)
    (partition,) = told.responses[0].partition_responses
    assert (partition.error_code, partition.base_offset) == (0, 1)
    assert 20_000 - 1000 < told.throttle_time_ms < 22_000
    muted_for = only(worker).throttled_until_ms - before
    assert 0 <= muted_for - told.throttle_time_ms < 1000
    wire.send(produce_request([(topic_of(worker, version, 13), [(0, batch(b"x"))])]), 0, version)
    worker.turn()
    assert nothing_came(wire)
    worker.loop.release_throttled(only(worker).throttled_until_ms - 1)
    assert nothing_came(wire)
    worker.loop.release_throttled(only(worker).throttled_until_ms)
    worker.turn()
    assert wire.receive().responses[0].partition_responses[0].base_offset == 2


def test_acks_0_is_throttled_too_but_not_for_its_time(worker: HandWorker) -> None:
    limit(worker, **{REQUEST: 0.0001})
    wire = worker.connect()
    for _ in range(20):
        produce(worker, wire, 1000, acks=0)
    assert not only(worker).muted
    limit(worker, **{PRODUCE: RATE})
    produce(worker, wire, 30_000, acks=0)
    assert only(worker).muted


@pytest.mark.parametrize("version", FETCHES)
def test_a_fetch_above_the_limit_gets_an_empty_response(worker: HandWorker, version: int) -> None:
    wire = worker.connect()
    for _ in range(4):
        produce(worker, wire, 4000)
    limit(worker, **{FETCH: RATE})
    first = fetch(worker, wire, version, partition_max_bytes=4500)
    assert first.throttle_time_ms == 0 and first.responses[0].partitions[0].records
    for _ in range(2):
        again = fetch(worker, wire, version, partition_max_bytes=4500)
    assert again.responses == [] and again.error_code == 0
    assert only(worker).muted
    if version >= 1:
        assert 0 < again.throttle_time_ms < 5000
    (row,) = [row for row in client_quotas.buckets() if row[0] == 1]
    assert row[5] == 1 and row[4] * 10 < BURST, "what was not sent does not count"


def test_a_fetch_is_cut_to_what_an_idle_client_may_receive(worker: HandWorker) -> None:
    wire = worker.connect()
    for _ in range(10):
        produce(worker, wire, 4000)
    limit(worker, **{FETCH: RATE})
    told = fetch(worker, wire)
    while told.responses == []:  # the other bytes of the response are too much if a window has just begun
        assert 0 < told.throttle_time_ms < 200
        pass_time()
        worker.loop.release_throttled(now() + HOUR_MS)
        told = fetch(worker, wire)
    assert 4000 < len(told.responses[0].partitions[0].records) <= BURST
    assert told.throttle_time_ms == 0


def test_a_batch_that_exceeds_all_windows_is_sent_to_a_client_that_received_nothing_in_them(worker: HandWorker) -> None:
    wire = worker.connect()
    produce(worker, wire, 30_000)
    produce(worker, wire, 10)
    limit(worker, **{FETCH: RATE})
    told = fetch(worker, wire, partition_max_bytes=1)
    assert len(told.responses[0].partitions[0].records) > 30_000, "else the consumer would never receive it"
    assert 17_000 < told.throttle_time_ms <= 21_000 and only(worker).muted
    worker.loop.release_throttled(now() + HOUR_MS)
    told = fetch(worker, wire, partition_max_bytes=1)
    assert told.responses == [] and told.throttle_time_ms > 0


def test_a_session_that_begins_with_a_refused_response_does_not_exist(worker: HandWorker) -> None:
    wire = worker.connect()
    for _ in range(3):
        produce(worker, wire, 7000)
    limit(worker, **{FETCH: RATE})
    begun = fetch(worker, wire, session_id=0, session_epoch=0, partition_max_bytes=7200)
    assert begun.session_id != 0 and len(worker.fetch_handler.sessions) == 1
    refused = fetch(worker, wire, session_id=begun.session_id, session_epoch=1, partition_max_bytes=7200)
    assert (refused.session_id, refused.responses) == (begun.session_id, []) and refused.throttle_time_ms > 0
    worker.loop.release_throttled(now() + HOUR_MS)
    refused = fetch(worker, wire, session_id=begun.session_id, session_epoch=0, partition_max_bytes=7200)
    assert (refused.session_id, refused.responses, len(worker.fetch_handler.sessions)) == (0, [], 0)
    worker.loop.release_throttled(now() + HOUR_MS)
    limit(worker, **{FETCH: 1e9})
    whole = fetch(worker, wire, session_id=0, session_epoch=0)
    assert whole.responses[0].partitions[0].records and whole.session_id


def test_a_debugging_consumer_is_limited_too(worker: HandWorker) -> None:
    wire = worker.connect()
    for _ in range(3):
        produce(worker, wire, 7000)
    limit(worker, **{FETCH: RATE})
    for _ in range(2):
        request = fetch_request([("t", 0, 0)], partition_max_bytes=7200)
        request.replica_id = -2
        wire.send(request, 1, 12)
        worker.turn()
        told = wire.receive()
    assert told.throttle_time_ms > 0


def test_a_parked_fetch_is_charged_when_it_is_answered(worker: HandWorker) -> None:
    wire, other = worker.connect(), worker.connect()
    other.client_id = "producer"
    worker.handler.charges = Charges(Quotas([((None, "wire", None), {FETCH: 300.0})]).resolve)
    wire.send(fetch_request([("t", 0, 0)], wait_ms=60_000), 1, 12)
    worker.turn()
    assert nothing_came(wire)
    produce(worker, other, 2500)
    worker.turn()
    assert wire.receive().throttle_time_ms == 0
    wire.send(fetch_request([("t", 0, 1)], wait_ms=60_000), 1, 12)
    worker.turn()
    produce(worker, other, 2500)
    worker.turn()
    told = wire.receive()
    assert told.throttle_time_ms > 0 and told.responses == []


def test_requests_of_one_read_are_all_executed_and_the_last_response_has_the_longest_time(worker: HandWorker) -> None:
    limit(worker, **{PRODUCE: RATE})
    wire = worker.connect()
    frames = [wire.frame(produce_request([("t", [(0, batch(bytes(6000)))])]), 0, 9) for _ in range(5)]
    wire.socket.sendall(b"".join(frames))
    worker.turn()
    times = [wire.receive().throttle_time_ms for _ in range(5)]
    assert times[0] == 0 and times == sorted(times) and times[-1] > 15_000
    assert only(worker).throttled_until_ms - now() > times[-1] - 1000


def test_the_larger_of_both_throttle_times_counts(worker: HandWorker) -> None:
    wire = worker.connect()
    limit(worker, **{PRODUCE: 1e12, REQUEST: 1e-6})
    told = produce(worker, wire, 100)
    assert told.throttle_time_ms == 1000, "bounded by a window"
    worker.loop.release_throttled(now() + HOUR_MS)
    limit(worker, **{PRODUCE: 10.0, REQUEST: 1e-6})
    assert produce(worker, wire, 10_000).throttle_time_ms > 100_000


def test_every_request_counts_for_its_own_client_id(worker: HandWorker) -> None:
    worker.handler.charges = Charges(Quotas([((None, "slow", None), {PRODUCE: 10.0})]).resolve)
    wire = worker.connect()
    assert produce(worker, wire, 1000).throttle_time_ms == 0
    wire.client_id = "slow"
    assert produce(worker, wire, 1000).throttle_time_ms > 0
    worker.loop.release_throttled(now() + HOUR_MS)
    wire.client_id = None
    assert produce(worker, wire, 1000).throttle_time_ms == 0


def pipelined(worker: HandWorker, wire: Wire, *requests: tuple[str, int, int]) -> list[int]:
    """Send Produce requests (client id, bytes of the value, acks) that are read at once; throttle times of the responses."""
    frames = []
    for client_id, size, acks in requests:
        wire.client_id = client_id
        frames.append(wire.frame(produce_request([("t", [(0, batch(bytes(size)))])], acks), 0, 9))
        if acks == 0:
            wire.forget_answer()
    wire.socket.sendall(b"".join(frames))
    worker.turn()
    return [wire.receive().throttle_time_ms for _, _, acks in requests if acks]


def test_requests_that_are_read_together_are_charged_in_their_order(worker: HandWorker) -> None:
    limit(worker, **{PRODUCE: RATE, REQUEST: 1e9})
    times = pipelined(worker, worker.connect(), *[("wire", 4000, 1)] * 5)
    assert times[:2] == [0, 0], "8,000 bytes are within what an idle client may use"
    assert 0 < times[2] < times[3] < times[4]
    steps = [later - before for before, later in pairwise(times[2:])]
    assert all(4000 <= step < 5000 for step in steps), "each adds the time of its bytes"
    (row,) = [row for row in client_quotas.buckets() if row[0] == 0]
    assert (row[5], row[6]) == (3, sum(times)), "each throttled request is counted, with its own time"
    assert 20_000 < row[8] < 21_000
    assert only(worker).muted


@pytest.mark.parametrize("last", ["slow", "fast", "free"])
def test_requests_of_two_clients_that_are_read_together_count_for_their_own(worker: HandWorker, last: str) -> None:
    worker.handler.charges = Charges(
        Quotas([((None, "slow", None), {PRODUCE: 100.0}), ((None, "fast", None), {PRODUCE: 1e9})]).resolve
    )
    names = ["slow", "fast", "free", "slow", "fast", "free", "fast", "slow", last]
    waits_ms = pipelined(worker, worker.connect(), *[(name, 1500, 1) for name in names])
    throttled = [time_ms > 0 for time_ms in waits_ms]
    assert throttled == [name == "slow" for name in names], (
        "a request is larger than what the slow client may use at first"
    )
    totals = {row[2]: row[8] for row in client_quotas.buckets() if row[0] == 0}
    (each,) = {totals[name.encode()] / names.count(name) for name in ("slow", "fast")}
    assert 1500 < each < 1700 and b"free" not in totals


def test_client_ids_that_differ_behind_what_is_metered_have_their_own_limits(worker: HandWorker) -> None:
    slow, free = "x" * 300 + "slow", "x" * 300 + "free"
    worker.handler.charges = Charges(Quotas([((None, slow, None), {PRODUCE: 10.0})]).resolve)
    waits_ms = pipelined(worker, worker.connect(), (free, 1000, 1), (slow, 1000, 1), (free, 1000, 1))
    assert (waits_ms[0], waits_ms[1] > 0, waits_ms[2]) == (0, True, 0)


def test_requests_that_are_read_together_count_their_time_once(worker: HandWorker) -> None:
    limit(worker, **{REQUEST: 1e-6})
    wire = worker.connect()
    waits_ms = pipelined(worker, wire, ("wire", 10, 0), ("wire", 10, 1), ("wire", 10, 1), ("wire", 10, 0))
    assert waits_ms == [1000, 1000], "bounded by a window; requests with acks=0 are not throttled for their time"
    (row,) = [row for row in client_quotas.buckets() if row[0] == 2]
    assert (row[5], row[6]) == (2, 2000)


def test_a_changed_limit_applies_to_what_was_counted_before(worker: HandWorker) -> None:
    limit(worker, **{PRODUCE: 1e6})
    wire = worker.connect()
    assert produce(worker, wire, 50_000).throttle_time_ms == 0
    limit(worker, **{PRODUCE: RATE})
    assert produce(worker, wire, 10).throttle_time_ms > 35_000
    worker.loop.release_throttled(now() + HOUR_MS)
    limit(worker, **{PRODUCE: 1e6})
    assert produce(worker, wire, 10).throttle_time_ms == 0
    worker.handler.charges = None
    worker.loop.connections.forget_quotas()
    assert produce(worker, wire, 60_000).throttle_time_ms == 0


def test_a_muted_connection_is_not_idle(worker: HandWorker) -> None:
    limit(worker, **{PRODUCE: 1.0})
    wire = worker.connect()
    produce(worker, wire, 30_000)
    worker.loop.connections.idle_ms = 10
    assert worker.loop.connections.sweep_idle(now() + 1_000_000) == 0
    later = only(worker).throttled_until_ms
    worker.loop.release_throttled(later)
    assert worker.loop.connections.sweep_idle(later + 10) == 0, "it is idle from its release on"
    assert worker.loop.connections.sweep_idle(later + 11) == 1


@pytest.mark.parametrize("reset", [False, True])
def test_a_muted_connection_notices_that_its_client_hangs_up(worker: HandWorker, reset: bool) -> None:
    limit(worker, **{PRODUCE: 1.0})
    wire = worker.connect(tcp=True)
    produce(worker, wire, 30_000)
    if reset:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.socket.close()
    worker.turn()
    assert not worker.loop.connections.by_id
    assert worker.loop.release_throttled(now() + HOUR_MS) == -1


def test_what_a_client_sent_before_it_hung_up_is_executed_when_its_time_is_over(worker: HandWorker) -> None:
    limit(worker, **{PRODUCE: 1000.0})
    wire = worker.connect(tcp=True)
    produce(worker, wire, 60_000)
    wire.send(produce_request([("t", [(0, batch(b"last"))])], 0), 0, 9)
    wire.socket.shutdown(socket.SHUT_WR)
    worker.turn()
    connection = only(worker)
    worker.loop.release_throttled(connection.throttled_until_ms)
    worker.turn()
    assert not worker.loop.connections.by_id, "it is throttled again, but nothing is left to do"
    assert worker.handler.produce_requests == 2


def test_closed_connections_leave_nothing_behind(worker: HandWorker) -> None:
    limit(worker, **{PRODUCE: 0.01})
    for _ in range(300):
        wire = worker.connect()
        wire.send(produce_request([("t", [(0, batch(bytes(2000)))])]), 0, 9)
        worker.turn()
        wire.socket.close()
        worker.turn()
    assert len(worker.loop.connections.by_id) <= 299, "only those whose request is not read wait"
    worker.loop.release_throttled(now() + HOUR_MS)
    worker.turn()
    assert not worker.loop.connections.by_id
    assert worker.loop.release_throttled(now()) == -1


def test_a_worker_that_stops_does_not_wait_for_muted_connections(worker: HandWorker) -> None:
    limit(worker, **{PRODUCE: 0.01})
    wire = worker.connect()
    produce(worker, wire, 2000)
    worker.loop.stop_reading()
    assert worker.loop.connections.drained


def test_a_delayed_produce_is_charged_when_it_is_answered(worker: HandWorker) -> None:
    limit(worker, **{PRODUCE: RATE})
    wire = worker.connect()
    data = batch(*[bytes(100)] * 300, codec=1)
    for _ in range(40):
        wire.send(produce_request([("t", [(0, data)])]), 0, 9)
        worker.turn()
        assert worker.offloaded, "compressed records are checked on a thread"
        worker.append()
        told = wire.receive()
        if told.throttle_time_ms:
            break
    assert told.throttle_time_ms and only(worker).muted


def pass_time() -> None:
    """Wait until the coarse clock of the loop shows another time."""
    began = now()
    until(lambda: now() > began + 20, "20 ms passed")


def test_a_client_does_not_escape_by_connecting_again(worker: HandWorker) -> None:
    limit(worker, **{PRODUCE: RATE})
    pass_time()
    first = worker.connect()
    assert produce(worker, first, 100_000).throttle_time_ms > 80_000
    first.socket.close()
    worker.turn()
    again = worker.connect()
    again.send(produce_request([("t", [(0, batch(b"x"))])]), 0, 9)
    worker.turn()
    assert nothing_came(again)
    assert worker.handler.produce_requests == 1
    held_ms = only(worker).throttled_until_ms - now()
    assert 9_000 < held_ms <= 10_000, "not longer than all windows but one"
    worker.loop.release_throttled(only(worker).throttled_until_ms)
    worker.turn()
    assert again.receive().throttle_time_ms > 80_000


def test_a_connection_that_is_older_than_the_limit_is_not_held(worker: HandWorker) -> None:
    wires = [worker.connect() for _ in range(3)]
    pass_time()
    limit(worker, **{PRODUCE: RATE})
    assert [produce(worker, wire, 60_000).throttle_time_ms > 0 for wire in wires] == [True] * 3
