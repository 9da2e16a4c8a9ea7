"""Logs of messages v0 and v1 followed by batches v2: opened, recovered, truncated and looked up like others."""

import errno
import os
import random
import shutil
import zlib

import pytest

from odradek._ext.records import crc32
from odradek._ext.storage.segments import ANY_GAP, load_log
from odradek._ext.testing import record_probe, storage_probe
from odradek.storage import compression
from odradek.storage.batch import Record, build_batch, read_batch
from odradek.storage.checkpoints import read_leader_epochs
from odradek.storage.lookup import find_timestamp
from odradek.storage.old_messages import CorruptMessageError, is_old, read_message, read_messages
from tests.storage.log_writer import LogWriter
from tests.storage.old_writer import message, wrapper
from tests.storage.test_segments import assert_matches, contents, producers_of

INTERVAL = 200
START = 1_400_000_000_000


def fill_old(writer: LogWriter, seed: int, batches: int = 60, roll_every: int = 13) -> list[tuple[int, int]]:
    """Messages v0, then v1, then v2 batches, plain and in wrappers, with gaps; [(offset, timestamp)] of all records."""
    source = random.Random(seed)
    records: list[tuple[int, int]] = []
    time = START
    for number in range(batches):
        magic = 0 if number < batches // 3 else 1 if number < 2 * batches // 3 else 2
        count, first = source.randrange(1, 6), writer.end + source.choice([0, 0, 0, 3])
        time += source.randrange(0, 40)
        times = [time + source.randrange(-5, 6) if magic else -1 for _ in range(count)]
        values = [source.randbytes(source.randrange(50)) for _ in range(count)]
        codec = source.choice([0, 1, 2, 3] if magic < 2 else [0, 4])
        if magic == 2:
            made = [Record(b"k", value, at) for value, at in zip(values, times, strict=True)]
            header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": len(records)}
            writer.append(build_batch(made, base_offset=first, codec=codec, partition_leader_epoch=4, **header))
        elif codec == 0:
            for index, value in enumerate(values):
                writer.append(message(first + index, value, magic=magic, key=b"k", timestamp=times[index]))
        else:
            stamp = time if magic and source.random() < 0.3 else None
            pairs = [(None, value) for value in values]
            writer.append(wrapper(first, pairs, codec=codec, magic=magic, timestamps=times, append_time=stamp))
            times = [stamp] * count if stamp is not None else times
        records += [(first + index, at) for index, at in enumerate(times)]
        if number % roll_every == roll_every - 1:
            writer.roll()
    return records


@pytest.mark.parametrize("size", [0, 1, 7, 8, 15, 63, 127, 128, 129, 191, 192, 207, 300, 4096, 100_003])
def test_crc32_is_the_one_of_zlib(size):
    data = random.Random(size).randbytes(size + 3)
    for part in (data[:size], data[3:]):
        assert crc32.checksum(part) == record_probe.crc32_of_software(part) == zlib.crc32(part)
        assert crc32.checksum(part[9:], crc32.checksum(part[:9])) == zlib.crc32(part)


@pytest.mark.parametrize("seed", range(3))
def test_a_clean_log_opens_without_a_change(tmp_path, seed):
    writer = LogWriter(tmp_path / "t-0", INTERVAL)
    fill_old(writer, seed)
    writer.close()
    before = contents(tmp_path / "t-0")
    loaded = load_log(tmp_path / "t-0", cleaner_offset=ANY_GAP, clean=True, index_interval_bytes=INTERVAL)
    assert loaded.events == []
    assert_matches(loaded, writer)
    assert contents(tmp_path / "t-0") == before
    assert loaded.epochs == [(4, next(batch for batch in batches_of(writer) if batch[1] == 2)[0])]


def batches_of(writer):
    """(first offset of the header, magic, bytes) of all batches."""
    for segment in writer.segments:
        at = 0
        while at < len(segment.log):
            size = int.from_bytes(segment.log[at + 8 : at + 12], "big") + 12
            data = segment.log[at : at + size]
            yield int.from_bytes(data[:8], "big"), data[16], data
            at += size


@pytest.mark.parametrize("magic", [0, 1])
def test_a_log_of_one_old_format_alone_ends_where_it_ends(tmp_path, magic):
    writer = LogWriter(tmp_path / "t-0", INTERVAL)
    for number in range(40):
        writer.append(message(number, b"v" * 20, magic=magic, timestamp=START + number))
    writer.close()
    for clean in (True, False):
        loaded = load_log(tmp_path / "t-0", cleaner_offset=ANY_GAP, clean=clean, index_interval_bytes=INTERVAL)
        assert_matches(loaded, writer)
        assert loaded.timeindex_entries == (len(writer.segments[0].times) if magic else 0)
        assert (loaded.epochs, loaded.producers) == ([], [])


