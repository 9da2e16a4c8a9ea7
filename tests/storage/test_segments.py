"""A cleanly closed log opens without a scan; others are truncated at the first corrupt batch, after any crash."""

import errno
import random
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek._ext.storage.segments import ANY_GAP, load_log
from odradek._ext.testing import storage_probe
from odradek.storage.batch import ABORT, COMMIT, TRANSACTIONAL, Record, build_batch, build_end_marker
from odradek.storage.checkpoints import read_gap_limit, read_leader_epochs, write_gap_limit, write_leader_epochs
from odradek.storage.file_names import GAPS_CHECKPOINT
from odradek.storage.producer_snapshot import ProducerBatch, ProducerState
from tests.storage.log_files import write_snapshot
from tests.storage.log_writer import LogWriter

INTERVAL = 200


def fill(writer: LogWriter, batches: int, seed: int, roll_every: int = 9) -> LogWriter:
    """Batches of plain, idempotent and transactional producers, several epochs and segments."""
    source = random.Random(seed)
    sequences: dict[int, int] = {}
    open_txns: set[int] = set()
    time, epoch = 1_700_000_000_000, 0
    for number in range(batches):
        time += source.randrange(-5, 30)
        epoch += source.random() < 0.1
        producer = source.choice([-1, -1, 7, 8, 100, 101])
        header = {"base_offset": writer.end, "partition_leader_epoch": epoch}
        if producer in open_txns and source.random() < 0.4:
            open_txns.discard(producer)
            marker = source.choice([ABORT, COMMIT])
            writer.append(
                build_end_marker(
                    marker, producer_id=producer, producer_epoch=0, coordinator_epoch=3, timestamp=time, **header
                )
            )
            continue
        count = source.randrange(1, 5)
        content = [Record(b"k", source.randbytes(source.randrange(60)), time + index) for index in range(count)]
        attributes = 0
        if producer >= 100:
            open_txns.add(producer)
            attributes = TRANSACTIONAL
        if producer >= 0:
            sequence = sequences.get(producer, 0)
            sequences[producer] = sequence + count
            header |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        writer.append(build_batch(content, codec=source.choice([0, 0, 4]), attributes=attributes, **header))
        if number % roll_every == roll_every - 1:
            writer.roll()
    return writer


def producers_of(states):
    return {
        state.producer_id: (
            state.producer_epoch,
            state.coordinator_epoch,
            state.last_timestamp,
            state.current_txn_first_offset,
            [(batch.base_sequence, batch.last_sequence, batch.last_offset) for batch in state.batches],
        )
        for state in states
    }


def last_batch_only(producers):
    return {key: (*rest, batches[-1:]) for key, (*rest, batches) in producers.items()}


def assert_matches(loaded, writer):
    """The values of a loaded log equal those of its writer."""
    active = writer.segments[-1]
    assert loaded.log_end_offset == writer.end
    assert storage_probe.segment_base_offsets(loaded) == [segment.base_offset for segment in writer.segments]
    assert storage_probe.segment_sizes(loaded) == [len(segment.log) for segment in writer.segments]
    assert loaded.base_offset == active.base_offset
    assert loaded.size == len(active.log)
    assert loaded.index_entries == len(active.index)
    assert loaded.txnindex_entries == len(active.txns)
    assert (loaded.last_index_offset, loaded.last_index_position) == (
        active.index[-1] if active.index else (active.base_offset - 1, 0)
    )
    assert (loaded.max_timestamp, loaded.offset_of_max_timestamp) == active.largest
    assert loaded.first_timestamp == (active.positions[0][3] if active.positions else -1)
    assert loaded.epochs == writer.epochs
    open_txns = [state.current_txn_first_offset for state in writer.producers.values()]
    assert loaded.first_open_txn_offset == min((first for first in open_txns if first >= 0), default=-1)


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("batches", [0, 1, 5, 9, 60])
def test_a_clean_log_opens_without_a_change(tmp_path, batches):
    writer = fill(LogWriter(tmp_path / "t-0", INTERVAL), batches, seed=batches)
    writer.close()
    before = contents(tmp_path / "t-0")
    loaded = load_log(tmp_path / "t-0", clean=True, index_interval_bytes=INTERVAL)
    assert loaded.events == []
    assert_matches(loaded, writer)
    assert loaded.timeindex_entries == len(writer.segments[-1].times)
    assert loaded.recovery_point == writer.end
    assert producers_of(loaded.producers) == last_batch_only(producers_of(writer.producers.values()))
    assert contents(tmp_path / "t-0") == before


