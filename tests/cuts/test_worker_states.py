"""A client's connection ends while a request of it waits in a worker, in every state in which a request can wait.

What the request waited for happens afterwards, before or after the worker has noticed the end. Other clients are not
disturbed, and nothing of the request is left. `make test` runs these tests under AddressSanitizer, too, which reports any use
of freed memory.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek._ext.partition import flushing, slots
from odradek._ext.testing import lock_probe, slot_probe
from odradek.protocol.schemas import fetch, produce
from tests.api.worker_harness import HandWorker
from tests.cuts.cutting import CUTS
from tests.durability.test_cold_reads import Reader, filled, make_cold
from tests.waiting import until
from tests.wire import Wire, batch, fetch_request, produce_request, values

Finish = Callable[[], None]
State = Callable[[HandWorker, Wire], Finish]

STATES: dict[str, State] = {}
LONG_MS = 600_000
LARGE = 900_000


def state(arrange: State) -> State:
    """Registers a function that brings a client's request into a state, and returns what makes an end of the waiting."""
    STATES[arrange.__name__.replace("_", " ")] = arrange
    return arrange


def send(wire: Wire, topic: str, records: bytes, acks: int = -1) -> None:
    wire.send(produce_request([(topic, [(0, records)])], acks, 30_000), produce.API_KEY, 9)


def poll(wire: Wire, topic: str, offset: int, *, version: int = 12, **options: Any) -> None:
    wire.send(fetch_request([(topic, 0, offset)], wait_ms=LONG_MS, **options), fetch.API_KEY, version)


def append(worker: HandWorker, slot: int, records: bytes) -> None:
    """As another worker would."""
    assert slot_probe.append(slot, [records])[0][0] == 0
    worker.turn()


# -- Produce ----------------------------------------------------------------------------------------------------------


@state
def produce_meets_a_taken_lock(worker: HandWorker, wire: Wire) -> Finish:
    held = lock_probe.SlotLock(worker.create("t"))
    held.__enter__()
    send(wire, "t", batch(b"a"))
    until(lambda: worker.turn() or worker.retries, "the request meets the lock")

    def finish() -> None:
        held.__exit__(None, None, None)
        worker.retry()

    return finish


@state
def produce_without_acks_meets_a_taken_lock(worker: HandWorker, wire: Wire) -> Finish:
    held = lock_probe.SlotLock(worker.create("t"))
    held.__enter__()
    send(wire, "t", batch(b"a"), acks=0)
    wire.forget_answer()
    until(lambda: worker.turn() or worker.retries, "the request meets the lock")

    def finish() -> None:
        held.__exit__(None, None, None)
        worker.retry()

    return finish


@state
def produce_waits_for_its_sync(worker: HandWorker, wire: Wire) -> Finish:
    worker.handler.produce_handler.responses.flusher.close()  # who syncs, and when, is the test's affair
    slot = worker.create("t", flush_messages=1)
    send(wire, "t", batch(b"a"))
    until(lambda: worker.turn() or worker.room.waiters, "the request waits")

    def finish() -> None:
        flushing.flush(slot)
        worker.turn()

    return finish


@state
def several_produces_wait_for_their_sync(worker: HandWorker, wire: Wire) -> Finish:
    worker.handler.produce_handler.responses.flusher.close()
    slot = worker.create("t", flush_messages=1)
    for number in range(3):
        send(wire, "t", batch(b"%d" % number), acks=(1, -1)[number % 2])
        until(lambda number=number: worker.turn() or worker.room.waiters == number + 1, "the request waits")

    def finish() -> None:
        flushing.flush(slot)
        worker.turn()

    return finish


@state
def produce_waits_for_replicas(worker: HandWorker, wire: Wire) -> Finish:
    slot = worker.create("t", alone=False)
    send(wire, "t", batch(b"a"))
    until(lambda: worker.turn() or worker.room.waiters, "the request waits")

    def finish() -> None:
        slots.raise_high_watermark(slot, 1)
        worker.turn()

    return finish


@state
def produce_waits_until_its_time_is_up(worker: HandWorker, wire: Wire) -> Finish:
    worker.create("t", alone=False)
    send(wire, "t", batch(b"a"))
    until(lambda: worker.turn() or worker.room.waiters, "the request waits")
    return worker.expire


@state
def produce_is_with_the_append_thread(worker: HandWorker, wire: Wire) -> Finish:
    worker.create("t")
    send(wire, "t", batch(b"a", codec=1))
    until(lambda: worker.turn() or worker.offloaded, "the request is the thread's")
    return worker.append


