"""Produce v0-v2, Fetch v0-v3 and ListOffsets v0 on the wire: message sets in and out, their errors, and topics with a codec or
LogAppendTime.
"""

import time

import pytest

from odradek import codecs
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import create_topics, delete_topics, describe_configs, fetch, list_offsets, produce
from odradek.storage import old_messages
from odradek.storage.batch import LOG_APPEND_TIME, Record, build_batch, read_batches
from odradek.storage.compression import compress_old
from tests.storage.old_writer import message, wrapper
from tests.wire import batch, fetch_request, produce_request, values

pytestmark = pytest.mark.xdist_group("api-old-formats")

CODECS = pytest.mark.parametrize("codec", range(4), ids=codecs.NAMES[:4])
PRODUCES = pytest.mark.parametrize("version", range(3))
FETCHES = pytest.mark.parametrize("version", range(4))


def message_set(magic, codec=0, count=3, timestamp=None):
    """Messages v0, v1, ... with keys, as a producer sends them."""
    when = int(time.time() * 1000) if timestamp is None else timestamp
    inner = b"".join(
        message(n, b"v%d" % n, magic=magic, key=b"k%d" % n, timestamp=when + n if magic else -1) for n in range(count)
    )
    if codec == 0:
        return inner
    packed = compress_old(codec, inner, magic)
    return message(count - 1, packed, magic=magic, timestamp=when + count - 1, attributes=codec)


def seen(records):
    """(offset, timestamp, key, value) of a message set."""
    return [
        (one.offset, one.timestamp, one.key, one.value)
        for outer in old_messages.read_messages(bytes(records or b""))
        for one in outer.opened()
    ]


@CODECS
@PRODUCES
def test_a_message_set_is_appended_as_one_batch(wire, name, version, codec):
    wire.create(name)
    magic = 1 if version == 2 else 0
    for offset in (0, 3):
        answer = wire.produce(name, message_set(magic, codec), version=version)
        assert (answer.error_code, answer.base_offset) == (0, offset)
        assert answer.log_append_time_ms == -1
    stored = list(read_batches(bytes(wire.fetch(name, 0).records)))
    assert [(one.codec, one.record_count, one.producer_id) for one in stored] == [(codec, 3, -1)] * 2
    assert values(wire.fetch(name, 0).records) == [b"v0", b"v1", b"v2"] * 2


@CODECS
@FETCHES
def test_old_fetches_get_message_sets(wire, name, version, codec):
    wire.create(name)
    when = int(time.time() * 1000)
    content = [Record(b"k%d" % n, b"v%d" % n, when + n, ((b"h", b"1"),)) for n in range(4)]
    for _ in range(2):
        assert wire.produce(name, build_batch(content, codec=codec)).error_code == 0
    found = wire.fetch(name, 0, version=version)
    assert (found.error_code, found.high_watermark) == (0, 8)
    outer = list(old_messages.read_messages(bytes(found.records)))
    assert {one.magic for one in outer} == {1 if version >= 2 else 0}
    assert len(outer) == (2 if codec else 8)
    times = [when + n if version >= 2 else -1 for n in range(4)] * 2
    assert seen(found.records) == [(n, times[n], b"k%d" % (n % 4), b"v%d" % (n % 4)) for n in range(8)]


@FETCHES
def test_an_old_fetch_waits_for_records(connect, name, version):
    reader, writer = connect(), connect()
    writer.create(name)
    reader.until_led(name)
    reader.send(fetch_request([(name, 0, 0)], wait_ms=600_000), fetch.API_KEY, version)
    assert writer.produce(name, message_set(0), version=0).error_code == 0
    (one,) = reader.receive().responses[0].partitions
    assert [value for *_, value in seen(one.records)] == [b"v0", b"v1", b"v2"]
    assert wire_is_empty(writer, name, version)


def wire_is_empty(wire, name, version):
    """Whether a fetch from the end is answered with nothing once its time is up."""
    found = wire.ask(fetch_request([(name, 0, 3)], wait_ms=50), fetch.API_KEY, version).responses[0].partitions[0]
    return (found.error_code, found.records or b"") == (0, b"")


