"""Writing a partition of an internal topic: the failure of one append does not affect the others."""

import asyncio
import threading
import zlib

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slots
from odradek._ext.partition.flusher import Flusher
from odradek._ext.partition.slot_access import AppendResult
from odradek.coordination.environment import EndMarker, LogBatch
from odradek.processes.coordinator.internal_topics import coordinator_log
from odradek.processes.coordinator.internal_topics.coordinator_log import ROUNDS, AppendTurn, CoordinatorLog
from odradek.processes.coordinator.internal_topics.log_replay import read_records
from odradek.protocol.errors import ErrorCode
from odradek.storage.batch import ABORT, COMMIT, TRANSACTIONAL, Record, build_batch, build_end_marker
from tests.groups.by_hand import HandTimers
from tests.shm.one_broker import OneBroker
from tests.storage.old_writer import message, wrapper

PATIENCE_MS = 5000


@pytest.fixture
def broker(tmp_path):
    with OneBroker(tmp_path) as made:
        yield made


class Bench:
    """Logs of one loop and one turn. `told`: what was called back, in order."""

    def __init__(self, broker, loop):
        self.broker = broker
        self.loop = loop
        self.turn = AppendTurn(loop)
        self.flusher = Flusher()
        self.told = []

    def log(self, topic="offsets", max_bytes=1 << 20, incarnation=None, alone=True, codec=0, **options):
        slot = self.broker.create(topic, alone=alone)
        state = slot_facts.describe(slot)
        place = slot, state.incarnation if incarnation is None else incarnation, state.leader_epoch
        return CoordinatorLog(self.loop, self.turn, place, codec, max_bytes, PATIENCE_MS, self.flusher, **options)

    def then(self, name):
        return lambda code: self.told.append((name, code))

    def at(self, name):
        return lambda code, offset: self.told.append((name, code, offset))

    def late(self, name):
        return lambda: self.told.append((name, "late"))

    def broken(self, name):
        def then(code):
            self.told.append((name, code))
            raise RuntimeError("a broken callback")

        return then

    def stored(self, log):
        pieces = read_records(log.place[0], [self.broker.path])
        return [pair for piece in pieces for batch in piece for pair in batch.records]


class HandLoop(HandTimers):
    """A loop whose time is stepped."""

    def time(self):
        return self.now_ms() / 1000

    def call_at(self, when_s, action, *arguments):
        return super().call_at(round(when_s * 1000), lambda: action(*arguments))

    def call_later(self, delay_s, action):
        return super().call_at(self.now_ms() + max(1, round(delay_s * 1000)), action)

    def call_soon(self, action, *arguments):
        return self.call_at(self.time(), action, *arguments)


@pytest.fixture
def stepped(broker):
    """A bench on a loop that is stepped."""
    made = Bench(broker, HandLoop())
    yield made
    made.flusher.close()  # its threads use the broker's memory


@pytest.fixture
def bench(broker):
    loop = asyncio.new_event_loop()
    made = Bench(broker, loop)
    yield made
    made.flusher.close()  # its threads use the broker's memory
    loop.close()


NONE = ErrorCode.NONE


def test_a_callback_that_raises_does_not_prevent_the_other_callbacks(bench):
    log = bench.log()
    log.append([(b"a", b"1")], bench.then("first"))
    log.append([(b"b", b"2")], bench.broken("broken"))
    log.append([(b"c", None)], bench.then("last"))
    bench.turn.run()
    assert bench.told == [("first", NONE), ("broken", NONE), ("last", NONE)]
    assert bench.stored(log) == [(b"a", b"1"), (b"b", b"2"), (b"c", None)]
    log.append([(b"d", b"3")], bench.then("next"))
    bench.turn.run()
    assert bench.told[3:] == [("next", NONE)]


def test_all_waiting_appends_are_acknowledged_even_if_a_callback_raises(bench):
    log = bench.log(alone=False)
    log.append([(b"a", b"1")], bench.broken("broken"))
    bench.turn.run()
    log.append([(b"b", b"2")], bench.broken("broken too"))
    log.append([(b"c", b"3")], bench.then("last"))
    bench.turn.run()
    assert bench.told == []
    slots.raise_high_watermark(log.place[0], 1)
    log.look()
    assert bench.told == [("broken", NONE)]
    slots.raise_high_watermark(log.place[0], 3)
    log.look()
    assert bench.told[1:] == [("broken too", NONE), ("last", NONE)]