@state
def produce_meets_a_taken_lock_in_the_append_thread(worker: HandWorker, wire: Wire) -> Finish:
    held = lock_probe.SlotLock(worker.create("t"))
    held.__enter__()
    send(wire, "t", batch(b"a", codec=1))
    until(lambda: worker.turn() or worker.offloaded, "the request is the thread's")
    worker.append()
    assert worker.retries

    def finish() -> None:
        held.__exit__(None, None, None)
        worker.retry()

    return finish


@state
def produces_are_held_back_behind_one_in_the_append_thread(worker: HandWorker, wire: Wire) -> Finish:
    worker.create("t")
    for number in range(3):
        send(wire, "t", batch(b"%d" % number, codec=number == 0))
    until(lambda: worker.turn() or worker.offloaded, "the first request is the thread's")
    worker.turn()
    return worker.append


# -- Produce of transactions ------------------------------------------------------------------------------------------


def send_in_transaction(
    wire: Wire, topic: str, sequence: int, acks: int = -1, value: bytes = b"a", **fields: int
) -> None:
    records = batch(value, attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=sequence, **fields)
    wire.send(produce_request([(topic, [(0, records)])], acks, 30_000, "id"), produce.API_KEY, 12)


def answer_questions(worker: HandWorker) -> None:
    """As the coordinator, until nothing more is asked."""
    while worker.questions:
        worker.answer()
    worker.append()


@state
def produces_wait_for_the_coordinator(worker: HandWorker, wire: Wire) -> Finish:
    worker.create("t")
    for number in range(3):
        send_in_transaction(wire, "t", number)
    until(lambda: worker.turn() or worker.questions, "the first request waits")
    return lambda: answer_questions(worker)


@state
def produces_wait_for_the_coordinator_that_refuses_them(worker: HandWorker, wire: Wire) -> Finish:
    worker.create("t")
    worker.create("u")
    for topic in ("t", "u"):
        send_in_transaction(wire, topic, 0)
    until(lambda: worker.turn() or worker.questions, "the first request waits")

    def finish() -> None:
        worker.answer(48, 48)
        while worker.questions:
            worker.answer(48)

    return finish


@state
def produce_without_acks_waits_for_the_coordinator(worker: HandWorker, wire: Wire) -> Finish:
    worker.create("t")
    send_in_transaction(wire, "t", 0, acks=0)
    wire.forget_answer()
    until(lambda: worker.turn() or worker.questions, "the request waits")
    return lambda: answer_questions(worker)


@state
def compressed_produce_waits_for_the_coordinator(worker: HandWorker, wire: Wire) -> Finish:
    worker.create("t")
    for number in range(2):
        send_in_transaction(wire, "t", number, codec=1)
    until(lambda: worker.turn() or worker.offloaded, "the request is the thread's")
    worker.append()
    assert worker.questions
    return lambda: answer_questions(worker)


@state
def produce_waits_for_a_coordinator_that_ends(worker: HandWorker, wire: Wire) -> Finish:
    worker.create("t")
    for number in range(2):
        send_in_transaction(wire, "t", number)
    until(lambda: worker.turn() or worker.questions, "the first request waits")

    def finish() -> None:
        while worker.questions:
            worker.no_answer()

    return finish


@state
def produce_waits_for_the_coordinator_until_its_time_is_up(worker: HandWorker, wire: Wire) -> Finish:
    worker.create("t")
    for number in range(2):
        send_in_transaction(wire, "t", number)
    until(lambda: worker.turn() or worker.questions, "the first request waits")

    def finish() -> None:
        while worker.room.waiters:
            worker.expire()

    return finish


@state
def produces_wait_behind_a_taken_lock_and_for_the_coordinator(worker: HandWorker, wire: Wire) -> Finish:
    held = lock_probe.SlotLock(worker.create("t"))
    held.__enter__()
    for number in range(3):
        send_in_transaction(wire, "t", number)
    until(lambda: worker.turn() or worker.retries, "the requests meet the lock")

    def finish() -> None:
        held.__exit__(None, None, None)
        worker.retry()
        answer_questions(worker)

    return finish


@state
def produce_meets_a_taken_lock_after_the_answer(worker: HandWorker, wire: Wire) -> Finish:
    slot = worker.create("t")
    for number in range(2):
        send_in_transaction(wire, "t", number)
    until(lambda: worker.turn() or worker.questions, "the first request waits")
    pending, number, _, _ = worker.questions.pop()
    slots.allow_transaction(slot, slot_probe.incarnation_of(slot), -1, "id", 7, 0, 2)
    held = lock_probe.SlotLock(slot)
    held.__enter__()
    pending.verified(number, (0,))
    assert worker.retries

    def finish() -> None:
        held.__exit__(None, None, None)
        worker.retry()

    return finish


