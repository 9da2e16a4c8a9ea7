"""Fetch on the wire: versions, limits, errors, long polls, and reading across segments and from the middle of batches."""

import threading
import time

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch, produce
from tests.wire import NOBODY, TIMEOUT_S, batch, fetch_request, offsets, produce_request, values, whole

pytestmark = pytest.mark.xdist_group("api-fetch")

KEY = fetch.API_KEY
LONG_MS = 600_000
"""A wait that is ended by something else, on any machine in less than half of it."""


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads_by_its_schema(wire, name, version):
    topic = wire.create(name)
    wire.produce(name, batch(b"a", b"b"))
    target = topic if version >= 13 else name
    response = wire.ask(fetch_request([(target, 0, 0)]), KEY, version)
    (told,) = response.responses
    assert (told.topic, told.topic_id) == (("", topic) if version >= 13 else (name, bytes(16)))
    (one,) = told.partitions
    assert (one.partition_index, one.error_code, one.high_watermark, one.last_stable_offset) == (0, 0, 2, 2)
    assert one.log_start_offset == (0 if version >= 5 else -1)
    assert values(one.records) == [b"a", b"b"]
    empty = wire.ask(fetch_request([(target, 0, 2)]), KEY, version).responses[0].partitions[0]
    assert (empty.error_code, empty.high_watermark, bytes(empty.records or b"")) == (0, 2, b"")


@pytest.mark.parametrize("version", [-1, 19])
def test_versions_that_are_not_served_close_the_connection(wire, name, version):
    frame = bytearray(wire.frame(fetch_request([(name, 0, 0)]), KEY, 4))
    frame[6:8] = version.to_bytes(2, "big", signed=True)
    wire.socket.sendall(frame)
    assert wire.closed_by_broker()


def filled(wire, name, count=10, size=1000, partitions=1, **configs):
    """A topic with `count` batches of one record in every partition."""
    topic = wire.create(name, partitions, **configs)
    for partition in range(partitions):
        for number in range(count):
            content = (b"%d-%d" % (partition, number)).ljust(size, b".")
            assert wire.produce(name, batch(content), partition).error_code == 0
    return topic


@pytest.mark.parametrize("field", ["max_bytes", "partition_max_bytes"])
def test_limits_apply_after_the_first_batch(wire, name, field):
    filled(wire, name)
    size = len(batch(b"." * 1000))
    bounded = wire.fetch(name, 0, **{field: 3 * size + 10})
    assert len(bounded.records) <= 3 * size + 10
    assert offsets(whole(bounded.records)) == [0, 1, 2]
    assert offsets(wire.fetch(name, 4, **{field: 1}).records) == [4]
    assert offsets(wire.fetch(name, 4, **{field: 0}).records) == [4]


def test_only_the_first_batch_of_a_response_may_exceed_the_limit(wire, name):
    filled(wire, name, 3, partitions=2)
    response = wire.ask(fetch_request([(name, 0, 0), (name, 1, 0)], max_bytes=100), KEY, 12)
    read = [one for topic in response.responses for one in topic.partitions]
    assert [offsets(whole(one.records)) for one in read] == [[0], []]
    assert [one.high_watermark for one in read] == [3, 3]
    response = wire.ask(fetch_request([(name, 0, 3), (name, 1, 0)], max_bytes=100), KEY, 12)
    read = [one for topic in response.responses for one in topic.partitions]
    assert [offsets(whole(one.records)) for one in read] == [[], [0]]


def test_offsets_outside_the_log_are_refused(wire, name):
    filled(wire, name, 2)
    for offset in (-1, 3, 1 << 62):
        told = wire.fetch(name, offset)
        assert (told.error_code, bytes(told.records or b"")) == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")