@pytest.mark.parametrize("recovery_point", [0, 50, 1 << 40])
def test_recovery_rebuilds_every_index_as_it_was(tmp_path, recovery_point):
    writer = LogWriter(tmp_path / "t-0", INTERVAL)
    fill_old(writer, 5)
    writer.close()
    sound = contents(tmp_path / "t-0")
    for path in (tmp_path / "t-0").glob("*index"):
        if path.stem >= max(f"{s.base_offset:020d}" for s in writer.segments if s.base_offset <= recovery_point):
            path.write_bytes(bytes(480))  # as Kafka preallocates
    loaded = load_log(
        tmp_path / "t-0", cleaner_offset=ANY_GAP, recovery_point=recovery_point, index_interval_bytes=INTERVAL
    )
    assert_matches(loaded, writer)
    assert contents(tmp_path / "t-0") == sound


def test_indexes_that_are_missing_after_a_clean_stop_are_built_from_old_messages(tmp_path):
    writer = LogWriter(tmp_path / "t-0", INTERVAL)
    fill_old(writer, 6)
    writer.close()
    sound = contents(tmp_path / "t-0")
    for path in (tmp_path / "t-0").glob("*.timeindex"):  # as 0.9 left its logs, which had none
        path.unlink()
    loaded = load_log(tmp_path / "t-0", cleaner_offset=ANY_GAP, clean=True, index_interval_bytes=INTERVAL)
    assert_matches(loaded, writer)
    assert contents(tmp_path / "t-0") == sound


def damaged(tmp_path, seed):
    """A log with damage at a random message, and the writer as it would be had it stopped before."""
    source = random.Random(seed)
    whole = LogWriter(tmp_path / "t-0", INTERVAL)
    fill_old(whole, seed)
    whole.write()
    everything = list(batches_of(whole))
    bad = source.randrange(1, len(everything))
    kept = LogWriter(tmp_path / "kept", INTERVAL)
    number = 0
    for segment in whole.segments:
        if segment is not whole.segments[0]:
            if number > bad:
                break
            kept.roll()
            kept.segments[-1].base_offset = segment.base_offset
        for *_, position, _ in segment.positions:
            if number == bad:
                break_at(whole.path(segment, ".log"), position, source)
                return whole, kept
            kept.append(everything[number][2])
            number += 1
    raise AssertionError("nothing was damaged")


def break_at(path, position, source):
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
    damage = source.choice(["bit", "cut", "zeros", "length"])
    if damage == "bit":
        data[position + source.randrange(12, size)] ^= 0x10
    elif damage == "cut":
        del data[position + source.randrange(1, size) :]
    elif damage == "zeros":
        data[position:] = bytes(len(data) - position)
    else:
        data[position + 8] ^= 0x80
    path.write_bytes(data)


@pytest.mark.parametrize("seed", range(25))
def test_recovery_cuts_at_the_first_bad_message(tmp_path, seed):
    whole, kept = damaged(tmp_path, seed)
    loaded = load_log(tmp_path / "t-0", cleaner_offset=ANY_GAP, index_interval_bytes=INTERVAL)
    assert_matches(loaded, kept)
    assert producers_of(loaded.producers) == producers_of(kept.producers.values())
    assert read_leader_epochs(tmp_path / "t-0" / "leader-epoch-checkpoint") == kept.epochs
    assert sum(event.message.startswith("cut") for event in loaded.events) == 1
    removed = [event for event in loaded.events if event.message.startswith("removed segment")]
    assert len(removed) == len(whole.segments) - len(kept.segments)
    again = load_log(tmp_path / "t-0", cleaner_offset=ANY_GAP, clean=True, index_interval_bytes=INTERVAL)
    assert again.events == []
    assert_matches(again, kept)


@pytest.mark.parametrize("seed", range(4))
def test_recovery_may_be_killed_before_any_change(tmp_path, seed):
    damaged(tmp_path, seed)
    shutil.copytree(tmp_path / "t-0", tmp_path / "straight")
    load_log(tmp_path / "straight", cleaner_offset=ANY_GAP, index_interval_bytes=INTERVAL)
    expected = contents(tmp_path / "straight")
    steps = 0
    while True:
        cut_short = tmp_path / f"after-{steps}"
        shutil.copytree(tmp_path / "t-0", cut_short)
        try:
            load_log(cut_short, cleaner_offset=ANY_GAP, index_interval_bytes=INTERVAL, changes_allowed=steps)
        except OSError as error:
            assert error.errno == errno.ECANCELED
            load_log(cut_short, cleaner_offset=ANY_GAP, index_interval_bytes=INTERVAL)
            assert contents(cut_short) == expected
            steps += 1
            continue
        assert contents(cut_short) == expected
        break
    assert steps > 2