def test_all_waiting_appends_fail_at_the_close_of_a_log_even_if_a_callback_raises(bench):
    log = bench.log()
    log.append([(b"a", b"1")], bench.broken("broken"))
    log.append([(b"b", b"2")], bench.then("last"))
    log.close()
    assert bench.told == [("broken", ErrorCode.NOT_COORDINATOR), ("last", ErrorCode.NOT_COORDINATOR)]
    bench.turn.run()
    assert bench.stored(log) == []


def test_an_append_of_invalid_records_fails_alone(bench):
    log = bench.log()
    log.append([(b"a", b"1")], bench.then("before"))
    log.append([(b"half", b"written"), ("no bytes", b"x")], bench.then("bad"))
    log.append([(b"b", b"2")], bench.then("behind"))
    bench.turn.run()
    told = dict(bench.told)
    assert told == {"before": NONE, "bad": ErrorCode.UNKNOWN_SERVER_ERROR, "behind": NONE}
    assert bench.stored(log) == [(b"a", b"1"), (b"b", b"2")]


def test_a_batch_that_is_too_large_fails_alone(bench):
    log = bench.log(max_bytes=2000)
    log.append([(b"a", bytes(1500)), (b"b", bytes(1500))], bench.then("large"))
    log.append([(b"c", b"3")], bench.then("small"))
    bench.turn.run()
    assert bench.told == [("large", ErrorCode.INVALID_COMMIT_OFFSET_SIZE), ("small", NONE)]
    assert bench.stored(log) == [(b"c", b"3")]


def test_appends_beyond_one_batch_become_several_in_their_order(bench):
    log = bench.log(max_bytes=4000)
    for number in range(20):
        log.append([(b"%d" % number, bytes(500))], bench.then(number))
    bench.turn.run()
    assert bench.told == [(number, NONE) for number in range(20)]
    assert [key for key, _ in bench.stored(log)] == [b"%d" % number for number in range(20)]
    assert slot_facts.describe(log.place[0]).log_end_offset == 20


LONG = 1600


class Records:
    """Records that are made one by one. :ivar made: their number."""

    def __init__(self, count=LONG):
        self.count = count
        self.made = 0

    def __len__(self):
        return self.count

    def __iter__(self):
        for number in range(self.count):
            self.made += 1
            yield b"%d" % number, b"v"


def finish(bench, count):
    """Run the loop until `count` callbacks were called."""
    while len(bench.told) < count:
        bench.loop.run_until_complete(asyncio.sleep(0))


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_a_long_append_is_one_batch_that_is_built_in_steps(bench, codec, monkeypatch):
    batches, append = [], slots.append_built

    def counted(slot, builder, *arguments):
        batches.append((slot, builder.count))
        return append(slot, builder, *arguments)

    monkeypatch.setattr(slots, "append_built", counted)
    log, other = bench.log(codec=codec), bench.log("other")
    records = Records()
    log.append([(b"first", b"1")], bench.then("first"))
    log.append(records, bench.then("long"))
    log.append([(b"last", b"2")], bench.then("last"))
    other.append([(b"other", b"3")], bench.then("other"))
    bench.turn.run()
    assert bench.told == [("first", NONE), ("other", NONE)]
    made = []

    def look():
        made.append(records.made)
        if len(bench.told) < 4:
            bench.loop.call_soon(look)

    look()
    finish(bench, 4)
    assert list(dict.fromkeys(made)) == [500, 1000, 1500, LONG]
    assert bench.told[2:] == [("long", NONE), ("last", NONE)]
    assert bench.stored(log) == [(b"first", b"1"), *Records(), (b"last", b"2")]
    assert batches == [(log.place[0], 1), (other.place[0], 1), (log.place[0], LONG), (log.place[0], 1)]


def test_a_long_append_of_a_transaction_is_one_batch(bench):
    log = bench.log()
    log.append_transactional(Records(), 7, 0, bench.at("offsets"))
    log.append_marker(EndMarker(7, 0, 0, True, 1), bench.at("marker"))
    bench.turn.run()
    assert bench.told == []
    finish(bench, 2)
    assert bench.told == [("offsets", NONE, 0), ("marker", NONE, LONG)]


def test_a_long_append_is_compressed_in_a_thread(bench, monkeypatch):
    threads = []

    def compress(codec, data):
        threads.append(threading.current_thread())
        return zlib.compress(data, wbits=31)

    monkeypatch.setattr(coordinator_log.compression, "compress", compress)
    log = bench.log(codec=1)
    log.append(Records(), bench.then("long"))
    bench.turn.run()
    finish(bench, 1)
    assert bench.stored(log) == list(Records())
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