def test_a_clean_log_is_not_read_as_a_whole(tmp_path):
    writer = LogWriter(tmp_path / "t-0", 4096)
    for number in range(500):
        writer.append(build_batch([Record(b"k", bytes(1000), number)], base_offset=number))
    writer.close()
    loaded = load_log(tmp_path / "t-0", clean=True)
    assert loaded.log_end_offset == 500
    assert loaded.scanned_bytes < 10_000 < loaded.size


@pytest.mark.parametrize("recovery_point", [0, 40, 1 << 40])
def test_recovery_of_a_sound_log_rebuilds_every_index_as_it_was(tmp_path, recovery_point):
    writer = fill(LogWriter(tmp_path / "t-0", INTERVAL), 60, seed=3)
    writer.close()
    sound = contents(tmp_path / "t-0")
    first = max([base for base in (s.base_offset for s in writer.segments) if base <= recovery_point], default=0)
    for name in list(sound):
        if name.endswith(("index", ".timeindex", ".txnindex")) and int(name[:20]) >= first:
            (tmp_path / "t-0" / name).write_bytes(bytes(480))  # as Kafka preallocates
    loaded = load_log(tmp_path / "t-0", recovery_point=recovery_point, index_interval_bytes=INTERVAL)
    assert_matches(loaded, writer)
    if recovery_point == 0:
        assert producers_of(loaded.producers) == producers_of(writer.producers.values())
    assert loaded.recovery_point == (recovery_point if recovery_point <= writer.end else 0), (
        "a point of another log says nothing"
    )
    assert contents(tmp_path / "t-0") == sound


def test_recovery_without_snapshots_replays_the_log(tmp_path):
    writer = fill(LogWriter(tmp_path / "t-0", INTERVAL), 60, seed=4)
    writer.write()
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        path.unlink()
    loaded = load_log(tmp_path / "t-0", recovery_point=writer.segments[-1].base_offset, index_interval_bytes=INTERVAL)
    assert producers_of(loaded.producers) == producers_of(writer.producers.values())
    assert list((tmp_path / "t-0").glob("*.snapshot")) == []


def stop_in_order(directory, loaded):
    """The snapshot that an ordered stop leaves of the producers that were loaded."""
    states = [
        ProducerState(
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.last_timestamp,
            one.current_txn_first_offset,
            tuple(ProducerBatch(b.last_sequence, b.last_offset, b.last_offset - b.base_offset, 0) for b in one.batches),
        )
        for one in loaded.producers
    ]
    write_snapshot(directory / f"{loaded.log_end_offset:020d}.snapshot", states)


def damaged(tmp_path, seed):
    """A log with damage at a random place, and the writer as it would be had it stopped before."""
    source = random.Random(seed)
    whole = fill(LogWriter(tmp_path / "t-0", INTERVAL), 40, seed)
    whole.write()
    segment = source.choice([segment for segment in whole.segments if segment.positions])
    *_, position, _ = source.choice(segment.positions)
    kept = LogWriter(tmp_path / "kept", INTERVAL)
    for other in whole.segments:
        if other.base_offset > segment.base_offset:
            break
        if other is not whole.segments[0]:
            kept.roll()
        log = other.log[: position if other is segment else None]
        at = 0
        while at < len(log):
            size = int.from_bytes(log[at + 8 : at + 12], "big") + 12
            kept.append(log[at : at + size])
            at += size
    path = whole.path(segment, ".log")
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
    damage = source.choice(["bit", "cut", "zeros", "offset"])
    if damage == "bit":
        data[position + source.randrange(16, size)] ^= 0x10
    elif damage == "cut":
        del data[position + source.randrange(1, size) :]
    elif damage == "zeros":
        data[position:] = bytes(len(data) - position)
    elif position == 0:
        data[0] |= 0x80
    else:
        data[position : position + 8] = bytes(8)
        data[position + 8 + 15] ^= 1
    path.write_bytes(data)
    return whole, kept


