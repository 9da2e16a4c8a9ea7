"""Message sets of formats v0 and v1: errors, round trips through record batches, and Kafka's conversion rules."""

import os
import random
import zlib

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import odradek._ext.records.message_sets as message_sets
from odradek import codecs
from odradek._ext.records.batch_to_messages import write_message
from odradek._ext.records.message_sets import BadMessageError
from odradek._ext.testing import record_probe
from odradek.stepwise import Stepwise
from odradek.storage import compression, lz4_header, old_messages
from odradek.storage.batch import Record, build_batch, build_end_marker, read_batches
from odradek.storage.compression import compress_old, decompress_old
from odradek.storage.down_conversion import Part, conversion
from odradek.storage.incoming import AS_SENT, LIMIT_REACHED, prepare
from tests.storage.old_writer import LOG_APPEND_TIME, message, wrapper

CODECS = pytest.mark.parametrize("codec", range(4), ids=codecs.NAMES[:4])
PACKED = pytest.mark.parametrize("codec", range(1, 4), ids=codecs.NAMES[1:4])
MAGICS = pytest.mark.parametrize("magic", [0, 1])
LIMIT = 1 << 24
CORRUPT, TOO_LARGE, BAD_TIMESTAMP, BAD_CODEC, INVALID, UNSUPPORTED_VERSION = 2, 10, 32, 76, 87, 35


def wrap(inner, codec, magic, offset=0, timestamp=-1, attributes=0):
    """A compressed message around any bytes."""
    return message(
        offset, compress_old(codec, inner, magic), magic=magic, timestamp=timestamp, attributes=codec | attributes
    )


def up(data, codec=AS_SENT, level=0, limit=LIMIT, max_message_bytes=1 << 20):
    """(error, properties, batch) of a producer's message set."""
    error, found, made, size = prepare(data, True, codec, level, limit, max_message_bytes)
    if size == LIMIT_REACHED:
        return TOO_LARGE, None, None
    return error, found, None if made is None else next(read_batches(made))


def down(path, data, magic, offset=0, *, limit=1 << 20, position=0, at_least_one=True, may_convert=True):
    """(error, messages, next fetch offset) of the content of a log file."""
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        part = Part(None, fd, position, len(data) - position, offset, limit, magic, at_least_one, may_convert)
        ((error, content, following),) = convert([part], 1 << 40)
    finally:
        os.close(fd)
    return error, list(old_messages.read_messages(content)), following


def convert(parts, budget):
    return Stepwise(conversion(parts, budget)).finish()


def opened(messages):
    return [one for outer in messages for one in outer.opened()]


def seen(messages):
    return [(one.offset, one.timestamp, one.key, one.value) for one in messages]


# -- up -------------------------------------------------------------------------------------------------------------


@MAGICS
def test_plain_messages_become_one_batch(magic):
    data = message(5, b"a", magic=magic, key=b"k", timestamp=100) + message(5, None, magic=magic, timestamp=90)
    error, found, batch = up(data)
    assert error == 0
    times = (100, 90) if magic else (-1, -1)
    assert batch.records() == [Record(b"k", b"a", times[0], offset=0), Record(None, None, times[1], offset=1)]
    assert (batch.codec, batch.producer_id, batch.max_timestamp) == (0, -1, times[0])
    assert found.pop("records") == batch.payload
    assert found == {
        "keyless": True,
        "found_max_timestamp": times[0],
        "found_min_timestamp": times[1],
        "log_append_time": False,
        "separate": True,
    }


@PACKED
@MAGICS
def test_a_wrapper_is_opened_and_its_codec_kept(magic, codec):
    contents = [(b"key%d" % number, b"value" * number) for number in range(50)]
    times = [1000 + number * 7 % 50 for number in range(50)]
    inner = b"".join(
        message(number, value, magic=magic, key=key, timestamp=times[number])
        for number, (key, value) in enumerate(contents)
    )
    error, found, batch = up(wrap(inner, codec, magic, offset=49, timestamp=max(times)))
    assert (error, batch.codec, found["keyless"]) == (0, codec, False)
    assert [(one.key, one.value) for one in batch.records()] == contents
    assert [one.timestamp for one in batch.records()] == (times if magic else [-1] * 50)