@pytest.mark.parametrize("codec", [0, 1])
def test_a_long_batch_is_built_once_although_the_lock_is_not_free(bench, codec, monkeypatch):
    refusals, append = [AppendResult.APPEND_BUSY] * 3, slots.append_built

    def busy_at_first(*arguments):
        if refusals:
            raise slots.SlotChanged("busy", refusals.pop())
        return append(*arguments)

    monkeypatch.setattr(slots, "append_built", busy_at_first)
    log, records = bench.log(codec=codec), Records()
    log.append(records, bench.then("long"))
    bench.turn.run()
    finish(bench, 1)
    assert bench.told == [("long", NONE)]
    assert (refusals, records.made) == ([], LONG)
    assert bench.stored(log) == list(Records())


def test_a_failed_compression_fails_its_append_only(bench, monkeypatch, caplog):
    monkeypatch.setattr(coordinator_log.compression, "compress", lambda codec, data: 1 / 0)
    log = bench.log(codec=1)
    log.append(Records(), bench.then("long"))
    bench.turn.run()
    finish(bench, 1)
    monkeypatch.undo()
    log.append([(b"a", b"1")], bench.then("next"))
    bench.turn.run()
    assert bench.told == [("long", ErrorCode.UNKNOWN_SERVER_ERROR), ("next", NONE)]
    assert "internal error" in caplog.text


def test_no_more_records_are_made_than_fit_into_a_batch(bench):
    log, records = bench.log(max_bytes=2000), Records(100_000)
    log.append(records, bench.then("long"))
    log.append([(b"c", b"3")], bench.then("small"))
    bench.turn.run()
    assert bench.told == [("long", ErrorCode.INVALID_COMMIT_OFFSET_SIZE), ("small", NONE)]
    assert records.made < 300


def test_a_log_that_is_closed_writes_no_batch_that_it_builds(bench):
    log, later = bench.log(), bench.log("later")
    log.append(Records(), bench.then("long"))
    bench.turn.run()
    log.close()
    later.append(Records(), bench.then("later"))
    bench.turn.run()
    finish(bench, 2)
    assert bench.told == [("long", ErrorCode.NOT_COORDINATOR), ("later", NONE)]
    assert bench.stored(log) == []


def test_a_slot_of_another_partition_refuses_the_append(bench):
    log = bench.log(incarnation=99)
    log.append([(b"a", b"1")], bench.then("late"))
    bench.turn.run()
    assert bench.told == [("late", ErrorCode.NOT_COORDINATOR)]


def test_a_log_that_cannot_be_written_does_not_affect_other_logs(bench, monkeypatch):
    bad, good = bench.log("bad"), bench.log("good")
    bad.append([(b"a", b"1")], bench.then("bad"))
    good.append([(b"b", b"2")], bench.then("good"))
    monkeypatch.setattr(bad, "write", lambda: 1 / 0)
    bench.turn.run()
    assert bench.told == [("good", NONE)]


def test_an_append_from_a_callback_is_written_in_the_same_turn(bench):
    log = bench.log()

    def then(code):
        bench.told.append(("outer", code))
        log.append([(b"inner", b"2")], bench.then("inner"))
        log.append([(b"inner", b"3")], bench.broken("inner too"))

    log.append([(b"outer", b"1")], then)
    bench.turn.run()
    assert [name for name, _ in bench.told] == ["outer", "inner", "inner too"]
    assert [value for _, value in bench.stored(log)] == [b"1", b"2", b"3"]


def test_appends_without_end_are_written_in_later_turns(stepped):
    log = stepped.log()

    def then(code):
        stepped.told.append(code)
        if len(stepped.told) < 2 * ROUNDS + 1:
            log.append([(b"k", None)], then)

    log.append([(b"k", None)], then)
    stepped.turn.run()
    assert stepped.told == [NONE] * ROUNDS
    stepped.loop.advance(1)
    assert stepped.told == [NONE] * (2 * ROUNDS + 1)


def marker(producer_id, commits=True):
    return EndMarker(producer_id, 3, 5, commits, 2)