def test_unknown_topics_partitions_and_ids_get_errors(wire, name):
    topic = filled(wire, name, 1)
    assert wire.fetch("no-such", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.fetch(name, 0, 1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.fetch(name, 0, -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.fetch(NOBODY, 0, version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert wire.fetch(topic, 0, 1, version=13).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_other_leader_epochs_are_fenced_or_unknown(wire, name):
    filled(wire, name, 1)
    epoch = wire.metadata(name).topics[0].partitions[0].leader_epoch
    assert wire.fetch(name, 0, leader_epoch=epoch).error_code == 0
    assert wire.fetch(name, 0, leader_epoch=epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    if epoch > 0:
        assert wire.fetch(name, 0, leader_epoch=epoch - 1).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_former_leader_epoch_is_fenced(wire_broker, connect, name):
    wire = connect()
    filled(wire, name, 1)
    wire_broker.restart()
    wire = connect()
    epoch = wire.metadata(name).topics[0].partitions[0].leader_epoch
    told = [wire.fetch(name, 0, leader_epoch=one).error_code for one in range(epoch + 2)]
    assert told == [ErrorCode.FENCED_LEADER_EPOCH] * epoch + [0, ErrorCode.UNKNOWN_LEADER_EPOCH]


# -- long polls -----------------------------------------------------------------------------------------------------


def parked(wire, *frames_of):
    """Whether nothing has come yet on a connection that was just asked something."""
    wire.socket.setblocking(False)
    try:
        wire.socket.recv(1)
    except BlockingIOError:
        return True
    finally:
        wire.socket.settimeout(TIMEOUT_S)
    return False


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_long_poll_is_woken_by_another_connection(connect, name, acks):
    first, *readers = [connect() for _ in range(5)]
    first.create(name)
    for reader in readers:  # spread over the workers, each of which hears of the topic in its own time
        reader.until_led(name)
        reader.send(fetch_request([(name, 0, 0)], wait_ms=LONG_MS), KEY, 12)
    first.metadata(name)
    assert all(parked(reader) for reader in readers)
    arrived = {}

    def receive(index):
        found = readers[index].receive().responses[0].partitions[0]
        arrived[index] = (time.monotonic(), values(found.records))

    threads = [threading.Thread(target=receive, args=(index,)) for index in range(len(readers))]
    for thread in threads:
        thread.start()
    sent = time.monotonic()
    first.send(produce_request([(name, [(0, batch(b"now"))])], acks), produce.API_KEY, 9)
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert [one[1] for one in arrived.values()] == [[b"now"]] * len(readers)
    assert max(one[0] for one in arrived.values()) - sent < LONG_MS / 2000  # else their own time was up


def test_max_wait_is_respected_and_skipped_if_there_are_records(wire, name):
    filled(wire, name, 1)
    began = time.monotonic()
    assert bytes(wire.fetch(name, 1, wait_ms=300).records or b"") == b""
    assert time.monotonic() - began >= 0.25
    began = time.monotonic()
    assert offsets(wire.fetch(name, 0, wait_ms=LONG_MS).records) == [0]
    assert wire.fetch(name, 1, wait_ms=LONG_MS, min_bytes=0).error_code == 0
    assert time.monotonic() - began < LONG_MS / 2000


def test_min_bytes_are_waited_for(connect, name):
    writer, reader = connect(), connect()
    filled(writer, name, 1)
    size = len(batch(b"." * 1000))
    reader.until_led(name)
    reader.send(fetch_request([(name, 0, 0)], wait_ms=LONG_MS, min_bytes=3 * size), KEY, 12)
    writer.produce(name, batch(b"." * 1000))
    assert parked(reader)
    writer.produce(name, batch(b"." * 1000))
    assert offsets(reader.receive().responses[0].partitions[0].records) == [0, 1, 2]


def test_too_few_bytes_are_returned_when_max_wait_has_passed(wire, name):
    filled(wire, name, 1)
    assert offsets(wire.fetch(name, 0, wait_ms=200, min_bytes=1 << 20).records) == [0]


@pytest.mark.parametrize("version", [12, 13])
def test_deletion_answers_a_long_poll_at_once(connect, name, version):
    owner, readers = connect(), [connect() for _ in range(3)]
    topic = filled(owner, name, 1)
    target = topic if version >= 13 else name
    for reader in readers:
        reader.until_led(name)
        reader.send(fetch_request([(target, 0, 1)], wait_ms=LONG_MS), KEY, version)
    owner.metadata(name)
    began = time.monotonic()
    owner.delete(name)
    error = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for reader in readers:
        assert reader.receive().responses[0].partitions[0].error_code == error
    assert time.monotonic() - began < LONG_MS / 2000


def test_an_error_beside_a_long_poll_answers_at_once(wire, name):
    filled(wire, name, 1)
    began = time.monotonic()
    response = wire.ask(fetch_request([(name, 0, 1), ("no-such", 0, 0)], wait_ms=LONG_MS), KEY, 12)
    assert [topic.partitions[0].error_code for topic in response.responses] == [0, 3]
    assert time.monotonic() - began < LONG_MS / 2000


def test_a_client_that_disconnects_during_a_long_poll_affects_no_other(connect, name):
    writer, leaver = connect(), connect()
    writer.create(name)
    leaver.until_led(name)
    leaver.send(fetch_request([(name, 0, 0)], wait_ms=10_000), KEY, 12)
    leaver.socket.close()
    assert writer.produce(name, batch()).base_offset == 0
    assert offsets(writer.fetch(name, 0).records) == [0]


# -- places in the log ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_an_offset_within_a_batch_gives_the_whole_batch(wire, name, codec):
    wire.create(name)
    for number in range(3):
        wire.produce(name, batch(*[b"%d" % number] * 10, codec=codec))
    for offset, first in ((0, 0), (9, 0), (10, 10), (14, 10), (29, 20)):
        assert offsets(wire.fetch(name, offset).records) == list(range(first, 30))


def test_everything_is_read_across_segments_from_every_offset(wire, name):
    filled(wire, name, 25, segment_bytes=4000)
    for start in range(25):
        found, at = [], start
        while at < 25:
            read = offsets(whole(wire.fetch(name, at).records))
            assert read[0] == at
            found += read
            at = read[-1] + 1
        assert found == list(range(start, 25))
    assert bytes(wire.fetch(name, 25).records or b"") == b""


def test_a_reader_that_follows_the_end_sees_every_roll(wire, name):
    wire.create(name, segment_bytes=3000)
    for number in range(20):
        assert wire.produce(name, batch((b"%d" % number).ljust(700, b"."))).base_offset == number
        assert offsets(wire.fetch(name, number).records) == [number]


@pytest.mark.parametrize("version", [4, 12])
def test_read_committed_reads_all_where_there_are_no_transactions(wire, name, version):
    filled(wire, name, 3)
    found = wire.fetch(name, 0, isolation_level=1, version=version)
    assert (offsets(found.records), found.aborted_transactions, found.last_stable_offset) == ([0, 1, 2], [], 3)


def test_a_recreated_topic_is_read_and_written_under_its_old_name(wire, name):
    for round_number in range(3):
        wire.create(name)
        told = wire.produce(name, batch(b"%d" % round_number))
        assert (told.error_code, told.base_offset) == (0, 0)
        assert values(wire.fetch(name, 0).records) == [b"%d" % round_number]
        wire.delete(name)


@pytest.mark.parametrize("version", [0, 4, 12, 13])
def test_a_partition_that_is_named_twice_is_answered_once_as_it_was_named_last(wire, name, version):
    topic_id = wire.create(name, 2)
    target = topic_id if version >= 13 else name
    for partition in (0, 0, 1):
        assert wire.produce(name, batch(), partition).error_code == 0

    def told(*places):
        answer = wire.ask(fetch_request([(target, *place) for place in places]), fetch.API_KEY, version)
        return [
            (one.partition_index, one.error_code, one.high_watermark)
            for topic in answer.responses
            for one in topic.partitions
        ]

    assert told((0, 0), (0, 9)) == [(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert told((0, 9), (0, 0)) == [(0, 0, 2)]
    assert told((0, 0), (1, 0), (0, 9)) == [(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1), (1, 0, 1)]
    assert told((0, 9), (1, 0), (0, 0), (1, 9)) == [(0, 0, 2), (1, ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