def test_a_message_larger_than_any_buffer_is_checked_whole(tmp_path):
    writer = LogWriter(tmp_path / "t-0", INTERVAL)
    writer.append(message(0, b"small"))
    writer.append(message(1, random.Random(1).randbytes(3 << 20), timestamp=START))
    writer.append(message(2, b"small"))
    writer.write()
    assert load_log(tmp_path / "t-0", cleaner_offset=ANY_GAP, index_interval_bytes=INTERVAL).log_end_offset == 3
    path = writer.path(writer.segments[0], ".log")
    data = bytearray(path.read_bytes())
    data[2 << 20] ^= 1
    path.write_bytes(data)
    assert load_log(tmp_path / "t-0", cleaner_offset=ANY_GAP, index_interval_bytes=INTERVAL).log_end_offset == 1


def test_a_wrapper_that_repeats_an_offset_is_bad(tmp_path):
    directory = tmp_path / "t-0"
    directory.mkdir()
    again = wrapper(3, [(None, b"a"), (None, b"b")], codec=1)
    (directory / f"{0:020d}.log").write_bytes(again + wrapper(0, [(None, b"x"), (None, b"y")], codec=1))
    loaded = load_log(directory, cleaner_offset=ANY_GAP)
    assert (loaded.log_end_offset, loaded.size) == (5, len(again))


# -- look-ups --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval", [1, 300, 1 << 20])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_offset_and_every_timestamp_is_found(tmp_path, seed, interval):
    writer = LogWriter(tmp_path / "t-0", interval, base_offset=1000)
    records = fill_old(writer, seed, batches=90, roll_every=10**9)
    writer.close()
    segment = writer.segments[0]
    files = [os.open(writer.path(segment, kind), os.O_RDONLY) for kind in (".log", ".index", ".timeindex")]
    log, index, times = files
    size, entries = len(segment.log), len(segment.index)
    try:
        for offset in range(1000, writer.end):
            found = storage_probe.position_of(log, index, entries, 1000, size, offset)
            position = next(at for _, last, at, _ in segment.positions if last >= offset)
            assert found["position"] == position
        assert storage_probe.position_of(log, index, entries, 1000, size, writer.end) is None
        for target in range(START - 10, max(at for _, at in records) + 10, 7):
            found = find_timestamp(log, index, entries, times, len(segment.times), 1000, size, target, 1000)
            first = next(((offset, at) for offset, at in records if at >= target), None)
            assert (found and found[:2]) == first
            assert found is None or found[2] == (4 if position_is_v2(segment, found[0]) else -1)
    finally:
        for descriptor in files:
            os.close(descriptor)


def position_is_v2(segment, offset):
    position = next(at for _, last, at, _ in segment.positions if last >= offset)
    return segment.log[position + 16] == 2


# -- messages as objects ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_opens_with_absolute_offsets_and_the_timestamps_that_count(magic, codec):
    pairs = [(b"k%d" % number, None if number == 1 else b"v%d" % number) for number in range(4)]
    times = [START + number for number in range(4)]
    if codec == 0:
        data = b"".join(
            message(10 + n, value, magic=magic, key=key, timestamp=times[n]) for n, (key, value) in enumerate(pairs)
        )
    else:
        data = wrapper(10, pairs, codec=codec, magic=magic, timestamps=times)
    found = [inner for outer in read_messages(data) for inner in outer.opened()]
    assert [(one.offset, one.key, one.value) for one in found] == [(10 + n, *pair) for n, pair in enumerate(pairs)]
    assert [one.timestamp for one in found] == (times if magic else [-1] * 4)


def test_log_append_time_of_a_wrapper_is_that_of_its_messages():
    data = wrapper(5, [(None, b"a"), (None, b"b")], codec=1, timestamps=[1, 2], append_time=START)
    assert [one.timestamp for one in read_message(data)[0].opened()] == [START, START]


def test_nested_and_foreign_content_of_a_wrapper_is_refused():
    inner = wrapper(0, [(None, b"a")], codec=1)
    for content in (inner, message(0, b"a", magic=0), b"", build_batch([Record(b"k")])):
        nested = message(0, compression.compress(1, content), attributes=1)
        with pytest.raises(CorruptMessageError):
            read_message(nested)[0].opened()


def test_every_flipped_bit_and_every_cut_of_a_message_is_noticed():
    sound = message(3, b"value", key=b"key", timestamp=START)
    assert is_old(sound)
    assert not is_old(build_batch([Record(b"k")]))
    for at in range(8, len(sound)):
        broken = bytearray(sound)
        broken[at] ^= 4
        with pytest.raises(CorruptMessageError):
            read_message(bytes(broken))
    for length in range(len(sound)):
        with pytest.raises(CorruptMessageError):
            read_message(sound[:length])
    with pytest.raises(ValueError, match="error"):
        read_batch(sound)
