"""The aborted transactions of Fetch responses at read_committed, step by step in one process: the lists are complete,
however the log is cut into segments and responses, and a turn of the loop does a bounded amount of work."""

import itertools
import os
import random
import tempfile
import time
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek._ext.api.cold_look_ups import read_txn_indexes
from odradek._ext.partition import log_start, slots
from odradek._ext.testing import slot_probe
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch
from odradek.storage.batch import read_batches
from odradek.storage.indexes import TXN_ENTRY
from tests.api.transactional_log import EPOCH, TransactionalLog, filtered
from tests.api.worker_harness import HandWorker, nothing_came
from tests.durability.test_cold_reads import TRIES, Reader, make_cold
from tests.waiting import readable
from tests.wire import TIMEOUT_S, fetch_request, values, whole

KEY = fetch.API_KEY
COMMITTED, UNCOMMITTED = 1, 0
LONG_MS = 600_000
SMALL = {"segment_bytes": 700, "index_interval_bytes": 120}
_names = itertools.count()

PRODUCER = st.integers(0, 4)
STEP = st.one_of(
    st.tuples(st.just("data"), PRODUCER, st.integers(1, 4)),
    st.tuples(st.just("data"), PRODUCER, st.integers(1, 4)),
    st.tuples(st.just("abort"), PRODUCER),
    st.tuples(st.just("commit"), PRODUCER),
    st.tuples(st.just("plain"), st.integers(1, 4)),
)


class Reading:
    """A worker with one partition, which replicates what the test appends, and a reader's connection."""

    def __init__(self, path: Path, *, processes: int = 1, **options):
        self.worker = HandWorker(path, processes=processes)
        self.topic = f"t{next(_names)}"
        self.topic_id = uuid.uuid4().bytes
        self.slot = self.worker.create(self.topic, topic_id=self.topic_id, **(SMALL | options))
        self.worker.broker.obey(self.slot, EPOCH)
        self.log = TransactionalLog()
        self.cold = None
        self.wire = self.connect()
        self.path = self.worker.broker.table.path(self.slot)

    def connect(self):
        """A client that receives responses that are larger than the socket's buffer, with turns of the worker."""
        wire = self.worker.connect()

        def exactly(size):
            data = bytearray()
            until_ns = time.monotonic_ns() + int(TIMEOUT_S * 1e9)
            while len(data) < size:
                if readable(wire.socket.fileno()):
                    part = wire.socket.recv(min(size - len(data), 1 << 20))
                    assert part, "the broker closed the connection"
                    data += part
                else:
                    assert time.monotonic_ns() < until_ns, "nothing came"
                    self.worker.turn()
                    if self.cold is not None:
                        self.cold.work()
            return bytes(data)

        wire._exactly = exactly
        return wire

    def append(self, steps, *, size=20, high_watermark=None):
        data = self.log.take(steps, size)
        slots.follow(self.slot, data, self.log.end if high_watermark is None else high_watermark)

    def ask(self, offset, isolation=COMMITTED, version=12, **options):
        self.send(offset, isolation, version, **options)
        return self.receive()

    def send(self, offset, isolation=COMMITTED, version=12, **options):
        request = fetch_request([(self.topic, 0, offset)], isolation_level=isolation, **options)
        self.wire.send(request, KEY, version)
        self.worker.turn()

    def receive(self):
        (topic,) = self.wire.receive().responses
        (partition,) = topic.partitions
        return partition

    def check_all(self, max_bytes):
        """Read the log from its start to the last stable offset, at most `max_bytes` or one batch at a time."""
        offset, end, found, responses = 0, None, [], 0
        while end is None or offset < end:
            told = self.ask(offset, partition_max_bytes=max_bytes)
            assert told.error_code == 0
            end = told.last_stable_offset
            records = whole(told.records)
            if not records:
                break
            behind = next_offset(records)
            listed = pairs(told)
            assert listed >= self.log.aborted(offset, behind), "a transaction is missing in the list"
            assert listed <= self.log.aborted(offset, self.log.end)
            assert len(listed) == len(told.aborted_transactions), "a transaction is listed twice"
            found += filtered(records, told.aborted_transactions, offset)
            offset = behind
            responses += 1
        assert found == self.log.committed(0, end)
        return responses

    @property
    def look_ups(self):
        return self.worker.fetch_handler.aborted_look_ups

    def indexes(self):
        return sorted(self.path.glob("*.txnindex"))

    def close(self):
        self.worker.close()