@PACKED
def test_wrappers_and_plain_messages_of_one_set_become_one_batch(codec):
    data = (
        message(0, b"a", magic=0) + wrap(message(0, b"b", magic=1, timestamp=7), codec, 1) + message(2, b"c", magic=1)
    )
    error, _, batch = up(data)
    assert (error, batch.codec) == (0, codec)
    assert [(one.value, one.timestamp, one.offset) for one in batch.records()] == [
        (b"a", -1, 0),
        (b"b", 7, 1),
        (b"c", -1, 2),
    ]


def test_the_offsets_of_a_producer_mean_nothing():
    inner = b"".join(message(offset, b"x", magic=1) for offset in (0, 0, -5, 1 << 60))
    error, _, batch = up(wrap(inner, 1, 1, offset=-9))
    assert (error, [one.offset for one in batch.records()]) == (0, [0, 1, 2, 3])


@pytest.mark.parametrize("codec", range(5), ids=codecs.NAMES)
def test_the_codec_of_the_topic_comes_before_the_producers(codec):
    for data in (message(0, b"a" * 500), wrap(message(0, b"a" * 500), 1, 1)):
        error, _, batch = up(data, codec=codec, level={1: 9, 3: 5, 4: 7}.get(codec, 0))
        assert (error, batch.codec, [one.value for one in batch.records()]) == (0, codec, [b"a" * 500])


@pytest.mark.parametrize("codec", range(5), ids=codecs.NAMES)
@pytest.mark.parametrize("sent", range(5), ids=codecs.NAMES)
def test_a_batch_is_compressed_anew_only_for_another_codec(sent, codec):
    content = [Record(b"k", b"v" * 300, 5, ((b"h", b"1"),))]
    data = build_batch(content, codec=sent, producer_id=9, producer_epoch=1, base_sequence=3)
    error, found, made, _ = prepare(data, False, codec, 1, LIMIT, 1 << 20)
    assert error == 0
    if codec == sent:
        assert made is None
        return
    before, after = next(read_batches(data)), next(read_batches(made))
    assert after.codec == codec
    assert after.records() == before.records()
    same = ("producer_id", "producer_epoch", "base_sequence", "max_timestamp", "base_timestamp", "record_count")
    assert all(getattr(before, field) == getattr(after, field) for field in same)
    assert found["found_max_timestamp"] == 5