@pytest.mark.parametrize("seed", range(25))
def test_recovery_cuts_at_the_first_bad_batch(tmp_path, seed):
    whole, kept = damaged(tmp_path, seed)
    loaded = load_log(tmp_path / "t-0", index_interval_bytes=INTERVAL)
    assert_matches(loaded, kept)
    assert producers_of(loaded.producers) == producers_of(kept.producers.values())
    assert read_leader_epochs(tmp_path / "t-0" / "leader-epoch-checkpoint") == kept.epochs
    cut = [event for event in loaded.events if event.message.startswith("cut")]
    assert len(cut) == 1
    assert f"offset {kept.end}, position {len(kept.segments[-1].log)}" in cut[0].message
    removed = [event for event in loaded.events if event.message.startswith("removed segment")]
    assert len(removed) == len(whole.segments) - len(kept.segments)
    stop_in_order(tmp_path / "t-0", loaded)
    again = load_log(tmp_path / "t-0", clean=True, index_interval_bytes=INTERVAL)
    assert again.events == []
    assert_matches(again, kept)


@pytest.mark.parametrize("seed", range(6))
def test_recovery_may_be_killed_before_any_change(tmp_path, seed):
    damaged(tmp_path, seed)
    shutil.copytree(tmp_path / "t-0", tmp_path / "straight")
    load_log(tmp_path / "straight", index_interval_bytes=INTERVAL)
    expected = contents(tmp_path / "straight")
    steps = 0
    while True:
        cut_short = tmp_path / f"after-{steps}"
        shutil.copytree(tmp_path / "t-0", cut_short)
        try:
            load_log(cut_short, index_interval_bytes=INTERVAL, changes_allowed=steps)
        except OSError as error:
            assert error.errno == errno.ECANCELED
            load_log(cut_short, index_interval_bytes=INTERVAL)
            assert contents(cut_short).keys() == expected.keys()
            assert {k: v for k, v in contents(cut_short).items() if v != expected[k]} == {}
            steps += 1
            continue
        assert contents(cut_short) == expected
        break
    assert steps > 2


def offset_bytes(writer, name):
    return {
        position + index
        for segment in writer.segments
        if name == f"{segment.base_offset:020d}.log"
        for *_, position, _ in segment.positions
        for index in range(8)
    }


@given(st.data())
@settings(max_examples=80)
def test_no_damage_makes_loading_fail_or_lie(tmp_path_factory, data):
    """Whatever happens to the files, the log opens, is no longer than it was, and opens the same once more."""
    directory = tmp_path_factory.mktemp("any") / "t-0"
    writer = fill(LogWriter(directory, INTERVAL), 20, seed=data.draw(st.integers(0, 50)), roll_every=6)
    writer.close()
    names = sorted(path.name for path in directory.iterdir())
    for _ in range(data.draw(st.integers(1, 4))):
        path = directory / data.draw(st.sampled_from(names))
        content = bytearray(path.read_bytes()) if path.exists() else bytearray()
        kind = data.draw(st.sampled_from(["remove", "cut", "flip", "extend"]))
        if kind == "remove" and path.suffix != ".log":
            path.unlink(missing_ok=True)
        elif kind == "cut":
            path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        elif kind == "flip" and content:
            at = data.draw(st.integers(0, len(content) - 1))
            if path.suffix == ".log" and at in offset_bytes(writer, path.name):
                continue  # no CRC covers a batch's base offset: a larger one is a gap, as compaction leaves
            content[at] ^= 1 << data.draw(st.integers(0, 7))
            path.write_bytes(content)
        elif kind == "extend":
            path.write_bytes(content + data.draw(st.binary(max_size=100)))
    loaded = load_log(directory, index_interval_bytes=INTERVAL)
    assert loaded.log_end_offset <= writer.end
    written = b"".join(segment.log for segment in writer.segments)
    found = b"".join(
        (directory / f"{base:020d}.log").read_bytes() for base in storage_probe.segment_base_offsets(loaded)
    )
    assert len(found) <= len(written)
    stop_in_order(directory, loaded)
    again = load_log(directory, clean=True, index_interval_bytes=INTERVAL)
    assert [event for event in again.events if "epoch" not in event.message] == []
    assert again.log_end_offset == loaded.log_end_offset
    of_the_work = {"scanned_bytes": 0, "recovery_point": 0, "lost_bytes": 0}
    assert again.numbers() | of_the_work == loaded.numbers() | of_the_work


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize(
    ("which", "fault"), [(0, "missing"), (0, "torn"), (-1, "missing"), (-1, "torn"), (-1, "beyond"), (-1, "zeros")]
)
def test_a_stale_index_is_rebuilt_after_a_clean_stop_too(tmp_path, kind, which, fault):
    writer = fill(LogWriter(tmp_path / "t-0", INTERVAL), 48, seed=5, roll_every=16)
    fill(writer, 9, seed=6, roll_every=99)
    writer.close()
    sound = contents(tmp_path / "t-0")
    path = writer.path(writer.segments[which], kind)
    if fault == "missing":
        path.unlink()
    else:
        extra = {"torn": b"x", "beyond": b"\x7f" * (8 if kind == ".index" else 12), "zeros": bytes(480)}[fault]
        path.write_bytes(path.read_bytes() + extra)
    loaded = load_log(tmp_path / "t-0", clean=True, index_interval_bytes=INTERVAL)
    assert any("rebuilt the indexes" in event.message and event.file[:20] == path.name[:20] for event in loaded.events)
    assert_matches(loaded, writer)
    assert contents(tmp_path / "t-0") == sound