# -- Fetch --------------------------------------------------------------------------------------------------------------


@state
def fetch_waits_for_records(worker: HandWorker, wire: Wire) -> Finish:
    slot = worker.create("t")
    poll(wire, "t", 0)
    until(lambda: worker.turn() or worker.room.waiters, "the request waits")
    return lambda: append(worker, slot, batch(b"a"))


@state
def fetch_waits_until_its_time_is_up(worker: HandWorker, wire: Wire) -> Finish:
    worker.create("t")
    poll(wire, "t", 0)
    until(lambda: worker.turn() or worker.room.waiters, "the request waits")
    return worker.expire


@state
def fetch_of_a_session_waits_for_records(worker: HandWorker, wire: Wire) -> Finish:
    slot = worker.create("t")
    append(worker, slot, batch(b"a"))
    poll(wire, "t", 0, session_epoch=0)
    until(lambda: worker.turn() or worker.loop.connections.drained, "the session is there")
    session_id = wire.receive().session_id
    poll(wire, "t", 1, session_id=session_id, session_epoch=1)
    until(lambda: worker.turn() or worker.room.waiters, "the request waits")
    return lambda: append(worker, slot, batch(b"b"))


@state
def a_session_goes_on_with_another_connection(worker: HandWorker, wire: Wire) -> Finish:
    slot = worker.create("t")
    append(worker, slot, batch(b"a"))
    poll(wire, "t", 0, session_epoch=0)
    until(lambda: worker.turn() or worker.loop.connections.drained, "the session is there")
    session_id = wire.receive().session_id
    poll(wire, "t", 1, session_id=session_id, session_epoch=1)
    until(lambda: worker.turn() or worker.room.waiters, "the request waits")

    def finish() -> None:
        other = worker.connect()
        poll(other, "t", 1, session_id=session_id, session_epoch=2)
        worker.turn()
        append(worker, slot, batch(b"b"))
        other.socket.close()
        until(lambda: worker.turn() or True, "the other connection ends")

    return finish


@state
def fetch_of_a_deleted_partition_waits(worker: HandWorker, wire: Wire) -> Finish:
    slot = worker.create("t")
    poll(wire, "t", 0)
    until(lambda: worker.turn() or worker.room.waiters, "the request waits")

    def finish() -> None:
        worker.broker.obey(slot, 1)
        worker.turn()

    return finish


@state
def fetch_of_an_old_format_is_converted(worker: HandWorker, wire: Wire) -> Finish:
    slot = worker.create("t")
    append(worker, slot, batch(b"a"))
    poll(wire, "t", 0, version=2)
    until(lambda: worker.turn() or worker.conversions, "the request is the thread's")
    return worker.convert


@state
def fetch_looks_up_cold_pages(worker: HandWorker, wire: Wire) -> Finish:
    reader = worker.loop.responses.cold_reader = Reader()
    slot = filled(worker, "t")
    ask_cold_over(worker, slot, wire)
    return reader.work


def ask_cold_over(worker: HandWorker, slot: int, wire: Wire) -> None:
    """As `ask_cold`, by this connection."""
    for offset in range(100, 190):
        make_cold(worker, slot)
        poll(wire, "t", offset)
        until(
            lambda: worker.turn() or worker.loop.responses.cold_reader.look_ups or worker.loop.connections.drained,
            "it was looked for",
        )
        if worker.loop.responses.cold_reader.look_ups:
            return
        wire.receive()
    pytest.skip("this device has every page before it is waited for")


@state
def a_large_response_is_being_sent(worker: HandWorker, wire: Wire) -> Finish:
    slot = worker.create("t")
    for _ in range(8):
        append(worker, slot, batch(os.urandom(LARGE)))
    poll(wire, "t", 0)
    until(lambda: worker.turn() or not worker.loop.connections.drained, "the response is begun")
    return lambda: append(worker, slot, batch(b"more"))