def test_levels_are_honoured():
    rng = random.Random(1)
    words = [bytes(rng.choices(b"etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(2000)]
    text = b" ".join(rng.choices(words, k=50_000))
    for codec, least, most in ((1, 1, 9), (3, 1, 12), (4, -50, 19)):
        data = build_batch([Record(None, text, 1)])
        small = len(prepare(data, False, codec, most, LIMIT, 1 << 20)[2])
        assert small < len(prepare(data, False, codec, least, LIMIT, 1 << 20)[2])


# -- bad input ------------------------------------------------------------------------------------------------------


def with_size(data, size):
    return data[:8] + size.to_bytes(4, "big", signed=True) + data[12:]


@MAGICS
@pytest.mark.parametrize("size", [-1, -(1 << 31), 0, 13, 1 << 20, (1 << 31) - 1])
def test_a_size_that_cannot_be_is_refused(magic, size):
    assert up(with_size(message(0, b"abc", magic=magic), size))[0] == CORRUPT


@MAGICS
def test_every_flipped_bit_behind_the_size_is_refused(magic):
    data = message(0, b"abc", magic=magic, key=b"k", timestamp=5)
    for bit in range(12 * 8, len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert up(bytes(damaged))[0] in (CORRUPT, INVALID)


@MAGICS
def test_a_set_that_ends_within_a_message_is_refused(magic):
    whole = message(0, b"abc", magic=magic)
    for end in range(1, len(whole)):
        assert up(whole + whole[:end])[0] == CORRUPT


@PACKED
@MAGICS
def test_damage_inside_of_a_wrapper_is_refused(magic, codec):
    sound = message(0, b"abc", magic=magic)
    for inner, code in (
        (sound[:-1] + b"x", CORRUPT),
        (with_size(sound, -7), CORRUPT),
        (sound + sound[:20], CORRUPT),
        (b"", INVALID),
        (wrap(sound, codec, magic), INVALID),
        (message(0, b"abc", magic=1 - magic), INVALID),
    ):
        assert up(wrap(inner, codec, magic))[0] == code
    assert up(message(0, None, magic=magic, attributes=codec))[0] == INVALID
    assert up(message(0, b"noise", magic=magic, attributes=codec))[0] == INVALID


@pytest.mark.parametrize("codec", [4, 5, 6, 7])
@MAGICS
def test_a_codec_that_the_format_does_not_know_is_refused(magic, codec):
    assert up(message(0, b"abc", magic=magic, attributes=codec))[0] == BAD_CODEC


@PACKED
def test_a_bomb_stops_at_the_limit(codec):
    inner = message(0, bytes(1 << 22), magic=1)
    data = wrap(inner, codec, 1)
    assert up(data, limit=len(inner))[0] == 0
    assert up(data, limit=len(inner) - 1)[0] == TOO_LARGE
    assert up(data + data, limit=2 * len(inner) - 1)[0] == TOO_LARGE  # all wrappers together


def test_the_bound_of_a_message_is_its_whole_size():
    data = message(0, b"x" * 100)
    assert up(data * 3, max_message_bytes=len(data))[0] == 0
    assert up(data, max_message_bytes=len(data) - 1)[0] == TOO_LARGE


def test_times_that_a_producer_must_not_send():
    error, found, _ = up(message(0, b"x", magic=1, timestamp=5, attributes=LOG_APPEND_TIME))
    assert (error, found["log_append_time"]) == (0, True)  # the topic's settings decide
    assert up(message(0, b"x", magic=1, timestamp=-2))[0] == BAD_TIMESTAMP
    assert up(wrap(message(0, b"x"), 1, 1, attributes=LOG_APPEND_TIME))[0] == BAD_TIMESTAMP
    assert up(wrap(message(0, b"x", timestamp=-2), 1, 1))[0] == BAD_TIMESTAMP


def test_a_record_batch_is_no_message():
    assert up(build_batch([Record(b"k", b"v", 1)]))[0] in (CORRUPT, INVALID)
    with pytest.raises(BadMessageError):
        message_sets.check_set(b"")


@given(st.binary(max_size=200))
def test_noise_is_refused(data):
    if data:
        assert up(data)[0] in (CORRUPT, INVALID)


@given(st.data())
@settings(max_examples=200)
def test_a_damaged_set_is_refused_or_says_something_sound(data):
    magic, codec = data.draw(st.sampled_from([0, 1])), data.draw(st.integers(0, 3))
    inner = message(0, b"abcdef" * 20, magic=magic, key=b"k") * 3
    body = bytearray(inner if codec == 0 else compress_old(codec, inner, magic))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    whole = bytes(body) if codec == 0 else message(0, bytes(body), magic=magic, attributes=codec)
    error, _, batch = up(whole)
    if error == 0:
        assert [one.value for one in batch.records()] == [b"abcdef" * 20] * 3


# -- lz4 of format v0 -----------------------------------------------------------------------------------------------


def test_format_0_has_the_wrong_checksum_in_lz4_headers_and_format_1_the_right_one():
    plain = b"text " * 1000
    right, wrong = compress_old(3, plain, 1), compress_old(3, plain, 0)
    assert lz4.frame.decompress(right) == plain
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(wrong)
    assert [at for at in range(len(right)) if right[at] != wrong[at]] == [6]
    assert decompress_old(3, wrong, LIMIT, 0) == decompress_old(3, right, LIMIT, 0) == plain
    with pytest.raises(compression.CorruptCompressedDataError):
        decompress_old(3, wrong, LIMIT, 1)


def test_the_hash_of_a_header_is_lz4s_own():
    for size in (0, 1000):
        for linked in (False, True):
            frame = lz4.frame.compress(bytes(size), store_size=bool(size), block_linked=linked)
            damaged = bytearray(frame)
            at = 6 + 8 * bool(size)
            damaged[at] ^= 0xFF
            assert lz4_header.with_right_checksum(bytes(damaged)) == frame
    for cut in range(8):
        assert lz4_header.with_right_checksum(b"\x04\x22\x4d\x18\x68\x40\xa7"[:cut])[:cut] is not None
    with pytest.raises(ValueError, match="16 bytes"):
        lz4_header.xxhash32(bytes(16))


# -- down -----------------------------------------------------------------------------------------------------------

CONTENT = [Record(b"k%d" % n, None if n == 3 else b"v" * n, 1000 + n * 7 % 5, ((b"h", b"x"),)) for n in range(10)]


@CODECS
@MAGICS
def test_a_batch_becomes_messages(tmp_path, magic, codec):
    data = build_batch(CONTENT, base_offset=70, codec=codec)
    error, messages, following = down(tmp_path / "log", data, magic)
    assert (error, following) == (0, 80)
    assert {one.magic for one in messages} == {magic}
    assert len(messages) == (1 if codec else 10)
    if codec:
        assert (messages[0].offset, messages[0].codec, messages[0].key) == (79, codec, None)
        assert messages[0].timestamp == (max(one.timestamp for one in CONTENT) if magic else -1)
        first = next(old_messages.read_messages(decompress_old(codec, messages[0].value, LIMIT, magic)))
        assert first.offset == (0 if magic else 70)
    times = [one.timestamp if magic else -1 for one in CONTENT]
    assert seen(opened(messages)) == [(70 + n, times[n], CONTENT[n].key, CONTENT[n].value) for n in range(10)]


@CODECS
def test_the_log_append_time_of_a_batch_is_that_of_its_messages(tmp_path, codec):
    data = bytearray(build_batch(CONTENT, codec=codec))
    record_probe.restamp(data, 5_000, True)
    _, messages, _ = down(tmp_path / "log", bytes(data), 1)
    assert {one.timestamp for one in opened(messages)} == {5_000}
    assert all(one.attributes & LOG_APPEND_TIME for one in messages)
    _, messages, _ = down(tmp_path / "log", bytes(data), 0)
    assert not any(one.attributes & LOG_APPEND_TIME for one in messages)


def test_messages_before_the_offset_asked_for_are_left_out_where_they_are_not_compressed(tmp_path):
    data = build_batch(CONTENT, base_offset=70)
    assert [one.offset for one in down(tmp_path / "log", data, 1, 76)[1]] == [76, 77, 78, 79]
    data = build_batch(CONTENT, base_offset=70, codec=1)
    assert [one.offset for one in opened(down(tmp_path / "log", data, 1, 76)[1])] == list(range(70, 80))


def test_gaps_of_compaction_stay(tmp_path):
    for codec in (0, 2):
        for magic in (0, 1):
            data = build_batch(CONTENT[:3], base_offset=10, codec=codec, offset_deltas=[1, 4, 6], last_offset_delta=9)
            error, messages, following = down(tmp_path / "log", data, magic)
            assert (error, following) == (0, 20)
            assert [one.offset for one in opened(messages)] == [11, 14, 16]


def test_control_batches_and_empty_ones_are_left_out(tmp_path):
    marker = build_end_marker(1, producer_id=5, producer_epoch=0, coordinator_epoch=0, base_offset=10, timestamp=1)
    data = build_batch(CONTENT, base_offset=0) + marker + build_batch(CONTENT[:1], base_offset=11)
    error, messages, following = down(tmp_path / "log", data, 1)
    assert (error, [one.offset for one in messages], following) == (0, [*range(10), 11], 12)
    assert down(tmp_path / "log", marker, 1, 10) == (0, [], 11)


def test_zstd_has_no_place_and_is_told_when_it_comes_first(tmp_path):
    data = build_batch(CONTENT, base_offset=0) + build_batch(CONTENT, base_offset=10, codec=4)
    error, messages, following = down(tmp_path / "log", data, 1)
    assert (error, len(messages), following) == (0, 10, 10)
    first = len(build_batch(CONTENT))
    assert down(tmp_path / "log", data, 1, 10, position=first) == (BAD_CODEC, [], 10)


def test_a_limit_cuts_between_messages_and_between_batches(tmp_path):
    data = b"".join(build_batch(CONTENT, base_offset=base, codec=base // 10 % 2) for base in (0, 10, 20, 30))
    whole = down(tmp_path / "log", data, 1)[1]
    for limit in range(0, 3000, 37):
        found, offset = [], 0
        while offset < 40:
            error, messages, following = down(tmp_path / "log", data, 1, offset, limit=limit)
            assert error == 0
            assert messages
            assert following > offset
            found += [one for one in opened(messages) if one.offset >= offset]
            offset = following
        assert seen(found) == seen(opened(whole))


def test_nothing_comes_where_a_batch_need_not(tmp_path):
    data = build_batch(CONTENT, base_offset=0, codec=1)
    assert down(tmp_path / "log", data, 1, limit=10, at_least_one=False) == (0, [], 0)
    path = tmp_path / "log"
    fd = os.open(path, os.O_RDONLY)
    try:
        part = (None, fd, 0, len(data), 0, 1 << 20, 1, True, True)
        (_, first, _), (_, second, _) = convert([part, (*part[:-2], False, True)], 20)
    finally:
        os.close(fd)
    assert first
    assert second == b""


def test_a_partition_that_is_named_again_and_again_gives_no_more_than_the_budget_and_a_batch(tmp_path):
    data = build_batch(CONTENT, base_offset=0, codec=1)
    path = tmp_path / "log"
    path.write_bytes(data)
    with path.open("rb") as file:
        part = (None, file.fileno(), 0, len(data), 0, 1 << 20, 1, True, True)
        ((_, once, _),) = convert([part], 0)
        assert once  # the first, however little there may be
        for budget in (0, 1, len(once), 3 * len(once) - 1, 3 * len(once)):
            given = [messages for _, messages, _ in convert([part] * 50, budget)]
            times = max(1, -(-budget // len(once)))
            assert given == [once] * times + [b""] * (50 - times)


def test_what_is_old_already_is_served_as_it_is_or_in_the_older_format(tmp_path):
    contents = [(b"k%d" % n, b"v%d" % n) for n in range(3)]
    stored = message(4, b"a", magic=0) + message(5, b"b", magic=1, timestamp=9, key=b"k")
    stored += wrapper(6, contents, codec=1, magic=1, timestamps=[1, 2, 3])
    assert b"".join([stored]) == stored
    error, messages, following = down(tmp_path / "log", stored, 1, 4, may_convert=False)
    assert (error, following) == (0, 9)
    assert messages == list(old_messages.read_messages(stored))
    _, messages, _ = down(tmp_path / "log", stored, 0, 4)
    assert {one.magic for one in messages} == {0}
    assert seen(opened(messages)) == [
        (4, -1, None, b"a"),
        (5, -1, b"k", b"b"),
        *((6 + n, -1, *contents[n]) for n in range(3)),
    ]


def test_down_conversion_can_be_switched_off(tmp_path):
    old, new = message(0, b"a", magic=0), build_batch(CONTENT, base_offset=1)
    assert down(tmp_path / "log", new, 1, 1, may_convert=False) == (UNSUPPORTED_VERSION, [], 1)
    error, messages, following = down(tmp_path / "log", old + new, 0, may_convert=False)
    assert (error, len(messages), following) == (0, 1, 1)


def test_damage_in_the_log_is_told(tmp_path):
    data = build_batch(CONTENT)
    assert down(tmp_path / "log", data[:-1] + b"\xff", 1)[0] == CORRUPT
    assert down(tmp_path / "log", data[:-1], 1)[0] == CORRUPT
    assert down(tmp_path / "log", bytes(100), 1)[0] == CORRUPT


@pytest.mark.parametrize("offsets", [(0, 0), (1, 0), (-1, 0), (0, 9)])
def test_stored_wrappers_whose_offsets_lie_are_damage(tmp_path, offsets):
    inner = b"".join(message(offset, b"x", magic=1) for offset in offsets)
    stored = wrap(inner, 1, 1, offset=5)
    with pytest.raises(old_messages.CorruptMessageError):
        old_messages.read_message(stored)[0].opened()
    assert down(tmp_path / "log", stored, 0) == (CORRUPT, [], 0)


_fields = st.one_of(st.none(), st.binary(max_size=40))
_records = st.lists(st.tuples(_fields, _fields, st.integers(-1, 1 << 50)), min_size=1, max_size=12)


@given(_records, st.integers(0, 3), st.sampled_from([0, 1]), st.sampled_from([0, 1]))
@settings(max_examples=200)
def test_what_goes_up_comes_down(tmp_path_factory, records, codec, sent, wanted):
    inner = b"".join(
        message(n, value, magic=sent, key=key, timestamp=time) for n, (key, value, time) in enumerate(records)
    )
    data = inner if codec == 0 else wrap(inner, codec, sent)
    error, _, made, _ = prepare(data, True, AS_SENT, 0, LIMIT, 1 << 20)
    assert error == 0
    error, messages, following = down(tmp_path_factory.getbasetemp() / "round-trip", made, wanted)
    assert (error, following) == (0, len(records))
    kept = sent and wanted
    assert seen(opened(messages)) == [
        (n, time if kept else -1, key, value) for n, (key, value, time) in enumerate(records)
    ]


def test_the_crc_of_a_message_is_zlibs():
    rng = random.Random(5)
    data = write_message(1, 0, False, 1, 2, rng.randbytes(99), rng.randbytes(1000))
    assert int.from_bytes(data[12:16], "big") == zlib.crc32(data[16:])
    assert message_sets.check_set(data)["count"] == 1