@pytest.fixture
def native(monkeypatch):
    """Records the native appends, which succeed. `outcomes`: what `append_markers` returns, if not success."""

    class Native:
        def __init__(self):
            self.calls, self.outcomes, self.end = [], None, 100

        def append_built(self, slot, builder, incarnation, epoch, codec, compress, most, *producer):
            self.calls.append((builder.count, *producer))
            self.end += builder.count
            return 0, self.end - builder.count

        def append_markers(self, slot, incarnation, epoch, markers):
            self.calls.append([marker[0] for marker in markers])
            self.end += len(markers)
            return self.outcomes or [(0, self.end - len(markers) + number) for number in range(len(markers))]

        def high_watermark(self, slot):
            return self.end if self.outcomes is None else 0

    made = Native()
    for name in ("append_built", "append_markers", "high_watermark"):
        monkeypatch.setattr(slots, name, getattr(made, name), raising=False)
    return made


def test_plain_appends_records_of_transactions_and_markers_are_written_in_the_order_of_their_calls(bench, native):
    log = bench.log()
    log.append([(b"a", b"1"), (b"b", b"2")], bench.then("plain"))
    log.append([(b"c", b"3")], bench.then("joined"))
    log.append_transactional([(b"d", b"4"), (b"e", b"5")], 7, 3, bench.at("seven"))
    log.append_transactional([(b"f", b"6")], 8, 0, bench.at("eight"))
    log.append_marker(marker(7), bench.at("end of seven"))
    log.append_marker(marker(8, commits=False), bench.at("end of eight"))
    log.append((), bench.then("nothing"))
    log.append([(b"g", b"7")], bench.then("last"))
    log.append_marker(marker(9), bench.at("end of nine"))
    bench.turn.run()
    assert native.calls == [(3,), (2, 7, 3, True), (1, 8, 0, True), [7, 8], (1,), [9]]
    assert bench.told == [
        ("plain", NONE), ("joined", NONE), ("seven", NONE, 103), ("eight", NONE, 105),
        ("end of seven", NONE, 106), ("end of eight", NONE, 107), ("nothing", NONE), ("last", NONE),
        ("end of nine", NONE, 109),
    ]  # fmt: skip


def test_a_marker_that_is_refused_does_not_affect_the_others(bench, native):
    log = bench.log()
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    for producer_id in (7, 8, 9):
        log.append_marker(marker(producer_id), bench.at(producer_id))
    native.outcomes = [(0, -1), (int(fenced), -1), (0, -1)]
    bench.turn.run()
    assert bench.told == [(7, NONE, -1), (8, fenced, -1), (9, NONE, -1)]


def test_a_repeated_marker_waits_for_the_one_that_is_in_the_log(bench, native, monkeypatch):
    log = bench.log(alone=False)
    native.outcomes = [(0, 100)]
    log.append_marker(marker(7), bench.at("first"))
    bench.turn.run()
    native.outcomes = [(0, -1)]
    log.append_marker(marker(7), bench.at("again"))
    bench.turn.run()
    assert bench.told == []
    monkeypatch.setattr(slots, "high_watermark", lambda slot: 101)
    log.look()
    assert bench.told == [("first", NONE, 100), ("again", NONE, -1)]


def test_an_error_tells_whether_the_records_of_a_transaction_are_in_the_log(bench, native, monkeypatch):
    log = bench.log()
    monkeypatch.setattr(slots, "has_min_in_sync", lambda slot, maximal=False: not maximal)
    log.append_transactional([(b"a", b"1")], 7, 3, bench.at("records"))
    log.append_marker(marker(7), bench.at("marker"))
    bench.turn.run()
    few = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.told == [("records", few, 100), ("marker", few, 101)]
    monkeypatch.setattr(slots, "has_min_in_sync", lambda slot, maximal=False: False)
    log.append_transactional([(b"a", b"1")], 7, 3, bench.at("records"))
    log.append_marker(marker(7), bench.at("marker"))
    bench.turn.run()
    assert bench.told[2:] == [("records", few, -1), ("marker", few, -1)]
    log.close()
    log.append_transactional([(b"a", b"1")], 7, 3, bench.at("closed"))
    log.append_marker(marker(7), bench.at("closed"))
    bench.loop.run_until_complete(asyncio.sleep(0))
    assert bench.told[4:] == [("closed", ErrorCode.NOT_COORDINATOR, -1)] * 2


def test_a_lock_that_is_not_free_delays_markers_and_what_follows_them(stepped, native, monkeypatch):
    log = stepped.log()
    append_markers = native.append_markers

    def busy(*arguments):
        raise slots.SlotChanged("busy", AppendResult.APPEND_BUSY)

    monkeypatch.setattr(slots, "append_markers", busy)
    log.append_marker(marker(7), stepped.at("marker"))
    log.append([(b"a", b"1")], stepped.then("behind"))
    stepped.turn.run()
    stepped.loop.advance(100)
    assert stepped.told == []
    monkeypatch.setattr(slots, "append_markers", append_markers)
    stepped.loop.advance(1)
    assert stepped.told == [("marker", NONE, 100), ("behind", NONE)]