def pairs(told):
    return {(one.producer_id, one.first_offset) for one in told.aborted_transactions}


def next_offset(records):
    return list(read_batches(records))[-1].last_offset + 1


@pytest.fixture
def reading(tmp_path):
    reading = Reading(tmp_path)
    yield reading
    reading.close()


# -- the lists ----------------------------------------------------------------------------------------------------------


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(STEP, min_size=1, max_size=60), st.integers(1, 900), st.sampled_from([300, 700, 1 << 20]))
def test_a_reader_gets_exactly_the_committed_records(steps, max_bytes, segment_bytes):
    with tempfile.TemporaryDirectory() as name:
        reading = Reading(Path(name), segment_bytes=segment_bytes)
        try:
            for at in range(0, len(steps), 7):
                reading.append(steps[at : at + 7])
                if at % 3 == 0:
                    reading.check_all(max_bytes)
            assert reading.ask(0).last_stable_offset == reading.log.first_open
            reading.check_all(max_bytes)
            reading.check_all(1 << 20)
        finally:
            reading.close()


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_lists_none_and_some_and_null(reading, version):
    reading.append([("data", 3, 2), ("data", 4, 1), ("abort", 3), ("commit", 4), ("plain", 1)])
    if version < 11:  # earlier versions do not read from followers
        reading.worker.broker.lead(reading.slot, EPOCH + 1)
    target = reading.topic_id if version >= 13 else reading.topic

    def ask(offset, isolation):
        reading.wire.send(fetch_request([(target, 0, offset)], isolation_level=isolation), KEY, version)
        reading.worker.turn()
        told = reading.receive()
        assert told.error_code == 0
        return told.aborted_transactions and [(one.producer_id, one.first_offset) for one in told.aborted_transactions]

    assert ask(0, COMMITTED) == [(3, 0)]
    assert ask(1, COMMITTED) == [(3, 0)]
    assert ask(5, COMMITTED) == []
    assert ask(6, COMMITTED) == []
    assert [ask(offset, UNCOMMITTED) for offset in (0, 5, 6)] == [None, None, None]


def test_replicas_and_errors_get_null(reading):
    reading.append([("data", 3, 2), ("abort", 3)])
    request = fetch_request([(reading.topic, 0, 0)], isolation_level=COMMITTED)
    request.replica_id = -2  # reads like a replica, to the log end
    reading.wire.send(request, KEY, 12)
    reading.worker.turn()
    assert reading.receive().aborted_transactions is None
    refused = reading.ask(99)  # of a follower, which sends the reader to the leader
    assert (refused.error_code, refused.aborted_transactions) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    assert reading.ask(0).aborted_transactions


def test_old_versions_read_everything(reading):
    reading.append([("data", 3, 2), ("abort", 3), ("data", 4, 1)])
    reading.worker.broker.lead(reading.slot, EPOCH + 1)
    reading.wire.send(fetch_request([(reading.topic, 0, 0)]), KEY, 3)
    reading.worker.turn()
    reading.worker.convert()
    told = reading.receive()
    assert (told.error_code, told.high_watermark) == (0, 4)
    assert told.records


def test_readers_behind_the_newest_abort_search_nothing(reading):
    reading.append([("data", 1, 1), ("abort", 1), ("plain", 3)])
    for offset in range(2, 6):
        assert reading.ask(offset).aborted_transactions == []
    assert reading.ask(0, UNCOMMITTED).aborted_transactions is None
    assert reading.look_ups == 0
    assert pairs(reading.ask(1)) == {(1, 0)}
    assert reading.look_ups == 1


def test_a_list_has_only_transactions_of_the_range_that_was_read(reading):
    steps = [step for _ in range(300) for step in (("data", 1, 1), ("abort", 1))]
    reading.append(steps)
    told = reading.ask(0, partition_max_bytes=2000)
    batches = len(whole(told.records)) // 90
    assert 3 < len(told.aborted_transactions) <= batches
    told = reading.ask(301, partition_max_bytes=1)
    assert pairs(told) == {(1, 300)}