@state
def a_slice_of_a_response_is_read_from_the_disk(worker: HandWorker, wire: Wire) -> Finish:
    reader = worker.loop.responses.cold_reader = Reader()
    slot = worker.create("t")
    append(worker, slot, batch(os.urandom(LARGE)))
    (log,) = worker.broker.table.path(slot).glob("*.log")
    for _ in range(90):
        flushing.flush(slot)
        with log.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        poll(wire, "t", 0)
        until(
            lambda: worker.turn() or reader.look_ups or reader.slices or worker.loop.connections.drained,
            "it was looked for",
        )
        while reader.look_ups:
            _, callback = reader.look_ups.pop(0)
            callback(None)  # as if it had read: the pages stay cold
        if reader.slices:
            return reader.work
        until(lambda: worker.turn() or worker.loop.connections.drained or drained_by(wire), "it was sent")
        wire._sent.clear()
    pytest.skip("this device has every page before it is waited for")


def drained_by(wire: Wire) -> bool:
    """Receive what there is; False."""
    wire.socket.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while wire.socket.recv(1 << 20):
            pass
    wire.socket.settimeout(90)
    return False


# -- responses and frames that wait -------------------------------------------------------------------------------------


@state
def responses_are_not_taken(worker: HandWorker, wire: Wire) -> Finish:
    slot = worker.create("t")
    append(worker, slot, batch(b"x" * 10_000))
    for _ in range(200):
        wire.socket.settimeout(0.01)
        with contextlib.suppress(TimeoutError):
            poll(wire, "t", 0)
        worker.turn()
        if any(one.queued_bytes for one in worker.loop.connections.by_id.values()):
            break
    else:
        raise AssertionError("all of the responses were taken")
    wire.socket.settimeout(90)
    return lambda: append(worker, slot, batch(b"more"))


@state
def frames_are_held_back_behind_a_produce(worker: HandWorker, wire: Wire) -> Finish:
    slot = worker.create("t", alone=False)
    send(wire, "t", batch(b"a"))
    poll(wire, "t", 0)
    send(wire, "t", batch(b"b"))
    until(
        lambda: worker.turn() or any(one.muted for one in worker.loop.connections.by_id.values()), "the frames are held"
    )

    def finish() -> None:
        slots.raise_high_watermark(slot, 1)
        worker.turn()
        with contextlib.suppress(slots.SlotChanged):  # the second record was not appended
            slots.raise_high_watermark(slot, 2)
        worker.turn()

    return finish


@state
def the_worker_stops(worker: HandWorker, wire: Wire) -> Finish:
    worker.create("t", alone=False)
    worker.create("u")
    send(wire, "t", batch(b"a"))
    poll(wire, "u", 0)
    until(lambda: worker.turn() or worker.room.waiters, "the requests wait")
    worker.loop.stop_reading()
    return worker.expire


# -- the tests ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def worker(tmp_path) -> Iterator[HandWorker]:
    worker = HandWorker(tmp_path)
    yield worker
    worker.close()


def ended(worker: HandWorker, *, but: int) -> None:
    """Until all connections but so many are gone. One that was cut may be seen to be so when something is sent on it."""
    until(lambda: worker.turn() or len(worker.loop.connections.by_id) == but, "the connection that was cut is gone")


def works(worker: HandWorker, wire: Wire) -> None:
    """Another client is served."""
    slot = worker.create("works")
    send(wire, "works", batch(b"x"))
    worker.turn()
    assert wire.receive().responses[0].partition_responses[0].error_code == 0
    wire.send(fetch_request([("works", 0, 0)]), fetch.API_KEY, 12)
    worker.turn()
    assert values(wire.receive().responses[0].partitions[0].records) == [b"x"]
    assert slot >= 0


@pytest.mark.parametrize("seen_first", [True, False], ids=["seen at once", "seen later"])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("waiting", STATES)
def test_a_connection_that_ends_while_its_request_waits_disturbs_nobody(worker, waiting, cut, seen_first):
    staying = worker.connect()
    wire = worker.connect(tcp=True)
    finish = STATES[waiting](worker, wire)
    CUTS[cut](wire)
    if seen_first:
        worker.turn()
    finish()
    worker.turn()
    if cut == "half close":
        until(lambda: worker.turn() or drained_by(wire) or len(worker.loop.connections.by_id) == 1 or stopped(worker, wire),
              "the half-closed connection is answered and closed")  # fmt: skip
    ended(worker, but=1)
    if not worker.loop.stopping:
        works(worker, staying)
    assert worker.room.waiters == 0
    assert not worker.retries
    assert not worker.offloaded
    assert worker.loop.pool.lent_bytes == 0


def stopped(worker: HandWorker, wire: Wire) -> bool:
    """Reset the connection if the worker stops: then it reads nothing, and does not see the end of a half-closed connection."""
    if worker.loop.stopping:
        CUTS["reset"](wire)
    return worker.loop.stopping