def test_an_append_that_waits_too_long_is_reported_late_and_acknowledged_later(stepped):
    log = stepped.log(alone=False)
    log.append([(b"a", b"1")], stepped.then("a"), stepped.late("a"))
    log.append([(b"b", b"2")], stepped.then("b"))
    stepped.turn.run()
    stepped.loop.advance(2000)
    log.append([(b"c", b"3")], stepped.then("c"), lambda: 1 / 0)
    log.append([(b"d", b"4")], stepped.then("d"), stepped.late("d"))
    stepped.turn.run()
    stepped.loop.advance(2999)
    assert stepped.told == []
    stepped.loop.advance(1)
    assert stepped.told == [("a", "late")]
    stepped.loop.advance(1999)
    assert stepped.told == [("a", "late")]
    stepped.loop.advance(1)
    assert stepped.told[1:] == [("d", "late")]
    stepped.loop.advance(60_000)
    slots.raise_high_watermark(log.place[0], 4)
    log.look()
    assert stepped.told[2:] == [(name, NONE) for name in "abcd"]


def test_an_append_acknowledged_in_time_is_not_reported_late(stepped):
    log = stepped.log(alone=False)
    log.append([(b"a", b"1")], stepped.then("a"), stepped.late("a"))
    stepped.turn.run()
    stepped.loop.advance(4000)
    slots.raise_high_watermark(log.place[0], 1)
    log.look()
    log.append([(b"b", b"2")], stepped.then("b"), stepped.late("b"))
    stepped.turn.run()
    stepped.loop.advance(4000)
    log.close()
    stepped.loop.advance(60_000)
    assert stepped.told == [("a", NONE), ("b", ErrorCode.NOT_COORDINATOR)]