def test_the_marker_of_a_transaction_may_be_many_segments_behind(reading):
    rest = [
        step
        for number in range(200)
        for step in (("data", 2, 2), ("abort" if number % 10 else "commit", 2), ("plain", 1))
    ]
    reading.append([("data", 1, 1), *rest, ("data", 1, 1), *rest, ("abort", 1), *rest])
    assert len(reading.indexes()) > 20
    reading.check_all(1)
    reading.check_all(3000)
    assert (1, 0) in pairs(reading.ask(0, partition_max_bytes=1))


def test_an_open_transaction_hides_what_follows_it(reading):
    reading.append([("data", 1, 1), ("data", 2, 1), ("abort", 2), ("plain", 1), ("data", 3, 2), ("abort", 3)])
    assert reading.ask(0).last_stable_offset == 0
    assert not reading.ask(0).records
    reading.append([("commit", 1)])
    reading.check_all(1)
    reading.check_all(1 << 20)


# -- changes of the log ---------------------------------------------------------------------------------------------------


def test_lists_follow_truncations(reading):
    reading.append([("data", 1, 1), ("data", 2, 2), ("abort", 2), ("data", 3, 2), ("abort", 3), ("commit", 1)])
    reading.check_all(1 << 20)
    slots.truncate(reading.slot, 4)
    reading.worker.broker.obey(reading.slot, EPOCH + 1)
    log = TransactionalLog()
    kept = log.take([("data", 1, 1), ("data", 2, 2), ("abort", 2)])
    assert kept == reading.log.data[: len(kept)]
    reading.log = log
    reading.append([("data", 3, 2), ("commit", 3), ("data", 4, 1), ("abort", 1), ("abort", 4)])
    reading.check_all(1 << 20)
    reading.check_all(1)
    slots.truncate(reading.slot, 0)
    reading.log = TransactionalLog()
    reading.append([("data", 2, 2), ("commit", 2)])
    before = reading.look_ups
    reading.check_all(1)
    assert reading.look_ups == before, "the truncation removed every abort"