@FETCHES
def test_the_errors_of_an_old_fetch(wire, name, version):
    wire.create(name)
    assert wire.fetch("no-such-topic", 0, version=version).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = wire.fetch(name, 1, version=version)
    assert (found.error_code, found.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


@FETCHES
def test_at_least_one_message_is_returned_for_any_limit(wire, name, version):
    wire.create(name)
    assert wire.produce(name, batch(*(b"x" * 200 for _ in range(5)))).error_code == 0
    offset = 0
    while offset < 5:
        found = seen(wire.fetch(name, offset, partition_max_bytes=1, version=version).records)
        assert [one[0] for one in found] == [offset]
        offset += 1


@pytest.mark.parametrize("version", [2, 3])
def test_the_limits_of_many_partitions(wire, name, version):
    """Version 3 bounds the response; before, each partition gives at least one message."""
    wire.create(name, partitions=4)
    for partition in range(4):
        assert wire.produce(name, batch(b"x" * 1000), partition).error_code == 0
    request = fetch_request([(name, partition, 0) for partition in range(4)], max_bytes=100, partition_max_bytes=100)
    response = wire.ask(request, fetch.API_KEY, version)
    given = [one for topic in response.responses for one in topic.partitions if one.records]
    assert len(given) == (1 if version == 3 else 4)


def test_old_consumers_get_an_error_for_zstd(wire, name):
    wire.create(name)
    assert wire.produce(name, batch(b"a")).error_code == 0
    assert wire.produce(name, batch(b"b", codec=4)).error_code == 0
    assert len(seen(wire.fetch(name, 0, version=3).records)) == 1
    assert wire.fetch(name, 1, version=3).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert values(wire.fetch(name, 1, version=10).records) == [b"b"]


def test_down_conversion_can_be_switched_off(wire, name):
    wire.create(name, message_downconversion_enable="false")
    assert wire.produce(name, message_set(1), version=2).error_code == 0
    for version in range(4):
        assert wire.fetch(name, 0, version=version).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert values(wire.fetch(name, 0, version=4).records) == [b"v0", b"v1", b"v2"]


# -- what is refused ------------------------------------------------------------------------------------------------


@PRODUCES
def test_bad_message_sets_are_refused_and_the_connection_stays_open(wire, name, version):
    wire.create(name)
    sound = message_set(0)
    bomb = message(0, compress_old(1, bytes(160 << 20), 0), magic=0, attributes=1)
    nested = message(0, compress_old(1, message_set(0, codec=1), 0), magic=0, attributes=1)
    for data, code in (
        (sound[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE),
        (sound[:-1], ErrorCode.CORRUPT_MESSAGE),
        (sound[:9], ErrorCode.CORRUPT_MESSAGE),
        (sound[:8] + b"\xff\xff\xff\xf0" + sound[12:], ErrorCode.CORRUPT_MESSAGE),
        (nested, ErrorCode.INVALID_RECORD),
        (bomb, ErrorCode.MESSAGE_TOO_LARGE),
        (message(0, b"x" * 1_100_000, magic=0), ErrorCode.MESSAGE_TOO_LARGE),
        (b"".join(message(0, b"x" * 300_000, magic=0) for _ in range(4)), ErrorCode.MESSAGE_TOO_LARGE),
        (message(0, b"x", magic=0, attributes=4), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (message(0, b"x", magic=1, timestamp=1 << 60), ErrorCode.INVALID_TIMESTAMP),
    ):
        answer = wire.produce(name, data, version=version)
        assert (answer.error_code, answer.base_offset) == (code, -1)
    assert wire.produce(name, sound, version=version).base_offset == 0


@PRODUCES
def test_an_empty_message_set_appends_nothing(wire, name, version):
    wire.create(name)
    answer = wire.produce(name, b"", version=version)
    assert (answer.error_code, answer.base_offset) == (0, -1)
    assert wire.produce(name, message_set(0), version=version, acks=1).base_offset == 0


def test_newer_versions_take_no_message_sets(wire, name):
    wire.create(name)
    assert wire.produce(name, message_set(1), version=3).error_code == ErrorCode.INVALID_RECORD


@PRODUCES
def test_compacted_topics_require_keys(wire, name, version):
    wire.create(name, cleanup_policy="compact")
    assert wire.produce(name, message(0, b"x", magic=0), version=version).error_code == ErrorCode.INVALID_RECORD
    assert wire.produce(name, message_set(0), version=version).error_code == 0


@PRODUCES
def test_acks_0_appends_without_an_answer(wire, name, version):
    wire.create(name)
    wire.send(produce_request([(name, [(0, message_set(0))])], acks=0), produce.API_KEY, version)
    wire.forget_answer()
    assert wire.produce(name, message_set(0), version=version, acks=1).base_offset == 3


def test_order_is_kept_between_old_and_new_requests_of_a_connection(wire, name):
    wire.create(name)
    for number in range(20):
        data = message(0, b"%d" % number) if number % 3 else batch(b"%d" % number)
        wire.send(produce_request([(name, [(0, data)])]), produce.API_KEY, 2 if number % 3 else 9)
    for number in range(20):
        assert wire.receive().responses[0].partition_responses[0].base_offset == number
    assert values(wire.fetch(name, 0).records) == [b"%d" % number for number in range(20)]


# -- the topic's settings -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", range(5), ids=codecs.NAMES)
def test_the_codec_of_the_topic_is_what_is_stored(wire, name, codec):
    kind = "uncompressed" if codec == 0 else codecs.NAMES[codec]
    wire.create(name, compression_type=kind)
    for data, version in (
        *((batch(b"a" * 900, codec=sent), 9) for sent in range(5)),
        *((message_set(1, sent), 2) for sent in range(4)),
    ):
        assert wire.produce(name, data, version=version).error_code == 0
    stored = list(read_batches(bytes(wire.fetch(name, 0).records)))
    assert [one.codec for one in stored] == [codec] * 9
    assert [one.value for each in stored for one in each.records()] == [b"a" * 900] * 5 + [b"v0", b"v1", b"v2"] * 4


def test_a_batch_that_grows_beyond_the_limit_is_refused(wire, name):
    wire.create(name, compression_type="uncompressed", max_message_bytes=1000)
    small = batch(b"a" * 2000, codec=1)
    assert len(small) < 1000
    assert wire.produce(name, small).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_idempotent_producers_may_write_to_a_topic_with_a_codec(wire, name):
    wire.create(name, compression_type="gzip")
    fields = {"producer_id": 77, "producer_epoch": 0}
    for sequence, offset in ((0, 0), (1, 1), (1, 1)):
        answer = wire.produce(name, batch(b"x" * 500, base_sequence=sequence, **fields))
        assert (answer.error_code, answer.base_offset) == (0, offset)
    assert values(wire.fetch(name, 0).records) == [b"x" * 500] * 2


@CODECS
def test_the_log_append_time_reaches_old_and_new_readers(wire, name, codec):
    wire.create(name, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    answer = wire.produce(name, message_set(1, codec, timestamp=5), version=2)
    assert answer.error_code == 0
    assert before <= answer.log_append_time_ms <= int(time.time() * 1000)
    (stored,) = read_batches(bytes(wire.fetch(name, 0).records))
    assert stored.attributes & LOG_APPEND_TIME
    assert stored.max_timestamp == answer.log_append_time_ms
    assert {one[1] for one in seen(wire.fetch(name, 0, version=2).records)} == {answer.log_append_time_ms}


def test_the_bounds_of_timestamps(wire, name):
    now = int(time.time() * 1000)
    hour = 3_600_000
    wire.create(name, message_timestamp_difference_max_ms=2 * hour)
    for shift, code in ((0, 0), (-hour, 0), (hour, 0), (-3 * hour, 32), (3 * hour, 32)):
        assert wire.produce(name, batch(b"x", timestamp=now + shift)).error_code == code
        assert wire.produce(name, message_set(1, timestamp=now + shift), version=2).error_code == code
    assert wire.produce(name, message_set(0), version=0).error_code == 0  # no timestamp, nothing to bound


# -- ListOffsets 0 and the other versions 0 -------------------------------------------------------------------------


def old_offsets(wire, name, timestamp, count, partition=0):
    make = list_offsets.Request
    asked = make.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, max_num_offsets=count)
    request = make(replica_id=-1, topics=[make.ListOffsetsTopic(name=name, partitions=[asked])])
    answer = wire.ask(request, list_offsets.API_KEY, 0).topics[0].partitions[0]
    return answer.error_code, answer.old_style_offsets


def test_list_offsets_0_returns_the_base_offsets_of_segments(wire, name):
    wire.create(name, segment_bytes=1_048_576)
    assert old_offsets(wire, name, -1, 9) == (0, [0])
    for _ in range(5):
        assert wire.produce(name, batch(b"x" * 500_000)).error_code == 0
    ends = [5, 4, 2, 0]
    for timestamp in (-1, int(time.time() * 1000) + 60_000):
        for count in range(6):
            assert old_offsets(wire, name, timestamp, count) == (0, ends[:count])
    assert old_offsets(wire, name, -2, 9) == (0, [0])
    assert old_offsets(wire, name, 1000, 9) == (0, [])
    assert old_offsets(wire, name, -1, 1, partition=7)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_are_created_described_and_deleted_by_version_0(wire, name):
    make = create_topics.Request
    topic = make.CreatableTopic(
        name=name,
        num_partitions=2,
        replication_factor=1,
        configs=[make.CreatableTopicConfig(name="flush.ms", value="7")],
    )
    (made,) = wire.ask(make(topics=[topic], timeout_ms=9_000), create_topics.API_KEY, 0).topics
    assert (made.name, made.error_code) == (name, 0)
    (again,) = wire.ask(make(topics=[topic], timeout_ms=9_000), create_topics.API_KEY, 1).topics
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    ask = describe_configs.Request
    resource = ask.DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
    (told,) = wire.ask(ask(resources=[resource]), describe_configs.API_KEY, 0).results
    found = {one.name: (one.value, one.is_default) for one in told.configs}
    assert found["flush.ms"] == ("7", False)
    assert found["retention.ms"] == ("604800000", True)
    gone = delete_topics.Request(topic_names=[name], timeout_ms=9_000)
    (result,) = wire.ask(gone, delete_topics.API_KEY, 0).responses
    assert (result.name, result.error_code) == (name, 0)
    (result,) = wire.ask(gone, delete_topics.API_KEY, 0).responses
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_wrappers_of_the_oldest_clients_with_offsets_all_0(wire, name):
    wire.create(name)
    inner = b"".join(message(0, b"%d" % n, magic=0) for n in range(3))
    data = message(0, compress_old(2, inner, 0), magic=0, attributes=2)
    assert wire.produce(name, data, version=0).error_code == 0
    assert (
        wire.produce(
            name, wrapper(0, [(b"k", b"3")], codec=1, timestamps=[int(time.time() * 1000)]), version=2
        ).error_code
        == 0
    )
    assert [one[0::3] for one in seen(wire.fetch(name, 0, version=1).records)] == [(n, b"%d" % n) for n in range(4)]