def test_the_error_of_an_append_that_is_not_written_differs_from_that_of_one_that_may_be(stepped, monkeypatch):
    not_written = ErrorCode.NOT_ENOUGH_REPLICAS
    log = stepped.log(not_written=not_written)
    monkeypatch.setattr(slots, "has_min_in_sync", lambda slot, maximal=False: not maximal)
    log.append([(b"a", b"1")], stepped.then("written"))
    stepped.turn.run()
    monkeypatch.setattr(slots, "has_min_in_sync", lambda slot, maximal=False: False)
    log.append([(b"b", b"2")], stepped.then("too few"))
    log.append_marker(marker(7), stepped.at("marker"))
    stepped.turn.run()
    monkeypatch.undo()

    def busy(*arguments):
        raise slots.SlotChanged("busy", AppendResult.APPEND_BUSY)

    monkeypatch.setattr(slots, "append_built", busy)
    log.append([(b"c", b"3")], stepped.then("busy"))
    stepped.turn.run()
    stepped.loop.advance(PATIENCE_MS)
    assert stepped.told == [
        ("written", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("too few", not_written),
        ("marker", not_written, -1),
        ("busy", not_written),
    ]
    assert stepped.stored(log) == [(b"a", b"1")]


def test_a_lock_that_is_not_free_in_time_fails_the_queued_appends(stepped, monkeypatch):
    log = stepped.log()
    append_built = slots.append_built

    def busy(*arguments):
        raise slots.SlotChanged("busy", AppendResult.APPEND_BUSY)

    monkeypatch.setattr(slots, "append_built", busy)
    log.append([(b"a", b"1")], stepped.then("a"), stepped.late("a"))
    stepped.turn.run()
    stepped.loop.advance(4000)
    log.append([(b"b", b"2")], stepped.then("b"))
    assert stepped.told == []
    stepped.loop.advance(1000)
    assert stepped.told == [("a", ErrorCode.COORDINATOR_NOT_AVAILABLE), ("b", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    log.append([(b"c", b"3")], stepped.then("c"))
    stepped.turn.run()
    stepped.loop.advance(4900)
    monkeypatch.setattr(slots, "append_built", append_built)
    stepped.loop.advance(10)
    assert stepped.told[2:] == [("c", NONE)]
    assert stepped.stored(log) == [(b"c", b"3")]


def test_batches_written_before_the_lock_was_taken_are_acknowledged_and_watched(stepped, monkeypatch):
    alone, other = stepped.log("alone"), stepped.log("other", alone=False)
    append_built, slots_seen = slots.append_built, set()

    def once_each(slot, *arguments):
        if slot in slots_seen:
            raise slots.SlotChanged("busy", AppendResult.APPEND_BUSY)
        slots_seen.add(slot)
        return append_built(slot, *arguments)

    monkeypatch.setattr(slots, "append_built", once_each)
    monkeypatch.setattr(coordinator_log, "MAX_RECORDS", 1)
    for log, name in ((alone, "alone"), (other, "other")):
        log.append([(b"a", b"1")], stepped.then(f"{name} 1"), stepped.late(f"{name} 1"))
        log.append([(b"b", b"2")], stepped.then(f"{name} 2"))
    stepped.turn.run()
    assert stepped.told == [("alone 1", NONE)]
    stepped.loop.advance(PATIENCE_MS)
    refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert set(stepped.told[1:]) == {("other 1", "late"), ("alone 2", refused), ("other 2", refused)}


def test_an_empty_append_waits_for_the_appends_before_it(stepped):
    log = stepped.log(alone=False)
    log.append((), stepped.then("nothing before"))
    assert stepped.told == [("nothing before", NONE)]
    log.append([(b"a", b"1")], stepped.then("a"), stepped.late("a"))
    log.append((), stepped.then("queued"), stepped.late("queued"))
    stepped.turn.run()
    stepped.loop.advance(2000)
    log.append((), stepped.then("written"), stepped.late("written"))
    stepped.loop.advance(3000)
    assert stepped.told[1:] == [("a", "late"), ("queued", "late")]
    stepped.loop.advance(2000)
    assert stepped.told[3:] == [("written", "late")]
    log.append((), stepped.then("in time"), stepped.late("in time"))
    slots.raise_high_watermark(log.place[0], 1)
    log.look()
    assert stepped.told[4:] == [(name, NONE) for name in ("a", "queued", "written", "in time")]
    assert stepped.stored(log) == [(b"a", b"1")]
    log.append((), stepped.then("nothing before"))
    log.close()
    log.append((), stepped.then("too late"))
    stepped.loop.advance(1)
    assert stepped.told[8:] == [("nothing before", NONE), ("too late", ErrorCode.NOT_COORDINATOR)]


def test_an_empty_append_alone_in_a_batch_is_acknowledged_with_the_appends_before_it(stepped, monkeypatch):
    monkeypatch.setattr(coordinator_log, "MAX_RECORDS", 1)
    log, alone = stepped.log(alone=False), stepped.log("alone")
    for one, name in ((log, "log"), (alone, "alone")):
        one.append([(b"a", b"1")], stepped.then(f"{name} 1"))
        one.append((), stepped.then(f"{name} nothing"))
        one.append([(b"b", b"2"), ("no bytes", b"x")], stepped.then(f"{name} bad"))
        one.append((), stepped.then(f"{name} nothing too"))
    stepped.turn.run()
    bad = ErrorCode.UNKNOWN_SERVER_ERROR
    assert stepped.told[:2] == [("log bad", bad), ("alone bad", bad)]
    assert stepped.told[2:] == [("alone 1", NONE), ("alone nothing", NONE), ("alone nothing too", NONE)]
    slots.raise_high_watermark(log.place[0], 1)
    log.look()
    assert stepped.told[5:] == [("log 1", NONE), ("log nothing", NONE), ("log nothing too", NONE)]


# -- transactions in the slot -------------------------------------------------------------------------------------------


def batches_of(bench, log):
    return [batch for piece in read_records(log.place[0], [bench.broker.path]) for batch in piece]


def test_a_transaction_is_written_and_read_back(bench):
    log = bench.log()
    log.append_transactional([(b"a", b"1"), (b"b", None)], 7, 3, bench.at("seven"))
    log.append([(b"c", b"2")], bench.then("plain"))
    log.append_transactional([(b"a", b"3")], 7, 3, bench.at("seven"))
    log.append_transactional([(b"d", b"4")], 8, 0, bench.at("eight"))
    bench.turn.run()
    assert [one["producer_id"] for one in slots.transactions_of(log.place[0])] == [7, 8]
    log.append_marker(EndMarker(7, 4, 1, True, 2), bench.at("end of seven"))
    log.append_marker(EndMarker(8, 0, 1, False, 0), bench.at("end of eight"))
    bench.turn.run()
    assert slots.transactions_of(log.place[0]) == []
    assert bench.told == [
        ("seven", NONE, 0), ("plain", NONE), ("seven", NONE, 3), ("eight", NONE, 4),
        ("end of seven", NONE, 5), ("end of eight", NONE, 6),
    ]  # fmt: skip
    assert batches_of(bench, log) == [
        LogBatch([(b"a", b"1"), (b"b", None)], 7, [0, 1]),
        LogBatch([(b"c", b"2")]),
        LogBatch([(b"a", b"3")], 7, [3]),
        LogBatch([(b"d", b"4")], 8, [4]),
        LogBatch([], 7, commits=True),
        LogBatch([], 8, commits=False),
    ]


def test_markers_and_records_of_ended_epochs_are_refused_alone(bench):
    log = bench.log()
    log.append_transactional([(b"a", b"1")], 7, 3, bench.at("records"))
    log.append_marker(EndMarker(7, 4, 5, True, 2), bench.at("end"))
    log.append_marker(EndMarker(7, 4, 5, True, 2), bench.at("again"))
    log.append_marker(EndMarker(7, 4, 4, True, 2), bench.at("deposed coordinator"))
    log.append_marker(EndMarker(8, 1, 5, False, 0), bench.at("other"))
    log.append_transactional([(b"a", b"2")], 7, 3, bench.at("ended"))
    log.append_transactional([(b"a", b"3")], 7, 4, bench.at("next"))
    bench.turn.run()
    old, fenced = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert sorted(bench.told) == sorted([
        ("records", NONE, 0), ("end", NONE, 1), ("again", NONE, -1), ("deposed coordinator", fenced, -1),
        ("other", NONE, 2), ("ended", old, -1), ("next", NONE, 3),
    ])  # fmt: skip


def test_markers_wait_for_the_high_watermark(stepped):
    log = stepped.log(alone=False)
    log.append_transactional([(b"a", b"1")], 7, 3, stepped.at("records"), stepped.late("records"))
    log.append_marker(EndMarker(7, 3, 1, True, 0), stepped.at("end"))
    stepped.turn.run()
    stepped.loop.advance(PATIENCE_MS)
    assert stepped.told == [("records", "late")]
    slots.raise_high_watermark(log.place[0], 1)
    log.look()
    assert stepped.told[1:] == [("records", NONE, 0)]
    slots.raise_high_watermark(log.place[0], 2)
    log.look()
    assert stepped.told[2:] == [("end", NONE, 1)]


@pytest.mark.parametrize("acks", [0, 1])
def test_markers_and_records_of_transactions_wait_for_replicas_whatever_acks_plain_records_need(stepped, acks):
    log = stepped.log(alone=False, acks=acks)
    log.append([(b"plain", b"1")], stepped.then("plain"))
    log.append_transactional([(b"a", b"1")], 7, 3, stepped.at("records"), stepped.late("records"))
    log.append_marker(EndMarker(7, 3, 1, True, 0), stepped.at("end"))
    stepped.turn.run()
    assert stepped.told == [("plain", NONE)]
    slots.raise_high_watermark(log.place[0], 3)
    log.look()
    assert stepped.told[1:] == [("records", NONE, 1), ("end", NONE, 2)]


def test_a_repeated_marker_waits_for_the_one_that_a_predecessor_wrote(stepped):
    """A predecessor: an earlier leader, or a coordinator process that died before all replicas had the marker. Otherwise the
    transaction would count as complete, and be open again if this leader fails, too."""
    log = stepped.log(alone=False)
    log.append_transactional([(b"a", b"1")], 7, 3, stepped.at("records"))
    log.append_marker(EndMarker(7, 4, 1, True, 2), stepped.at("end"))
    stepped.turn.run()
    successor = CoordinatorLog(stepped.loop, stepped.turn, log.place, 0, 1 << 20, PATIENCE_MS, stepped.flusher)
    successor.append_marker(EndMarker(7, 4, 1, True, 2), stepped.at("again"))
    stepped.turn.run()
    slots.raise_high_watermark(log.place[0], 1)
    successor.look()
    assert stepped.told == []
    slots.raise_high_watermark(log.place[0], 2)
    successor.look()
    assert stepped.told == [("again", NONE, -1)]


# -- leadership that is confirmed ----------------------------------------------------------------------------------------


def test_one_append_confirms_the_leadership_for_all_that_wait_for_the_next_one(stepped):
    log = stepped.log(alone=False)
    log.confirm(b"nobody", stepped.then("first"))
    log.confirm(b"nobody", stepped.then("second"))
    log.confirm(b"nobody", stepped.then("third"))
    stepped.turn.run()
    assert stepped.told == [] and slot_facts.describe(log.place[0]).log_end_offset == 1
    slots.raise_high_watermark(log.place[0], 1)
    log.look()
    assert stepped.told == [("first", NONE)], "the others came after the append was queued"
    stepped.turn.run()
    slots.raise_high_watermark(log.place[0], 2)
    log.look()
    assert stepped.told[1:] == [("second", NONE), ("third", NONE)]
    assert stepped.stored(log) == [(b"nobody", None)] * 2


def test_a_leadership_that_followers_do_not_confirm_is_refused_after_a_time_or_at_the_close(stepped):
    log = stepped.log(alone=False)
    log.confirm(b"nobody", stepped.then("late"))
    stepped.turn.run()
    stepped.loop.advance(PATIENCE_MS)
    assert stepped.told == [("late", ErrorCode.REQUEST_TIMED_OUT)]
    log.confirm(b"nobody", stepped.then("closed"))
    log.confirm(b"nobody", stepped.then("waiting"))
    log.close()
    stepped.loop.advance(1)
    assert stepped.told[1:] == [("closed", ErrorCode.NOT_COORDINATOR), ("waiting", ErrorCode.NOT_COORDINATOR)]


# -- reading ------------------------------------------------------------------------------------------------------------


def taken_over(broker, *batches, next_offset):
    """The slot of a log that another broker wrote."""
    slot = broker.create("offsets")
    broker.obey(slot, 1)
    slots.follow(slot, b"".join(batches), next_offset)
    return slot


def read(broker, slot):
    return [batch for piece in read_records(slot, [broker.path]) for batch in piece]


@pytest.mark.parametrize("length", [-1, 0, 4])
def test_a_batch_with_an_impossible_length_is_corrupt(broker, length):
    slot = taken_over(broker, build_batch([Record(b"k", b"v", 1)], partition_leader_epoch=1), next_offset=1)
    (path,) = broker.table.path(slot).glob("*.log")
    with path.open("r+b") as log:
        log.seek(8)
        log.write(length.to_bytes(4, "big", signed=True))
    with pytest.raises(OSError, match=rf"corrupt batch \(its length field is {length}\)"):
        read(broker, slot)


def test_records_and_end_of_a_transaction_are_distinguished_from_others(broker):
    def within(base_offset, *values, codec=0):
        records = [Record(b"k", value, 1) for value in values]
        fields = {"producer_id": 7, "producer_epoch": 3, "base_sequence": base_offset, "attributes": TRANSACTIONAL}
        return build_batch(records, base_offset=base_offset, codec=codec, partition_leader_epoch=1, **fields)

    def end(kind, base_offset):
        fields = {"producer_id": 7, "producer_epoch": 3, "coordinator_epoch": 0, "timestamp": 1}
        return build_end_marker(kind, base_offset=base_offset, partition_leader_epoch=1, **fields)

    def plain(base_offset, *values):
        records = [Record(b"k", value, 1) for value in values]
        return build_batch(records, base_offset=base_offset, partition_leader_epoch=1)

    slot = taken_over(
        broker,
        plain(0, b"0"),
        plain(1, b"1", None),
        within(3, b"3", b"4"),
        within(5, b"5", codec=4),
        end(ABORT, 6),
        plain(7, b"7"),
        within(8, b"8"),
        end(COMMIT, 9),
        next_offset=10,
    )
    assert read(broker, slot) == [
        LogBatch([(b"k", b"0"), (b"k", b"1"), (b"k", None)]),
        LogBatch([(b"k", b"3"), (b"k", b"4")], 7, [3, 4]),
        LogBatch([(b"k", b"5")], 7, [5]),
        LogBatch([], 7, commits=False),
        LogBatch([(b"k", b"7")]),
        LogBatch([(b"k", b"8")], 7, [8]),
        LogBatch([], 7, commits=True),
    ]


def test_messages_of_old_formats_are_read(broker):
    slot = taken_over(
        broker,
        message(0, b"0", key=b"k", magic=0),
        wrapper(1, [(b"k", b"1"), (b"k", None)], codec=1),
        message(3, b"3", key=b"k"),
        build_batch([Record(b"k", b"4", 1)], base_offset=4, partition_leader_epoch=1),
        next_offset=5,
    )
    assert read(broker, slot) == [LogBatch([(b"k", b"0"), (b"k", b"1"), (b"k", None), (b"k", b"3"), (b"k", b"4")])]