def test_a_corrupt_snapshot_is_removed_and_the_one_before_is_taken(tmp_path):
    writer = fill(LogWriter(tmp_path / "t-0", INTERVAL), 30, seed=9)
    writer.close()
    path = tmp_path / "t-0" / f"{writer.end:020d}.snapshot"
    path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))
    loaded = load_log(tmp_path / "t-0", clean=True, index_interval_bytes=INTERVAL)
    assert last_batch_only(producers_of(loaded.producers)) == last_batch_only(producers_of(writer.producers.values()))
    assert [(event.file, event.serious) for event in loaded.events] == [(path.name, True)]
    assert not path.exists()


def test_snapshots_that_a_loss_of_power_emptied_are_removed_and_the_log_is_replayed(tmp_path):
    writer = fill(LogWriter(tmp_path / "t-0", INTERVAL), 30, seed=9)
    writer.close()
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        path.write_bytes(b"")
    for clean in (True, False):  # a crash after the first start
        loaded = load_log(tmp_path / "t-0", clean=clean, index_interval_bytes=INTERVAL)
        found = producers_of(loaded.producers)
        assert last_batch_only(found) == last_batch_only(producers_of(writer.producers.values()))
        assert list((tmp_path / "t-0").glob("*.snapshot")) == []


def test_empty_snapshots_that_no_recovery_reads_are_removed_too(tmp_path):
    writer = fill(LogWriter(tmp_path / "t-0", INTERVAL), 40, seed=9)
    writer.close()
    bases = [segment.base_offset for segment in writer.segments]
    first, last = tmp_path / "t-0" / f"{bases[1]:020d}.snapshot", tmp_path / "t-0" / f"{writer.end:020d}.snapshot"
    for path in (first, last):
        path.write_bytes(b"")
    loaded = load_log(tmp_path / "t-0", recovery_point=bases[-1], index_interval_bytes=INTERVAL)
    assert {event.file for event in loaded.events if event.serious} == {first.name, last.name}
    assert sorted(int(path.stem) for path in (tmp_path / "t-0").glob("*.snapshot")) == bases[2:]
    assert last_batch_only(producers_of(loaded.producers)) == last_batch_only(producers_of(writer.producers.values()))


@pytest.mark.parametrize("clean", [True, False])
def test_snapshots_that_no_start_needs_are_removed(tmp_path, clean):
    """As in Kafka: those at segments' bases stay, and the newest one if it is above them all."""
    writer = fill(LogWriter(tmp_path / "t-0", INTERVAL), 40, seed=3)
    writer.close()
    bases = [segment.base_offset for segment in writer.segments]
    path = tmp_path / "t-0"
    strays = {bases[1] + 1, bases[-1] + 1, writer.end + 5} - {*bases, writer.end}
    for offset in strays:
        shutil.copy(path / f"{bases[1]:020d}.snapshot", path / f"{offset:020d}.snapshot")
    (path / f"{bases[2]:020d}.snapshot.tmp").write_bytes(b"half")
    loaded = load_log(path, clean=clean, index_interval_bytes=INTERVAL)
    assert sorted(int(one.stem) for one in path.glob("*.snapshot")) == [*bases[1:], writer.end]
    assert list(path.glob("*.tmp")) == []
    assert {int(event.file[:20]) for event in loaded.events} == strays | {bases[2]}
    assert last_batch_only(producers_of(loaded.producers)) == last_batch_only(producers_of(writer.producers.values()))


