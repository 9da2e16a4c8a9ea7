"""Produce on the wire: versions, all refusals, idempotence, order, codecs, and requests with many partitions."""

import time

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import metadata, produce
from odradek.storage.batch import LOG_APPEND_TIME, Record, build_batch, read_batches
from tests.waiting import until
from tests.wire import NOBODY, batch, offsets, produce_request, values, with_crc

pytestmark = pytest.mark.xdist_group("api-produce")

KEY = produce.API_KEY
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
RECORD_COUNT_AT, LAST_OFFSET_DELTA_AT = 57, 23


def damaged(data, at=-1):
    changed = bytearray(data)
    changed[at] ^= 0xFF
    return bytes(changed)


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends_and_answers_by_its_schema(wire, name, version):
    topic = wire.create(name)
    target = topic if version >= 13 else name
    for offset in (0, 2):
        request = produce_request([(target, [(0, batch(b"a", b"b"))])])
        response = wire.ask(request, KEY, version)
        (told,) = response.responses
        assert (told.topic_id, told.name) == ((topic, "") if version >= 13 else (bytes(16), name))
        (one,) = told.partition_responses
        assert (one.index, one.error_code, one.base_offset, one.log_append_time_ms) == (0, 0, offset, -1)
        assert one.log_start_offset == (0 if version >= 5 else -1)
        assert (one.record_errors, one.error_message) == ([], None)
    found = wire.fetch(name, 0)
    assert values(found.records) == [b"a", b"b"] * 2
    assert offsets(found.records) == [0, 1, 2, 3]


def test_a_version_of_the_future_closes_the_connection(wire, name):
    frame = bytearray(wire.frame(produce_request([(name, [(0, batch())])]), KEY, 13))
    frame[6:8] = (14).to_bytes(2, "big")
    wire.socket.sendall(frame)
    assert wire.closed_by_broker()


@pytest.mark.parametrize("acks", [1, -1])
def test_both_acks_make_a_record_readable(wire, name, acks):
    wire.create(name)
    assert wire.produce(name, batch(b"x"), acks=acks).error_code == 0
    assert values(wire.fetch(name, 0).records) == [b"x"]


def lying_count(data):
    changed = bytearray(data)
    changed[RECORD_COUNT_AT : RECORD_COUNT_AT + 4] = (2).to_bytes(4, "big")
    changed[LAST_OFFSET_DELTA_AT : LAST_OFFSET_DELTA_AT + 4] = (1).to_bytes(4, "big")
    return with_crc(changed)