def test_segments_that_are_removed_while_they_are_read(reading):
    reading.append([step for _ in range(60) for step in (("data", 1, 2), ("abort", 1), ("plain", 1))])
    assert pairs(reading.ask(0, partition_max_bytes=500))
    keep = int(reading.indexes()[5].name[:20])
    incarnation = slot_probe.incarnation_of(reading.slot)
    log_start.advance(reading.slot, keep, incarnation=incarnation)
    log_start.remove_before(reading.slot, keep, incarnation=incarnation)
    assert reading.ask(0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    told = reading.ask(keep, partition_max_bytes=300)
    behind = next_offset(whole(told.records))
    assert pairs(told) >= reading.log.aborted(keep, behind)
    # An index that vanishes without a change of the log is an error, and the reader does not get aborted records.
    reading.ask(keep, partition_max_bytes=1)
    reading.worker.fetch_handler.sweep()


def test_a_new_segment_s_aborts_are_found_at_once(reading):
    """The list of segments is made when the active segment has no index yet, which then gets one and is closed."""
    for number in range(30):
        reading.append([("plain", 3)])
        assert reading.ask(0).aborted_transactions is not None
        reading.append([("data", 1, 1), ("abort", 1)])
        assert pairs(reading.ask(reading.log.end - 2)) == {(1, reading.log.end - 2)}, number
    reading.check_all(1)


# -- damaged indexes ------------------------------------------------------------------------------------------------------


def with_aborts(reading, count=40):
    reading.append([step for _ in range(count) for step in (("data", 1, 1), ("abort", 1), ("plain", 1))])
    return reading.indexes()


@pytest.mark.parametrize(
    "field, value",
    [(0, 1), (0, -1), (1, -5), (2, -1), (2, 1 << 40), (3, -1), (3, 1 << 50), (3, 2), (4, -1), (4, 1 << 60)],
)
def test_damaged_entries_refuse_the_partition(reading, field, value):
    """A list without a transaction would give aborted records, so no list is given."""
    index = with_aborts(reading)[3]
    base = int(index.name[:20])
    entries = list(TXN_ENTRY.iter_unpack(index.read_bytes()))
    damaged = list(entries[-1])
    damaged[field] = value
    index.write_bytes(b"".join(TXN_ENTRY.pack(*one) for one in [*entries[:-1], damaged]))
    told = reading.ask(base, partition_max_bytes=1)
    assert (told.error_code, told.aborted_transactions, bytes(told.records or b"")) == (
        ErrorCode.KAFKA_STORAGE_ERROR, None, b"")  # fmt: skip
    assert values(reading.ask(base, UNCOMMITTED, partition_max_bytes=1).records)
    assert pairs(reading.ask(0, partition_max_bytes=1)), "other segments are not concerned"


@pytest.mark.parametrize("left", [0, 1, 33, 35, -1])
def test_cut_indexes_refuse_the_partition(reading, left):
    index = with_aborts(reading)[3]
    data = index.read_bytes()
    index.write_bytes(data[:left])
    told = reading.ask(int(index.name[:20]), partition_max_bytes=1)
    if left == 0:  # cannot be told from an index without entries
        assert told.error_code == 0
    else:
        assert told.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_the_index_of_the_active_segment_may_not_be_shorter_than_committed(tmp_path):
    reading = Reading(tmp_path, segment_bytes=1 << 20)
    (index,) = with_aborts(reading)
    data = index.read_bytes()
    index.write_bytes(data[:-1])
    assert reading.ask(0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    index.write_bytes(data + b"\0" * 34 + b"x")  # what follows the committed entries does not count
    reading.check_all(1 << 20)
    index.unlink()
    reading.append([("plain", 1)])
    reading.worker.close()


@pytest.mark.parametrize("damage", [b"", b"\xff" * 160, b"\0" * 160])
def test_a_damaged_offset_index_may_only_make_lists_longer(reading, damage):
    with_aborts(reading)
    for path in reading.path.glob("*.index"):
        path.write_bytes(damage[: path.stat().st_size])
    reading.check_all(1)
    reading.check_all(500)


def test_a_recovery_from_the_start_rebuilds_damaged_indexes(reading, tmp_path_factory):
    with_aborts(reading)
    reading.append(
        [("data", 2, 1), *[step for _ in range(10) for step in (("data", 1, 1), ("abort", 1))], ("abort", 2)]
    )
    indexes = {path.name: path.read_bytes() for path in reading.indexes()}
    for number, (name, data) in enumerate(indexes.items()):
        (reading.path / name).write_bytes([data[:-1], data[:5] + b"\xff" + data[6:], b""][number % 3])
    copy = tmp_path_factory.mktemp("load") / "copy"
    reading.worker.broker.reload(reading.slot, copy, index_interval_bytes=SMALL["index_interval_bytes"])
    assert {path.name: path.read_bytes() for path in copy.glob("*.txnindex")} == indexes


def test_flipped_bits_of_indexes_give_a_list_or_an_error(reading):
    chance = random.Random(5)
    with_aborts(reading)
    files = {path: path.read_bytes() for suffix in ("txnindex", "index") for path in reading.path.glob(f"*.{suffix}")}
    for number in range(150):
        path = chance.choice([path for path, data in files.items() if data])
        data = bytearray(files[path])
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        slot_probe.roll(reading.slot)  # another generation: nothing is known of the files
        reading.append([("plain", 1)])
        for offset in range(number % 5, reading.log.end, 17):
            told = reading.ask(offset, partition_max_bytes=chance.choice([1, 500, 1 << 20]))
            assert told.error_code in (0, ErrorCode.KAFKA_STORAGE_ERROR)
        path.write_bytes(files[path])
    slot_probe.roll(reading.slot)
    reading.check_all(1 << 20)


# -- starts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_a_load_finds_the_newest_abort(reading, tmp_path_factory, clean):
    reading.append([("data", 1, 1), ("plain", 1), ("abort", 1), ("plain", 4), ("data", 2, 30), ("data", 1, 5)])
    broker = reading.worker.broker
    loaded = broker.reload(reading.slot, tmp_path_factory.mktemp("load") / "copy", clean=clean)
    assert loaded.newest_abort_offset == 2
    reading.append([("plain", 40), ("abort", 2), ("plain", 40), ("commit", 1)])
    copy = tmp_path_factory.mktemp("load") / "copy"
    loaded = broker.reload(reading.slot, copy, clean=clean)
    newest = reading.log.decided[1].marker
    assert loaded.newest_abort_offset == newest
    index = sorted(copy.glob("*.txnindex"))[-1]
    index.write_bytes(index.read_bytes()[:-1])
    for path in copy.glob("*"):
        if path.suffix == ".txnindex":
            assert path.stat().st_size in (33, 34)


def test_a_log_without_aborts_has_no_newest_abort(reading, tmp_path_factory):
    reading.append([("data", 1, 1), ("commit", 1), ("plain", 100)])
    loaded = reading.worker.broker.reload(reading.slot, tmp_path_factory.mktemp("load") / "copy")
    assert loaded.newest_abort_offset == -1


# -- waiting ----------------------------------------------------------------------------------------------------------------


def test_a_long_poll_is_answered_in_the_turn_in_which_the_last_stable_offset_moves(reading):
    reading.append([("plain", 1), ("data", 1, 2)])
    reading.send(1, wait_ms=LONG_MS)
    assert nothing_came(reading.wire)
    reading.append([("plain", 2)])
    reading.worker.turn()
    assert nothing_came(reading.wire), "the open transaction holds the reader"
    reading.append([("abort", 1)])
    reading.worker.turn()
    told = reading.receive()
    assert pairs(told) == {(1, 1)}
    assert told.last_stable_offset == told.high_watermark == 6
    assert [offset for offset, _ in filtered(told.records, told.aborted_transactions, 1)] == [3, 4]


def test_a_session_reports_what_a_marker_moved(reading):
    reading.append([("data", 1, 2)])
    wire = reading.wire
    wire.send(fetch_request([(reading.topic, 0, 0)], isolation_level=COMMITTED, session_epoch=0), KEY, 12)
    reading.worker.turn()
    begun = wire.receive()
    (partition,) = begun.responses[0].partitions
    assert (partition.last_stable_offset, partition.high_watermark, partition.aborted_transactions) == (0, 2, [])

    def go_on(epoch):
        request = fetch_request([], isolation_level=COMMITTED, session_id=begun.session_id, session_epoch=epoch)
        wire.send(request, KEY, 12)
        reading.worker.turn()
        return [one for topic in wire.receive().responses for one in topic.partitions]

    assert go_on(1) == []
    reading.append([("abort", 1)])
    (partition,) = go_on(2)
    assert (partition.last_stable_offset, partition.high_watermark, pairs(partition)) == (3, 3, {(1, 0)})


# -- much work --------------------------------------------------------------------------------------------------------------

MANY = 5000
"""Aborted transactions, more than the loop reads at once."""


def aborts(count, producer=1):
    return [step for _ in range(count) for step in (("data", producer, 1), ("abort", producer))]


class IndexReader(Reader):
    """Counts the requests to read transaction indexes. The kernel may say of any page that it is not in memory."""

    indexes = 0

    def call(self, work, callback):
        self.indexes += sum(look_up is read_txn_indexes for look_up, _ in work.args[0])
        super().call(work, callback)


@pytest.fixture
def large(tmp_path):
    """A log of one segment, read by a worker with a cold reader."""
    reading = Reading(tmp_path, segment_bytes=1 << 24, index_interval_bytes=4096)
    reading.cold = reading.worker.loop.responses.cold_reader = IndexReader()
    yield reading
    reading.close()


def test_a_long_index_is_read_beside_the_loop_once(large):
    large.append(aborts(MANY))
    large.send(100, partition_max_bytes=1)
    assert nothing_came(large.wire)
    assert len(large.cold.look_ups) == 1
    other = large.worker.connect()
    other.send(fetch_request([(large.topic, 0, 100)], partition_max_bytes=1), KEY, 12)
    large.worker.turn()
    assert not nothing_came(other) or len(large.cold.look_ups) > 1
    assert pairs(large.receive()) == {(1, 100)}
    assert large.cold.indexes == 1
    large.append(aborts(20))
    for offset in (0, 5000, 2 * MANY - 1, 2 * MANY + 38):
        told = large.ask(offset, partition_max_bytes=2000)
        assert pairs(told) >= large.log.aborted(offset, next_offset(whole(told.records)))
        assert len(told.aborted_transactions) < 300
    assert large.cold.indexes <= 2  # one more if the kernel says of the appended entries that they are not in memory


def test_a_long_transaction_over_long_indexes_is_found_with_one_read_of_each(tmp_path):
    reading = Reading(tmp_path, segment_bytes=1 << 20)
    reading.cold = reading.worker.loop.responses.cold_reader = IndexReader()
    reading.append([("data", 2, 1), *aborts(4 * MANY), ("abort", 2)])
    assert len(reading.indexes()) >= 3
    told = reading.ask(0, partition_max_bytes=1)
    assert pairs(told) == {(2, 0)}
    assert reading.cold.indexes == 1, "one request for all of them"
    told = reading.ask(0, partition_max_bytes=1 << 19)
    assert pairs(told) >= reading.log.aborted(0, next_offset(whole(told.records)))
    assert reading.cold.indexes == 1, "all summaries were kept"
    reading.close()


def test_a_request_with_long_lists_is_planned_in_several_turns(tmp_path):
    reading = Reading(tmp_path, segment_bytes=1 << 24)
    reading.append(aborts(4000))
    topics = [reading.topic]
    for _ in range(11):
        topics.append(f"t{next(_names)}")
        slot = reading.worker.create(topics[-1], segment_bytes=1 << 24)
        reading.worker.broker.obey(slot, EPOCH)
        slots.follow(slot, reading.log.data, reading.log.end)
    request = fetch_request([(topic, 0, 0) for topic in topics], isolation_level=COMMITTED, partition_max_bytes=1 << 16)
    reading.wire.send(request, KEY, 12)
    reading.worker.read()
    assert reading.worker.slices, "the rest is planned in a later turn"
    reading.worker.turn()
    told = [one for topic in reading.wire.receive().responses for one in topic.partitions]
    assert len(told) == len(topics)
    for one in told:
        assert pairs(one) >= reading.log.aborted(0, next_offset(whole(one.records)))
    reading.close()


def test_a_list_of_many_transactions_is_complete(tmp_path):
    reading = Reading(tmp_path, segment_bytes=1 << 24)
    reading.append(aborts(3 * MANY))
    told = reading.ask(0)
    assert len(told.aborted_transactions) == 3 * MANY
    assert filtered(told.records, told.aborted_transactions, 0) == []
    reading.close()


# -- pages that are not in the page cache -------------------------------------------------------------------------------------


def test_a_cold_index_is_read_beside_the_loop(large):
    large.append(aborts(600))
    for _ in range(TRIES):
        make_cold(large.worker, large.slot)
        large.send(0, partition_max_bytes=1)
        asked = bool(large.cold.look_ups)
        large.cold.work()
        assert pairs(large.receive()) == {(1, 0)}
        if asked:
            return
    raise AssertionError(f"none of {TRIES} look-ups of cold pages went to the reader")


def test_indexes_that_are_evicted_at_every_turn_are_waited_for_in_the_end(large):
    large.append([("data", 2, 1), *aborts(600), ("abort", 2)])
    make_cold(large.worker, large.slot)
    large.send(0, partition_max_bytes=1)
    rounds = 0
    while large.cold.look_ups:
        _, callback = large.cold.look_ups.pop()
        make_cold(large.worker, large.slot)
        callback(None)
        rounds += 1
    assert rounds < 20
    large.cold.work()
    assert (2, 0) in pairs(large.receive())


# -- the last stable offset ---------------------------------------------------------------------------------------------------


def test_a_read_up_to_an_open_transaction_needs_no_offset_index(tmp_path):
    """Its end is in the slot. The index is removed: a look-up would fail."""
    reading = Reading(tmp_path, segment_bytes=1 << 20)
    reading.append([("plain", 1), ("plain", 2), ("data", 1, 1), ("plain", 1), ("data", 2, 1)])
    for path in reading.path.glob("*.index"):
        path.unlink()
    for _ in range(2):
        told = reading.ask(0)
        assert (told.error_code, told.last_stable_offset) == (0, 3)
        assert [offset for offset, _ in filtered(told.records, told.aborted_transactions, 0)] == [0, 1, 2]
    reading.append([("commit", 1)])
    told = reading.ask(3)
    assert (told.error_code, told.last_stable_offset) == (0, 5)
    assert [offset for offset, _ in filtered(told.records, told.aborted_transactions, 3)] == [3, 4]
    reading.close()


def test_the_end_of_a_read_follows_open_transactions_over_segments(reading):
    for number in range(40):
        reading.append([("data", number % 5, 2), ("plain", 1)])
        if number > 3:
            reading.append([("abort" if number % 3 else "commit", (number + 1) % 5)])
        for start in range(0, reading.log.first_open, 5):
            told = reading.ask(start)
            assert told.last_stable_offset == reading.log.first_open
            assert next_offset(told.records) <= reading.log.first_open
    reading.check_all(1 << 20)
    reading.check_all(1)


def test_a_marker_of_the_coordinator_wakes_readers_in_the_same_turn(tmp_path):
    reading = Reading(tmp_path, segment_bytes=1 << 20)
    reading.append([("plain", 1), ("data", 1, 2)])
    reading.worker.broker.lead(reading.slot, EPOCH + 1)
    reading.send(1, wait_ms=LONG_MS)
    reading.worker.turn()
    assert nothing_came(reading.wire)
    incarnation = slot_probe.incarnation_of(reading.slot)
    assert slots.append_markers(reading.slot, incarnation, EPOCH + 1, [(1, 0, 0, False, 0)]) == [(0, 3)]
    reading.worker.turn()
    told = reading.receive()
    assert (pairs(told), told.last_stable_offset) == ({(1, 1)}, 4)
    reading.close()


# -- changes while the log is read --------------------------------------------------------------------------------------------


def test_lists_are_complete_while_another_process_appends_and_rolls(tmp_path):
    """Every response is compared with the whole log, in which the records below a last stable offset have the same outcome."""
    chance = random.Random(11)
    reading = Reading(tmp_path, processes=2, segment_bytes=400)
    batches = []
    for _ in range(1500):
        kind = chance.choice(["data", "data", "abort", "abort", "commit", "plain"])
        step = {"data": ("data", chance.randrange(3), 1), "plain": ("plain", 1)}.get(kind, (kind, chance.randrange(3)))
        batches.append((reading.log.take([step]), reading.log.end))
    batches.append((reading.log.take([("commit", 0), ("commit", 1), ("commit", 2)]), reading.log.end))

    permits, permit = os.pipe()  # the other process stays at most two parts before what the reader has seen
    part = 20  # batches

    def append():
        os.close(permit)
        for number, (data, end) in enumerate(batches):
            if number % part == 0:
                os.read(permits, 1)  # also returns at the end of the reader
            slots.follow(reading.slot, data, end)

    child = reading.worker.broker.fork(1, append)
    os.close(permits)
    stable = seen = permitted = responses = 0
    until = time.monotonic() + TIMEOUT_S
    while stable < reading.log.end:
        assert time.monotonic() < until, "the other process does not go on"
        if permitted < len(batches) and seen >= (batches[permitted - part - 1][1] if permitted > part else 0):
            os.write(permit, b"x")
            permitted += part
        start = chance.randrange(max(0, stable - 60), stable + 1)
        told = reading.ask(start, partition_max_bytes=chance.choice([1, 200, 1000]))
        assert told.error_code == 0
        stable, seen = told.last_stable_offset, told.high_watermark
        records = whole(told.records)
        if records:
            assert filtered(records, told.aborted_transactions, start) == reading.log.committed(
                start, next_offset(records)
            )
            responses += 1
    assert reading.worker.broker.reap(child, 1) == 0
    os.close(permit)
    assert responses > len(batches) // part // 2
    reading.check_all(1)
    reading.close()