def test_the_newest_snapshot_of_before_the_first_segment_stays(tmp_path):
    """The snapshot contains producers whose records are deleted."""
    writer = fill(LogWriter(tmp_path / "t-0", INTERVAL), 40, seed=3)
    writer.write()
    path, bases = tmp_path / "t-0", [segment.base_offset for segment in writer.segments]
    start = bases[2]
    for name in [one.name for one in path.iterdir() if one.name[:20].isdigit() and int(one.name[:20]) < start]:
        (path / name).unlink()
    for offset in bases[2:]:
        (path / f"{offset:020d}.snapshot").unlink(missing_ok=True)
    old = ProducerState(4711, 3, batches=(ProducerBatch(5, start - 3, 0, 1),))
    for offset in (start - 2, start - 1):
        write_snapshot(path / f"{offset:020d}.snapshot", [old])
    for _ in range(2):
        loaded = load_log(path, start, index_interval_bytes=INTERVAL)
        assert 4711 in producers_of(loaded.producers)
        assert [int(one.stem) for one in path.glob("*.snapshot")] == [start - 1]


def test_a_load_keeps_the_producers_that_wrote_last(tmp_path):
    writer = LogWriter(tmp_path / "t-0", INTERVAL)
    for number in range(100):
        writer.append(build_batch([Record(b"k")], base_offset=number, producer_id=number % 60, producer_epoch=0,
                                  base_sequence=number // 60))  # fmt: skip
    writer.write()
    loaded = load_log(tmp_path / "t-0", index_interval_bytes=INTERVAL, producer_limit=10)
    assert set(producers_of(loaded.producers)) == set(range(30, 40))
    (event,) = [event for event in loaded.events if event.serious]
    assert "kept the 10 newest producers" in event.message
    assert "odradek.producer.state.partition.max.producers" in event.message


def test_an_empty_directory_gets_a_segment_at_the_start_offset(tmp_path):
    (tmp_path / "t-0").mkdir()
    loaded = load_log(tmp_path / "t-0", log_start_offset=70)
    assert (loaded.log_start_offset, loaded.log_end_offset, storage_probe.segment_base_offsets(loaded)) == (
        70,
        70,
        [70],
    )
    assert sorted(contents(tmp_path / "t-0")) == [f"{70:020d}{kind}" for kind in (".index", ".log", ".timeindex")]


def test_a_log_that_ends_before_its_start_begins_anew(tmp_path):
    writer = fill(LogWriter(tmp_path / "t-0", INTERVAL), 20, seed=2)
    writer.close()
    loaded = load_log(tmp_path / "t-0", log_start_offset=10_000, clean=True, index_interval_bytes=INTERVAL)
    assert (loaded.log_start_offset, loaded.log_end_offset, storage_probe.segment_base_offsets(loaded)) == (
        10_000,
        10_000,
        [10_000],
    )
    assert loaded.producers == []
    assert loaded.epochs == []
    assert list((tmp_path / "t-0").glob("*.snapshot")) == []
    assert "emptied the log" in loaded.events[0].message


def test_the_start_offset_moves_the_first_epoch(tmp_path):
    writer = LogWriter(tmp_path / "t-0", INTERVAL)
    for number in range(10):
        writer.append(build_batch([Record(b"k")], base_offset=number, partition_leader_epoch=number // 3))
    writer.close()
    write_leader_epochs(tmp_path / "t-0" / "leader-epoch-checkpoint", [*writer.epochs, (9, 10), (12, 30)])
    loaded = load_log(tmp_path / "t-0", log_start_offset=5, clean=True)
    assert loaded.epochs == [(1, 5), (2, 6), (3, 9), (9, 10)]
    loaded = load_log(tmp_path / "t-0", log_start_offset=5)
    assert loaded.epochs == [(1, 5), (2, 6), (3, 9)]
    assert read_leader_epochs(tmp_path / "t-0" / "leader-epoch-checkpoint") == loaded.epochs


def test_a_missing_directory_is_an_os_error_that_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_log(tmp_path / "nowhere")


def gapped(tmp_path):
    """A log whose second segment was lost to a power failure before it was on the device, while the third was not."""
    writer = fill(LogWriter(tmp_path / "t-0", INTERVAL), 27, seed=4, roll_every=9)
    writer.close()
    lost = writer.segments[1]
    writer.path(lost, ".log").write_bytes(b"")
    return writer, lost.base_offset


def test_a_gap_between_segments_ends_a_log_that_was_never_compacted(tmp_path):
    _, end = gapped(tmp_path)
    loaded = load_log(tmp_path / "t-0", index_interval_bytes=INTERVAL)
    assert loaded.log_end_offset == end
    assert storage_probe.segment_base_offsets(loaded) == [0, end]
    assert any("removed segment" in event.message for event in loaded.events)


def test_a_gap_that_compaction_may_have_left_is_kept(tmp_path):
    writer, _ = gapped(tmp_path)
    loaded = load_log(tmp_path / "t-0", index_interval_bytes=INTERVAL, cleaner_offset=ANY_GAP)
    assert loaded.log_end_offset == writer.end
    assert storage_probe.segment_base_offsets(loaded) == [segment.base_offset for segment in writer.segments]


def two_gaps(tmp_path):
    """A log whose offsets 2-4 and 7-9 are missing, the second three in front of a segment."""
    writer = LogWriter(tmp_path / "t-0", INTERVAL)
    for base in (0, 5, 10, 15):
        if base == 10:
            writer.end = base
            writer.roll()
        writer.append(
            build_batch([Record(b"k")] * (2 if base != 10 else 5), base_offset=base, partition_leader_epoch=0)
        )
    writer.close()
    return tmp_path / "t-0"


@pytest.mark.parametrize(
    ("limit", "end"), [(0, 2), (4, 2), (5, 7), (9, 7), (10, 17), (15, 17), (None, 2)], ids=lambda value: str(value)
)
def test_a_gap_is_kept_below_the_gap_limit_and_ends_the_log_above_it(tmp_path, limit, end):
    directory = two_gaps(tmp_path)
    if limit is not None:
        write_gap_limit(directory, limit)
    loaded = load_log(directory)
    assert loaded.log_end_offset == end
    assert any("are missing before" in event.message for event in loaded.events) == (end < 17)
    again = load_log(directory)
    assert again.log_end_offset == end
    assert again.gap_limit == min(limit or 0, end)


@pytest.mark.parametrize(("cleaner", "end"), [(-1, 2), (0, 17), (3, 17), (ANY_GAP, 17)])
def test_a_log_that_another_broker_compacted_keeps_all_gaps(tmp_path, cleaner, end):
    """Or an older version, which stored the progress of compaction and not its limit."""
    loaded = load_log(two_gaps(tmp_path), cleaner_offset=cleaner)
    assert loaded.log_end_offset == end
    assert loaded.gap_limit == (ANY_GAP if cleaner >= 0 else 0)


@pytest.mark.parametrize(("own", "cleaner", "end"), [(5, 0, 7), (5, 10, 17), (5, ANY_GAP, 7), (0, 6, 7)])
def test_where_there_is_a_gap_limit_the_cleaners_offset_can_only_raise_it(tmp_path, own, cleaner, end):
    directory = two_gaps(tmp_path)
    write_gap_limit(directory, own)
    assert load_log(directory, cleaner_offset=cleaner).log_end_offset == end


def test_a_gap_limit_that_cannot_be_read_keeps_all_gaps(tmp_path):
    directory = two_gaps(tmp_path)
    (directory / GAPS_CHECKPOINT).write_text("0\n1\nfive\n")
    loaded = load_log(directory)
    assert (loaded.log_end_offset, loaded.gap_limit) == (17, ANY_GAP)
    assert any(GAPS_CHECKPOINT in event.message for event in loaded.events)


def test_a_gap_limit_behind_the_end_of_the_log_does_not_cover_what_is_appended_next(tmp_path):
    directory = two_gaps(tmp_path)
    write_gap_limit(directory, 100)
    assert load_log(directory).gap_limit == 17
    assert read_gap_limit(directory) == 17


def test_a_log_that_ends_before_its_recovery_point_is_read_from_its_beginning(tmp_path):
    """The recovery point belongs to a deleted topic with this name, or segments were removed: it does not apply."""
    writer = fill(LogWriter(tmp_path / "t-0", INTERVAL), 27, seed=4, roll_every=9)
    writer.close()
    first = writer.path(writer.segments[0], ".log")
    content = bytearray(first.read_bytes())
    base, _, position, _ = writer.segments[0].positions[3]
    content[position + 70] ^= 1
    first.write_bytes(content)
    for clean in (False, True):
        copy = tmp_path / f"copy-{clean}"
        shutil.copytree(tmp_path / "t-0", copy)
        loaded = load_log(copy, recovery_point=1000, clean=clean, index_interval_bytes=INTERVAL)
        assert (loaded.log_end_offset, loaded.shortened, loaded.recovery_point) == (base, True, 0)
        assert any("before its recovery point" in event.message for event in loaded.events)


def test_leader_epochs_that_the_checkpoint_lost_are_read_from_the_batches(tmp_path):
    """The file is not synced when an epoch begins: a loss of power may leave it empty."""
    writer = LogWriter(tmp_path / "t-0", INTERVAL)
    for number in range(12):
        if number in (4, 8):
            writer.roll()
        writer.append(build_batch([Record(b"k")], base_offset=number, partition_leader_epoch=number // 3))
    writer.close()
    path = tmp_path / "t-0" / "leader-epoch-checkpoint"
    expected = [(0, 0), (1, 3), (2, 6), (3, 9)]
    for clean in (False, True):
        for content in ("", "0\n2\n0 0\n", None, "0\n1\n3 9\n"):
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_text(content)
            loaded = load_log(tmp_path / "t-0", recovery_point=12, clean=clean)
            assert loaded.epochs == expected
            assert read_leader_epochs(path) == expected


def test_a_damaged_offset_behind_the_recovery_point_does_not_change_the_leader_epochs(tmp_path):
    """Zeros in place of the base offset of an unsynced batch of a later epoch: it would seem to be the log's first batch."""
    writer = LogWriter(tmp_path / "t-0", INTERVAL)
    for number in range(6):
        writer.append(build_batch([Record(b"k")], base_offset=number, partition_leader_epoch=number // 3))
    writer.close()
    log = writer.path(writer.segments[-1], ".log")
    content = bytearray(log.read_bytes())
    position = writer.segments[-1].positions[3][2]
    content[position : position + 8] = bytes(8)
    path = tmp_path / "t-0" / "leader-epoch-checkpoint"
    for clean, end in ((True, 6), (False, 3)):
        log.write_bytes(content)
        path.write_bytes(b"")
        loaded = load_log(tmp_path / "t-0", clean=clean)
        assert (loaded.log_end_offset, loaded.epochs) == (end, [(0, 0)])
        assert read_leader_epochs(path) == [(0, 0)]


@pytest.mark.parametrize("bit", [0, 7, 30, 33, 40, 62])
def test_a_flipped_bit_in_the_last_batch_s_offset_costs_that_batch_only(tmp_path, bit):
    """No CRC covers the base offset: only the missing offsets reveal the damage."""
    writer = fill(LogWriter(tmp_path / "t-0", INTERVAL), 8, seed=3, roll_every=99)
    writer.append(build_batch([Record(None, b"v", 5)], base_offset=writer.end, partition_leader_epoch=9))
    writer.write()
    path = writer.path(writer.segments[-1], ".log")
    base, _, position, _ = writer.segments[-1].positions[-1]
    content = bytearray(path.read_bytes())
    content[position : position + 8] = (base ^ 1 << bit).to_bytes(8, "big")
    path.write_bytes(content)
    loaded = load_log(tmp_path / "t-0", index_interval_bytes=INTERVAL)
    assert (loaded.log_end_offset, loaded.size) == (base, position)


def test_a_gap_below_the_log_start_is_that_of_a_removal_under_way(tmp_path):
    """Renamed segments may come back after a loss of power, and not all of them."""
    writer, gap = gapped(tmp_path)
    last = writer.segments[2].base_offset
    for start in (last, last + 1):
        copy = tmp_path / f"from-{start}"
        shutil.copytree(tmp_path / "t-0", copy)
        found = load_log(copy, start, 0, False, INTERVAL)
        assert (found.log_start_offset, found.log_end_offset) == (start, writer.end)
    copy = tmp_path / "above"
    shutil.copytree(tmp_path / "t-0", copy)
    assert load_log(copy, gap - 1, 0, False, INTERVAL).log_end_offset == gap