NOW = int(time.time() * 1000)
REFUSED = {
    "bad CRC": (damaged(batch()), ErrorCode.CORRUPT_MESSAGE),
    "cut short": (batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
    "too short for a header": (batch()[:20], ErrorCode.CORRUPT_MESSAGE),
    "lying count": (lying_count(batch()), ErrorCode.INVALID_RECORD),
    "two batches": (batch() + batch(), ErrorCode.INVALID_RECORD),
    "bytes behind": (batch() + b"\0", ErrorCode.INVALID_RECORD),
    "no batch": (b"", ErrorCode.INVALID_RECORD),
    "null records": (None, ErrorCode.INVALID_RECORD),
    "no records": (build_batch([]), ErrorCode.INVALID_RECORD),
    "control batch": (batch(attributes=0x20), ErrorCode.INVALID_RECORD),
    "base offset": (batch(base_offset=5), ErrorCode.INVALID_RECORD),
    "unknown codec": (with_crc(batch()[:22] + b"\x05" + batch()[23:]), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "too far ahead": (batch(timestamp=NOW + 86_400_000), ErrorCode.INVALID_TIMESTAMP),
    "transactional without a transactional id": (
        batch(attributes=0x10, producer_id=1, producer_epoch=0, base_sequence=0),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_one_sound_batch_is_refused_with_a_reason(wire, name, case):
    wire.create(name)
    records, error = REFUSED[case]
    told = wire.produce(name, records)
    assert (told.error_code, told.base_offset) == (error, -1)
    assert told.error_message
    assert wire.fetch(name, 0).high_watermark == 0
    assert wire.produce(name, batch()).base_offset == 0


@pytest.mark.parametrize("version", [3, 12])
def test_unknown_topics_and_partitions_are_told(wire, name, version):
    wire.create(name, 2)
    told = wire.ask(
        produce_request([(name, [(0, batch()), (2, batch()), (-1, batch())]), ("no-such", [(0, batch())])]),
        KEY,
        version,
    ).responses
    assert [one.error_code for one in told[0].partition_responses] == [0, 3, 3]
    assert [one.error_code for one in told[1].partition_responses] == [3]


def test_an_unknown_topic_id_is_told(wire):
    assert wire.produce(NOBODY, batch(), version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_other_acks_are_refused(wire, name, acks):
    wire.create(name)
    assert wire.produce(name, batch(), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_the_largest_batch_is_max_message_bytes(wire, name):
    size = len(batch(b"x" * 1000))
    wire.create(name, max_message_bytes=size)
    assert wire.produce(name, batch(b"x" * 1000)).error_code == 0
    assert wire.produce(name, batch(b"x" * 1001)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_larger_than_a_segment_is_refused(wire, name):
    wire.create(name, segment_bytes=2000)
    assert wire.produce(name, batch(b"x" * 3000)).error_code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert wire.produce(name, batch(b"x" * 1000)).error_code == 0


def test_timestamps_outside_the_topics_limits_are_refused(wire, name):
    minute = 60_000
    wire.create(name, message_timestamp_before_max_ms=60 * minute, message_timestamp_after_max_ms=30 * minute)
    now = int(time.time() * 1000)
    shifts = [minutes * minute for minutes in (-70, 40, -40, 10)]
    answers = [wire.produce(name, batch(timestamp=now + shift)) for shift in shifts]
    assert [one.error_code for one in answers] == [32, 32, 0, 0]
    mixed = build_batch([Record(b"k", b"v", now), Record(b"k", b"v", now - 70 * minute)], codec=1)
    assert wire.produce(name, mixed).error_code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("version", range(3, 9))
def test_zstd_needs_version_7(wire, name, version):
    wire.create(name)
    error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else ErrorCode.NONE
    assert wire.produce(name, batch(codec=4), version=version).error_code == error


@pytest.mark.parametrize("codec", [0, *CODECS.values()])
def test_a_compacted_topic_takes_no_record_without_a_key(wire, name, codec):
    wire.create(name, cleanup_policy="compact")
    assert wire.produce(name, batch(key=None, codec=codec)).error_code == ErrorCode.INVALID_RECORD
    assert wire.produce(name, batch(codec=codec)).error_code == 0


def test_an_unencodable_request_closes_the_connection(wire, name):
    frame = bytearray(wire.frame(produce_request([(name, [(0, batch())])]), KEY, 9))
    cut = frame[:-10]
    cut[:4] = (len(cut) - 4).to_bytes(4, "big")
    wire.socket.sendall(cut)
    assert wire.closed_by_broker()


# -- idempotence ----------------------------------------------------------------------------------------------------


def sequenced(sequence, *contents, epoch=0, producer=4711, codec=0):
    return batch(
        *(contents or (b"v",)), producer_id=producer, producer_epoch=epoch, base_sequence=sequence, codec=codec
    )


def outcome(told):
    return told.error_code, told.base_offset


@pytest.mark.parametrize("codec", [0, 1])
def test_duplicates_among_the_last_five_get_their_first_offset(wire, name, codec):
    wire.create(name)
    for number in range(6):
        assert outcome(wire.produce(name, sequenced(number, codec=codec))) == (0, number)
    for number in range(1, 6):
        assert outcome(wire.produce(name, sequenced(number, codec=codec))) == (0, number)
    assert outcome(wire.produce(name, sequenced(0, codec=codec))) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert wire.fetch(name, 0).high_watermark == 6


def test_a_gap_in_the_sequence_is_refused_and_the_next_goes_on(wire, name):
    wire.create(name)
    assert outcome(wire.produce(name, sequenced(0, b"a", b"b", b"c"))) == (0, 0)
    assert wire.produce(name, sequenced(4)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert wire.produce(name, sequenced(2)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(wire.produce(name, sequenced(3))) == (0, 3)


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one(wire, name):
    wire.create(name)
    assert outcome(wire.produce(name, sequenced(0))) == (0, 0)
    assert wire.produce(name, sequenced(1, epoch=1)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(wire.produce(name, sequenced(0, epoch=1))) == (0, 1)
    for sequence in (0, 1):
        assert wire.produce(name, sequenced(sequence)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_unknown_producer_may_begin_anywhere_and_wraps_at_the_largest_sequence(wire, name):
    wire.create(name)
    assert outcome(wire.produce(name, sequenced(2**31 - 2, b"a", b"b", b"c"))) == (0, 0)
    assert outcome(wire.produce(name, sequenced(2**31 - 2, b"a", b"b", b"c"))) == (0, 0)
    assert outcome(wire.produce(name, sequenced(1))) == (0, 3)
    assert wire.produce(name, sequenced(2**31 - 1)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_five_in_one_write_are_judged_in_order(wire, name):
    wire.create(name)
    plan = [(0, 0), (1, 0), (1, 0), (3, 0), (2, 0), (0, 1)]
    frames = [
        wire.frame(produce_request([(name, [(0, sequenced(sequence, epoch=epoch))])]), KEY, 9)
        for sequence, epoch in plan
    ]
    wire.socket.sendall(b"".join(frames))
    found = [outcome(wire.receive().responses[0].partition_responses[0]) for _ in plan]
    assert found == [(0, 0), (0, 1), (0, 1), (45, -1), (0, 2), (0, 3)]


@pytest.mark.parametrize("codec", [0, 1])
def test_a_batch_behind_a_refused_one_is_not_the_first_of_its_producer(wire, connect, name, codec):
    """The producer would take its success for that of the refused batch."""
    assert wire.produce(name, sequenced(0, codec=codec)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with connect() as other:
        other.create(name)
        assert outcome(other.produce(name, sequenced(7, producer=12))) == (0, 0)
    for sequence in (1, 2):
        found = wire.produce(name, sequenced(sequence, codec=codec))
        assert found.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(wire.produce(name, sequenced(5, producer=13, codec=codec))) == (0, 1)
    for sequence in (0, 1, 2):
        assert outcome(wire.produce(name, sequenced(sequence, codec=codec))) == (0, 2 + sequence)


@pytest.mark.parametrize("codec", [0, 1])
def test_a_batch_behind_one_that_is_refused_in_the_same_write(wire, name, codec):
    wire.create(name, max_message_bytes=200)
    large = bytes(range(256)) * 2
    plan = [
        sequenced(0, large, codec=0),
        sequenced(1, codec=codec),
        sequenced(0, codec=codec),
        sequenced(1, codec=codec),
    ]
    frames = [wire.frame(produce_request([(name, [(0, data)])]), KEY, 9) for data in plan]
    wire.socket.sendall(b"".join(frames))
    found = [outcome(wire.receive().responses[0].partition_responses[0]) for _ in plan]
    assert found == [(ErrorCode.MESSAGE_TOO_LARGE, -1), (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), (0, 0), (0, 1)]


@pytest.mark.parametrize("codec", [0, 1])
def test_a_batch_behind_one_that_its_append_refuses_in_the_same_write(wire, name, codec):
    """Batches that must be decompressed first, or that are too many for one append, are judged before and after it."""
    wire.create(name, segment_bytes=2000)
    plan = [sequenced(0, bytes(3000))] + [sequenced(n, codec=codec) for n in range(1, 70)]
    frames = [wire.frame(produce_request([(name, [(0, data)])]), KEY, 9) for data in plan]
    wire.socket.sendall(b"".join(frames))
    found = [wire.receive().responses[0].partition_responses[0].error_code for _ in plan]
    assert found == [ErrorCode.RECORD_LIST_TOO_LARGE] + [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 69
    assert outcome(wire.produce(name, sequenced(0))) == (0, 0)


def test_a_new_epoch_or_another_connection_begins_anywhere_behind_a_refused_batch(wire, connect, name):
    wire.create(name, max_message_bytes=200)
    large = sequenced(0, bytes(300))
    assert wire.produce(name, large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert wire.produce(name, sequenced(1)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(wire.produce(name, sequenced(9, epoch=1))) == (0, 0)
    assert wire.produce(name, sequenced(0, bytes(300), producer=5)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    with connect() as other:
        assert outcome(other.produce(name, sequenced(1, producer=5))) == (0, 1)
    assert outcome(wire.produce(name, sequenced(2, producer=5))) == (0, 2)


def test_a_connection_remembers_a_limited_number_of_refused_batches(wire, name):
    wire.create(name, max_message_bytes=200)
    frames = [
        wire.frame(produce_request([(name, [(0, sequenced(0, bytes(300), producer=n))])]), KEY, 9) for n in range(1001)
    ]
    for frame in frames:
        wire.socket.sendall(frame)
        assert wire.receive().responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert wire.produce(name, sequenced(1, producer=1)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(wire.produce(name, sequenced(1, producer=0))) == (0, 0)


# -- acks=0, order --------------------------------------------------------------------------------------------------


def test_acks_0_is_not_answered(wire, name):
    wire.create(name)
    wire.send(produce_request([(name, [(0, batch(b"quiet"))])], acks=0), KEY, 9)
    wire.forget_answer()
    assert values(wire.fetch(name, 0).records) == [b"quiet"]


@pytest.mark.parametrize(
    "records", [damaged(batch()), damaged(batch(b"v" * 50, codec=1), 70)], ids=["plain", "compressed"]
)
def test_an_error_with_acks_0_closes_the_connection(wire, connect, name, records):
    wire.create(name)
    other = connect()
    other.send(produce_request([(name, [(0, records)])], acks=0), KEY, 9)
    assert other.closed_by_broker()
    assert wire.fetch(name, 0).high_watermark == 0


@pytest.mark.parametrize("version", [9, 13])
@pytest.mark.parametrize("codec", [0, 1])
def test_the_end_of_a_connection_with_acks_0_names_topic_partition_and_error(
    wire_broker, wire, connect, name, version, codec
):
    topic_id = wire.create(name)
    topic = name if version < 13 else topic_id
    other = connect()
    other.send(
        produce_request([(topic, [(0, batch(b"v")), (0, damaged(batch(b"v" * 50, codec=codec), 70))])], acks=0),
        KEY,
        version,
    )
    assert other.closed_by_broker()
    error = "CORRUPT_MESSAGE (the record batch is corrupt: its CRC or its length is wrong)"
    words = f"the record batch for partition 0 of topic {name}, sent with acks=0, was refused with {error}"
    until(lambda: words in wire_broker.log_file.read_text(), "the log names what was refused")


@pytest.mark.parametrize("acks", [1, -1])
def test_five_in_flight_are_appended_and_answered_in_order(wire, name, acks):
    wire.create(name)
    codecs = [0, 1, 0, 4, 0]
    frames = [
        wire.frame(produce_request([(name, [(0, batch(b"%d" % n, codec=codec))])], acks), KEY, 9)
        for n, codec in enumerate(codecs)
    ]
    wire.socket.sendall(b"".join(frames))
    found = [wire.receive().responses[0].partition_responses[0].base_offset for _ in codecs]
    assert found == [0, 1, 2, 3, 4]
    assert values(wire.fetch(name, 0).records) == [b"0", b"1", b"2", b"3", b"4"]


def test_requests_of_several_kinds_in_one_write_are_answered_in_order(wire, name):
    wire.create(name)
    from odradek.protocol.schemas import api_versions, fetch
    from tests.wire import fetch_request

    frames = [
        wire.frame(produce_request([(name, [(0, batch(b"1"))])]), KEY, 9),
        wire.frame(fetch_request([(name, 0, 0)]), fetch.API_KEY, 12),
        wire.frame(produce_request([(name, [(0, batch(b"2", codec=2))])]), KEY, 9),
        wire.frame(metadata.Request(topics=[metadata.Request.MetadataRequestTopic(name=name)]), metadata.API_KEY, 12),
        wire.frame(fetch_request([(name, 0, 0)]), fetch.API_KEY, 12),
        wire.frame(api_versions.Request(), api_versions.API_KEY, 0),
    ]
    wire.socket.sendall(b"".join(frames))
    first, read, second, described, again, versions = [wire.receive() for _ in frames]
    assert first.responses[0].partition_responses[0].base_offset == 0
    assert values(read.responses[0].partitions[0].records) == [b"1"]
    assert second.responses[0].partition_responses[0].base_offset == 1
    assert described.topics[0].name == name
    assert values(again.responses[0].partitions[0].records) == [b"1", b"2"]
    assert versions.error_code == 0


# -- compressed batches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_batch_is_kept_as_it_came(wire, name, codec):
    wire.create(name)
    sent = batch(*[b"%d" % n * 20 for n in range(50)], codec=CODECS[codec])
    assert outcome(wire.produce(name, sent)) == (0, 0)
    assert outcome(wire.produce(name, sent)) == (0, 50)
    found = bytes(wire.fetch(name, 0).records)
    first, second = read_batches(found)
    assert (first.codec, first.base_offset, second.base_offset) == (CODECS[codec], 0, 50)
    assert first.payload == second.payload == sent[61:]
    assert [record.offset for record in second.records()] == list(range(50, 100))


@pytest.mark.parametrize("codec", CODECS)
def test_a_damaged_payload_under_a_right_crc_is_refused(wire, name, codec):
    wire.create(name)
    sent = batch(b"abc" * 100, codec=CODECS[codec])
    cut = bytearray(sent[: 61 + (len(sent) - 61) // 2])
    cut[8:12] = (len(cut) - 12).to_bytes(4, "big")
    assert wire.produce(name, with_crc(cut)).error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    assert wire.produce(name, lying_count(sent)).error_code == ErrorCode.INVALID_RECORD
    assert outcome(wire.produce(name, sent)) == (0, 0)


def test_a_large_request_goes_its_own_way_and_back(wire, name):
    wire.create(name, max_message_bytes=8 << 20)
    content = bytes(range(256)) * 12_000
    assert outcome(wire.produce(name, batch(content))) == (0, 0)
    assert values(wire.fetch(name, 0).records) == [content]


# -- many partitions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [0, 1])
def test_topics_partitions_and_repetitions_of_them_are_answered_one_by_one(wire, name, codec):
    wire.create(name, 3)
    wire.create(name + "b", 1)

    def one(text):
        return batch(text, codec=codec)

    request = produce_request(
        [
            (name, [(2, one(b"a")), (0, one(b"b")), (1, damaged(batch()))]),
            (name + "b", [(0, one(b"c"))]),
            (name, [(2, one(b"d"))]),
        ]
    )
    told = wire.ask(request, KEY, 12).responses
    assert [(topic.name, [outcome(one) for one in topic.partition_responses]) for topic in told] == [
        (name, [(0, 0), (0, 0), (2, -1)]),
        (name + "b", [(0, 0)]),
        (name, [(0, 1)]),
    ]
    assert values(wire.fetch(name, 0, 2).records) == [b"a", b"d"]


@pytest.mark.parametrize("version", [3, 9, 12])
def test_topics_without_partitions_are_left_out_of_the_answer(wire, name, version):
    wire.create(name)
    request = produce_request([(name, []), (name, [(0, batch())]), ("no-such", [])])
    (told,) = wire.ask(request, KEY, version).responses
    assert (told.name, outcome(told.partition_responses[0])) == (name, (0, 0))
    assert wire.ask(produce_request([]), KEY, version).responses == []


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_a_topic_of_append_time_gives_its_own_times(wire, name, codec):
    wire.create(name, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    told = wire.produce(name, batch(b"old", b"older", timestamp=1000, codec=codec))
    assert told.error_code == 0
    assert before <= told.log_append_time_ms <= int(time.time() * 1000)
    (found,) = read_batches(bytes(wire.fetch(name, 0).records))
    assert found.attributes & LOG_APPEND_TIME
    assert {record.timestamp for record in found.records()} == {told.log_append_time_ms}


def test_a_client_cannot_write_to_a_deleted_topic(wire, name):
    topic = wire.create(name)
    assert wire.produce(topic, batch(), version=13).error_code == 0
    wire.delete(name)
    assert wire.produce(topic, batch(), version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert wire.produce(name, batch()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
