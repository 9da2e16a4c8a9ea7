"""The records of a refused batch that a Produce response names, and later appends of that client.

`test_against_kafka.py` compares the codes and the named records with Kafka's.
"""

import time

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import produce
from odradek.storage.batch import LOG_APPEND_TIME, Record, build_batch, read_batches
from tests.storage.old_writer import message, wrapper
from tests.wire import batch, produce_request

pytestmark = pytest.mark.xdist_group("api-produce")

CODECS = [0, 1, 2, 3, 4]
HOUR_MS = 3_600_000
OF_THE_HOUR = {"message_timestamp_before_max_ms": HOUR_MS, "message_timestamp_after_max_ms": HOUR_MS}
MOST_LISTED = 10_000


def of_keys(*keys: bytes | None, timestamp: int = 1, codec: int = 0, **fields: int) -> bytes:
    return build_batch([Record(key, b"v", timestamp) for key in keys], codec=codec, **fields)


def named(answer) -> dict[int, str]:
    return {one.batch_index: one.batch_index_error_message for one in answer.record_errors}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", range(8, 13))
def test_records_without_a_key_are_named_by_a_compacted_topic(wire, name, version, codec):
    wire.create(name, cleanup_policy="compact")
    answer = wire.produce(name, of_keys(b"k", None, b"k", None, codec=codec), version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert named(answer) == dict.fromkeys((1, 3), "a record of a compacted topic must have a key")
    assert answer.error_message == (
        "2 of the batch's 4 records are invalid; record 1: a record of a compacted topic must have a key"
    )
    assert wire.produce(name, of_keys(b"k", b"k", codec=codec), version=version).base_offset == 0


def test_records_are_named_when_the_topic_has_its_own_codec(wire, name):
    wire.create(name, cleanup_policy="compact", compression_type="zstd")
    for codec in CODECS:
        assert list(named(wire.produce(name, of_keys(b"k", None, codec=codec)))) == [1]


@pytest.mark.parametrize("codec", CODECS)
def test_records_with_timestamps_out_of_range_are_named_with_the_range(wire, name, codec):
    wire.create(name, **OF_THE_HOUR)
    now = int(time.time() * 1000)
    times = [now, now + 2 * HOUR_MS, now - 2 * HOUR_MS, -1, -5]
    answer = wire.produce(name, build_batch([Record(b"k", b"v", when) for when in times], codec=codec))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert list(named(answer)) == [1, 2, 4]
    for index, text in named(answer).items():
        assert text.startswith(f"timestamp {times[index]} is not between ")
        lowest, highest = _bounds(text)
        assert now - HOUR_MS <= lowest <= now < highest <= lowest + 2 * HOUR_MS


def _bounds(text: str) -> tuple[int, int]:
    words = text.replace(",", "").split()
    at = words.index("between")
    return int(words[at + 1]), int(words[at + 3])


def test_a_bad_timestamp_decides_the_code_and_a_record_is_named_once(wire, name):
    wire.create(name, cleanup_policy="compact", **OF_THE_HOUR)
    now = int(time.time() * 1000)
    late = now + 2 * HOUR_MS
    records = [Record(None, b"v", now), Record(b"k", b"v", late), Record(None, b"v", late)]
    answer = wire.produce(name, build_batch(records))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [text.split()[0] for text in named(answer).values()] == ["a", "timestamp", "a"]
    answer = wire.produce(name, build_batch([records[0], records[2]]))
    assert answer.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
def test_the_log_append_time_of_a_producer_is_refused_where_the_topic_sets_it_and_ignored_elsewhere(wire, name, codec):
    wire.create(name, message_timestamp_type="LogAppendTime")
    answer = wire.produce(name, of_keys(b"k", b"k", codec=codec, attributes=LOG_APPEND_TIME))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert named(answer) == dict.fromkeys((0, 1), "a producer must not set the timestamp type LogAppendTime")

    elsewhere = f"{name}-create-time"
    wire.create(elsewhere)
    assert (
        wire.produce(elsewhere, of_keys(b"k", b"k", timestamp=7, codec=codec, attributes=LOG_APPEND_TIME)).error_code
        == 0
    )
    (stored,) = read_batches(bytes(wire.fetch(elsewhere, 0).records))
    assert (stored.attributes & LOG_APPEND_TIME, stored.max_timestamp) == (0, 7)
    answer = wire.produce(elsewhere, of_keys(b"k", timestamp=-1, codec=codec, attributes=LOG_APPEND_TIME))
    assert (answer.error_code, list(named(answer))) == (ErrorCode.INVALID_TIMESTAMP, [0])


@pytest.mark.parametrize("version", range(3, 8))
def test_versions_without_record_errors_get_the_code_alone(wire, name, version):
    wire.create(name, cleanup_policy="compact", **OF_THE_HOUR)
    now = int(time.time() * 1000)
    assert wire.produce(name, of_keys(None, timestamp=now), version=version).error_code == ErrorCode.INVALID_RECORD
    assert wire.produce(name, of_keys(b"k"), version=version).error_code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("version", range(3))
def test_of_separate_old_messages_the_first_bad_one_decides_and_of_a_wrapper_any_timestamp(wire, name, version):
    wire.create(name, cleanup_policy="compact", **OF_THE_HOUR)
    now = int(time.time() * 1000)
    contents = [(b"k", b"v"), (None, b"v"), (b"k", b"v")]
    times = [now, now, 1]
    separate = b"".join(
        message(0, value, key=key, timestamp=when) for (key, value), when in zip(contents, times, strict=True)
    )
    assert wire.produce(name, separate, version=version).error_code == ErrorCode.INVALID_RECORD
    together = wrapper(0, contents, codec=1, timestamps=times)
    assert wire.produce(name, together, version=version).error_code == ErrorCode.INVALID_TIMESTAMP
    turned = message(0, b"v", key=b"k", timestamp=1) + message(0, b"v", timestamp=now)
    assert wire.produce(name, turned, version=version).error_code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("version", range(3))
def test_old_messages_with_the_log_append_time(wire, name, version):
    wire.create(name)
    appended = wrapper(0, [(b"k", b"v")] * 2, codec=1, timestamps=[5, 6], append_time=9)
    assert wire.produce(name, appended, version=version).error_code == 0
    (stored,) = read_batches(bytes(wire.fetch(name, 0).records))
    assert [record.timestamp for record in stored.records()] == [9, 9]
    untimed = message(0, b"v", timestamp=-1, attributes=LOG_APPEND_TIME)
    assert wire.produce(name, untimed, version=version).error_code == ErrorCode.INVALID_TIMESTAMP
    wire.create(f"{name}-append-time", message_timestamp_type="LogAppendTime")
    assert wire.produce(f"{name}-append-time", appended, version=version).error_code == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", CODECS)
def test_each_batch_of_a_request_has_its_own_record_errors(wire, name, codec):
    wire.create(name, 4, cleanup_policy="compact")
    batches = [
        of_keys(b"k", None, codec=codec),
        of_keys(b"k", codec=codec),
        of_keys(None, codec=0),
        of_keys(b"k", codec=codec),
    ]
    (topic,) = wire.ask(produce_request([(name, list(enumerate(batches)))]), produce.API_KEY, 9).responses
    assert [(one.error_code, list(named(one))) for one in topic.partition_responses] == [
        (87, [1]), (0, []), (87, [0]), (0, []),
    ]  # fmt: skip


def test_joined_requests_name_their_own_records(wire, name):
    wire.create(name, cleanup_policy="compact")
    requests = (
        [of_keys(*[b"k"] * number, None) for number in range(5)] + [of_keys(b"k", codec=1)] + [of_keys(None, b"k")]
    )
    frames = [wire.frame(produce_request([(name, [(0, one)])]), produce.API_KEY, 9) for one in requests]
    wire.socket.sendall(b"".join(frames))
    answers = [wire.receive().responses[0].partition_responses[0] for _ in requests]
    assert [list(named(one)) for one in answers] == [[0], [1], [2], [3], [4], [], [0]]


def test_a_refused_batch_of_an_idempotent_producer_takes_no_sequence(wire, name):
    wire.create(name, cleanup_policy="compact")
    producer = {"producer_id": 4711, "producer_epoch": 0}
    assert list(named(wire.produce(name, of_keys(b"k", None, **producer, base_sequence=0)))) == [1]
    assert wire.produce(name, of_keys(b"k", **producer, base_sequence=0)).base_offset == 0
    assert wire.produce(name, of_keys(b"k", **producer, base_sequence=1)).base_offset == 1


@pytest.mark.parametrize("codec", [0, 4])
def test_a_response_lists_a_bounded_number_of_records(wire, name, codec):
    wire.create(name, 2, cleanup_policy="compact")
    bad = of_keys(*[None] * (MOST_LISTED - 5), codec=codec)
    (topic,) = wire.ask(produce_request([(name, [(0, bad), (1, bad)])]), produce.API_KEY, 9).responses
    first, second = topic.partition_responses
    assert list(named(first)) == list(range(MOST_LISTED - 5))
    assert list(named(second)) == list(range(5))
    assert second.error_message.endswith(f"({MOST_LISTED - 10} more not listed)")
    assert [one.error_code for one in (first, second)] == [ErrorCode.INVALID_RECORD] * 2


def test_with_acks_0_a_bad_record_closes_the_connection(wire, connect, name):
    wire.create(name, cleanup_policy="compact")
    wire.send(produce_request([(name, [(0, of_keys(b"k", None))])], acks=0), produce.API_KEY, 9)
    assert wire.closed_by_broker()
    assert connect().produce(name, batch()).base_offset == 0
