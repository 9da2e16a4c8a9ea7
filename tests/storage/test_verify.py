"""`odradek.storage.verify`: an intact log has no findings, and every kind of damage is found at its place."""

import fcntl
import os
import random
import struct
from pathlib import Path

import pytest
from crc32c import crc32c

import odradek.storage.verify as verify_module
from odradek.storage.batch import Record, build_batch, build_end_marker
from odradek.storage.checkpoints import write_gap_limit, write_leader_epochs, write_offset_checkpoint
from odradek.storage.file_names import CLEAN_SHUTDOWN, GAPS_CHECKPOINT, LOCK, RECOVERY_POINT_CHECKPOINT
from odradek.storage.verify import NotALogDirectoryError, list_directory, verify
from tests.storage.log_writer import LogWriter
from tests.storage.old_writer import message, wrapper


def fill(directory: Path, batches=60, segments=3, codec=0, magic=2) -> LogWriter:
    writer = LogWriter(directory)
    chance = random.Random(4)
    for number in range(batches):
        count = chance.randint(1, 5)
        times = [1_700_000_000_000 + number * 10 + one for one in range(count)]
        chance.shuffle(times)
        content = [Record(b"k%d" % one, b"v" * 40, times[one]) for one in range(count)]
        if magic == 2:
            epoch = number // 20
            data = build_batch(content, base_offset=writer.end, codec=codec, partition_leader_epoch=epoch)
        elif codec:
            contents = [(one.key, one.value) for one in content]
            data = wrapper(writer.end, contents, codec=codec, magic=magic, timestamps=times if magic else None)
        else:
            data = message(writer.end, b"v" * 40, magic=magic, timestamp=times[0] if magic else -1)
        writer.append(data)
        if number % (batches // segments) == batches // segments - 1 and number < batches - 1:
            writer.roll()
    writer.close()
    return writer


@pytest.fixture
def log_dir(tmp_path):
    """A log directory, closed in order, with one log t-0."""
    writer = fill(tmp_path / "t-0")
    write_offset_checkpoint(tmp_path / RECOVERY_POINT_CHECKPOINT, {("t", 0): writer.end})
    (tmp_path / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":1}')
    return tmp_path, writer


def report_of(path, **options):
    (report,) = verify([list_directory(path)], **{"processes": 1} | options)
    return report


def errors_of(path, **options):
    return report_of(path, **options).errors


def patch(path: Path, position: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position, os.SEEK_SET if position >= 0 else os.SEEK_END)
        file.write(data)


def unclean(path: Path, recovery_point: int) -> None:
    (path / CLEAN_SHUTDOWN).unlink()
    write_offset_checkpoint(path / RECOVERY_POINT_CHECKPOINT, {("t", 0): recovery_point})


def log_file(writer, segment=0, kind=".log"):
    return writer.path(writer.segments[segment], kind)


def fixed_crc(data: bytearray) -> bytes:
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


# -- sound logs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("deep", [False, True])
def test_a_sound_log_has_nothing_wrong(tmp_path, codec, deep):
    writer = fill(tmp_path / "t-0", codec=codec)
    (tmp_path / CLEAN_SHUTDOWN).touch()
    report = report_of(tmp_path, deep=deep)
    assert not report.all_findings
    log = report.logs["t", 0]
    assert (log.log_end_offset, log.segments, log.batches, log.records) == (writer.end, 3, 60, writer.end)
    assert (log.formats, log.codecs, log.leader_epoch) == (1 << 2, 1 << codec, 2)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_old_formats_are_sound_too(tmp_path, magic, codec):
    writer = fill(tmp_path / "t-0", codec=codec, magic=magic)
    (tmp_path / CLEAN_SHUTDOWN).touch()
    report = report_of(tmp_path, deep=True)
    assert not report.errors, report.errors
    assert report.logs["t", 0].formats == 1 << magic and report.logs["t", 0].log_end_offset == writer.end


def test_processes_find_what_one_finds(log_dir, monkeypatch):
    path, writer = log_dir
    monkeypatch.setattr(verify_module, "GROUP_SEGMENTS", 10)
    shared_out = []
    in_parallel = verify_module._run_in_parallel
    monkeypatch.setattr(
        verify_module,
        "_run_in_parallel",
        lambda groups, count, *rest: (shared_out.append((len(groups), count)), in_parallel(groups, count, *rest)),
    )
    for number in range(1, 30):
        fill(path / f"t-{number}")
    patch(log_file(writer), writer.segments[0].positions[3][2] + 70, b"\xff")
    one, many = report_of(path), report_of(path, processes=3)
    assert [(groups > 3, count) for groups, count in shared_out] == [(True, 3)]
    assert one.all_findings == many.all_findings and len(one.errors) == 1
    assert {key: log.records for key, log in one.logs.items()} == {key: log.records for key, log in many.logs.items()}


def test_a_batch_larger_than_the_buffer_is_read(tmp_path):
    writer = LogWriter(tmp_path / "t-0")
    for _ in range(2):
        writer.append(
            build_batch([Record(b"k", bytes(700_000), 5)] * 3, base_offset=writer.end, partition_leader_epoch=0)
        )
    writer.close()
    (tmp_path / CLEAN_SHUTDOWN).touch()
    assert not report_of(tmp_path).all_findings
    patch(log_file(writer), -1, b"\x07")
    (finding,) = errors_of(tmp_path)
    assert (finding.offset, finding.position) == (3, writer.segments[0].positions[1][2])


def test_a_transaction_and_a_control_batch_are_sound(tmp_path):
    writer = LogWriter(tmp_path / "t-0")
    writer.append(build_batch([Record(b"k", b"v", 5)], producer_id=7, producer_epoch=0, base_sequence=0, attributes=0x10,
                              partition_leader_epoch=0))  # fmt: skip
    writer.append(build_end_marker(0, base_offset=1, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp=6,
                                   partition_leader_epoch=0))  # fmt: skip
    writer.close()
    (tmp_path / CLEAN_SHUTDOWN).touch()
    assert log_file(writer, kind=".txnindex").exists()
    assert not report_of(tmp_path, deep=True).all_findings
    patch(log_file(writer, kind=".txnindex"), 0, b"\0\7")
    (finding,) = errors_of(tmp_path)
    assert finding.file.endswith(".txnindex") and "version 7" in finding.what


# -- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [17, 30, 45, 57, 61, 70])
def test_a_flipped_bit_is_found_with_offset_and_position(log_dir, at):
    path, writer = log_dir
    base, _, position, _ = writer.segments[1].positions[4]
    log = log_file(writer, 1)
    byte = log.read_bytes()[position + at]
    patch(log, position + at, bytes([byte ^ 0x10]))
    found = [finding for finding in errors_of(path) if finding.file == str(log)]
    assert [(one.offset, one.position) for one in found] == [(base, position)]
    assert "CRC" in found[0].what


def test_lost_framing_in_the_middle_is_resumed_at_the_next_entry_of_the_index(log_dir):
    path, writer = log_dir
    segment = writer.segments[0]
    base, _, position, _ = segment.positions[3]
    patch(log_file(writer), position, random.Random(6).randbytes(12) + b"\xee" * 40)
    (finding,) = [one for one in errors_of(path) if "invalid batch header" in one.what]
    assert (finding.offset, finding.position) == (base, position)
    resumed = min(at for _, at in segment.index if at > position)
    assert str(resumed) in finding.what
    lost = sum(position <= at < resumed for _, _, at, _ in segment.positions)
    assert report_of(path).logs["t", 0].batches == 60 - lost


def test_a_middle_that_rots_is_an_error_of_an_unclean_directory_too(log_dir):
    path, writer = log_dir
    unclean(path, 0)
    patch(log_file(writer), writer.segments[0].positions[3][2], b"\xee" * 40)
    assert any("invalid batch header" in finding.what for finding in errors_of(path))


@pytest.mark.parametrize("cut", [1, 30, 70])
def test_a_torn_end_is_for_the_recovery_of_an_unclean_directory_only(log_dir, cut):
    path, writer = log_dir
    log = log_file(writer, -1)
    last = writer.segments[-1].positions[-1]
    os.truncate(log, last[2] + cut)
    assert [finding.position for finding in errors_of(path) if finding.file == str(log)] == [last[2]]
    unclean(path, last[0])
    report = report_of(path)
    assert not report.errors
    assert any(finding.position == last[2] and not finding.error for finding in report.all_findings)
    assert report.logs["t", 0].log_end_offset == last[0]
    unclean_but_flushed = last[1] + 1
    write_offset_checkpoint(path / RECOVERY_POINT_CHECKPOINT, {("t", 0): unclean_but_flushed})
    assert len(errors_of(path)) == 2  # the batch, and the checkpoint behind the log's end


def test_offsets_that_go_back_repeat_or_leave_gaps(tmp_path):
    (tmp_path / CLEAN_SHUTDOWN).touch()
    for number, (second, word) in enumerate([(5, "missing"), (0, "expected at least"), (1, "expected at least")]):
        directory = tmp_path / f"t-{number}"
        writer = LogWriter(directory)
        writer.append(build_batch([Record(b"a", b"b", 1)] * 2, partition_leader_epoch=0))
        writer.segments[0].log += build_batch([Record(b"a", b"b", 1)], base_offset=second, partition_leader_epoch=0)
        writer.end = max(second + 1, 2)
        writer.close()
        found = report_of(directory).errors
        assert any(word in one.what and one.offset == second for one in found), (second, found)


def test_gaps_are_allowed_where_compaction_is_known(tmp_path):
    writer = LogWriter(tmp_path / "t-0")
    for base in (0, 7, 20):
        writer.append(build_batch([Record(b"a", b"b", 1)], base_offset=base, partition_leader_epoch=0))
        if base == 7:
            writer.roll()
    writer.close()
    (tmp_path / CLEAN_SHUTDOWN).touch()
    assert len(errors_of(tmp_path)) == 2
    assert not errors_of(tmp_path, gaps=["t"])
    write_offset_checkpoint(tmp_path / "cleaner-offset-checkpoint", {("t", 0): 3})
    report = report_of(tmp_path)
    assert not report.errors and report.logs["t", 0].gaps_end == 20
    for limit, missing in ((0, 2), (6, 2), (7, 1), (19, 1), (20, 0)):
        write_gap_limit(tmp_path / "t-0", limit)
        found = errors_of(tmp_path)
        assert len(found) == missing, (limit, found)
        assert all("are missing" in one.what for one in found)
    (tmp_path / "t-0" / GAPS_CHECKPOINT).write_text("0\n1\n")
    assert [one.file for one in errors_of(tmp_path)] == [f"{tmp_path}/t-0/{GAPS_CHECKPOINT}"]


def test_an_internal_topic_may_have_gaps_anywhere_in_a_directory_of_kafka_alone(tmp_path):
    writer = LogWriter(tmp_path / "__consumer_offsets-0")
    for base in (0, 7):
        writer.append(build_batch([Record(b"a", b"b", 1)], base_offset=base, partition_leader_epoch=0))
    writer.close()
    (tmp_path / CLEAN_SHUTDOWN).touch()
    assert not errors_of(tmp_path)
    (tmp_path / "odradek-metadata.db").touch()
    assert len(errors_of(tmp_path)) == 1


def test_a_missing_segment_is_found(log_dir):
    path, writer = log_dir
    for kind in (".log", ".index", ".timeindex"):
        log_file(writer, 1, kind).unlink()
    found = errors_of(path)
    assert [one.offset for one in found if "missing before" in one.what] == [writer.segments[1].base_offset]


def test_epochs_that_go_back_and_a_checkpoint_that_lies(log_dir):
    path, writer = log_dir
    checkpoint = path / "t-0" / "leader-epoch-checkpoint"
    true = list(writer.epochs)
    write_leader_epochs(checkpoint, true[:1] + true[2:])
    assert [one.offset for one in errors_of(path)] == [true[1][1]]
    write_leader_epochs(checkpoint, [true[0], (1, true[1][1] + 3), true[2]])
    assert "starts at" in errors_of(path)[0].what
    write_leader_epochs(checkpoint, [*true, (9, writer.end + 5)])
    assert "after the log end offset" in errors_of(path)[0].what
    write_leader_epochs(checkpoint, true)
    base, _, position, _ = writer.segments[2].positions[-2]
    patch(log_file(writer, 2), position + 12, struct.pack(">i", 0))
    assert any("older leader epoch" in one.what and one.offset == base for one in errors_of(path))


def test_records_that_are_not_as_many_as_stated(log_dir):
    path, writer = log_dir
    base, last, position, _ = next(one for one in writer.segments[0].positions if one[1] > one[0])
    log = log_file(writer)
    end = position + 12 + int.from_bytes(log.read_bytes()[position + 8 : position + 12], "big")
    batch = bytearray(log.read_bytes()[position:end])
    batch[57:61] = struct.pack(">i", last - base)
    patch(log, position, fixed_crc(batch))
    (finding,) = errors_of(path)
    assert (finding.offset, finding.position) == (base, position) and f"({last - base + 1} found)" in finding.what
    batch[57:61] = struct.pack(">i", last - base + 2)
    patch(log, position, fixed_crc(batch))
    (finding,) = errors_of(path)
    assert "impossible record count" in finding.what


def test_compressed_rubbish_is_found_when_batches_are_opened(tmp_path):
    writer = fill(tmp_path / "t-0", codec=4)
    (tmp_path / CLEAN_SHUTDOWN).touch()
    base, _, position, _ = writer.segments[0].positions[2]
    log = log_file(writer)
    end = position + 12 + int.from_bytes(log.read_bytes()[position + 8 : position + 12], "big")
    batch = bytearray(log.read_bytes()[position:end])
    batch[-8:] = b"\xaa" * 8
    patch(log, position, fixed_crc(batch))
    assert not errors_of(tmp_path)
    (finding,) = errors_of(tmp_path, deep=True)
    assert (finding.offset, finding.position) == (base, position)


# -- indexes and the rest --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "entry", "word"),
    [
        (".index", struct.pack(">ii", 3, 77), "does not point at a batch"),
        (".timeindex", struct.pack(">qi", 9, 2), "largest"),
    ],
)
def test_an_index_that_lies_is_found(log_dir, kind, entry, word):
    path, writer = log_dir
    index = log_file(writer, 0, kind)
    patch(index, 0, entry)
    assert any(one.file == str(index) and word in one.what and one.position == 0 for one in errors_of(path))
    unclean(path, writer.segments[1].base_offset)
    assert any(one.file == str(index) for one in errors_of(path)), "the segment lies before the recovery point"


def test_entries_behind_the_log_and_out_of_order(log_dir):
    path, writer = log_dir
    index = log_file(writer, 0, ".index")
    with open(index, "ab") as file:
        file.write(struct.pack(">ii", 2**30, 2**30))
    assert ["does not point at a batch" in one.what for one in errors_of(path)] == [True]
    with open(index, "ab") as file:
        file.write(struct.pack(">ii", 1, 1))
    assert any("out of order" in one.what for one in errors_of(path))
    with open(index, "ab") as file:
        file.write(b"abc")
    assert any("multiple of 8" in one.what for one in errors_of(path))
    index.unlink()
    assert ["missing" in one.what for one in errors_of(path)] == [True]


def test_room_kept_behind_the_last_index_is_not_an_entry(log_dir):
    path, writer = log_dir
    unclean(path, 0)
    for kind in (".index", ".timeindex"):
        index = log_file(writer, -1, kind)
        os.truncate(index, index.stat().st_size + 12 * 1000)
    assert not report_of(path).all_findings


def test_checkpoints_must_lie_within_their_logs(log_dir):
    path, writer = log_dir
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"):
        before = (path / name).read_bytes() if (path / name).exists() else None
        write_offset_checkpoint(path / name, {("t", 0): writer.end + 1})
        assert any(one.file == str(path / name) and one.offset == writer.end + 1 for one in errors_of(path)), name
        (path / name).write_text("0\n1\nt 0 x\n")
        assert any("'x' is not a number" in one.what for one in errors_of(path)), name
        (path / name).unlink() if before is None else (path / name).write_bytes(before)
    assert not errors_of(path)


def test_snapshots_and_leftovers(log_dir):
    path, _ = log_dir
    directory = path / "t-0"
    for name in ("00000000000000000000.log.deleted", "00000000000000000000.log.swap", "rubbish"):
        (directory / name).write_bytes(b"x")
    (path / "t-1.0123456789abcdef0123456789abcdef-delete").mkdir()
    report = report_of(path)
    assert not report.errors and len(report.all_findings) == 4
    patch(next(directory.glob("*.snapshot")), 3, b"\x55")
    (finding,) = errors_of(path)
    assert finding.file.endswith(".snapshot") and "CRC" in finding.what


def test_topic_ids_of_one_topic_must_agree(log_dir):
    path, _ = log_dir
    fill(path / "t-1")
    (path / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABA")
    (path / "t-1" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAABBBA")
    assert ["differs" in one.what for one in errors_of(path)] == [True]
    (path / "t-1" / "partition.metadata").write_text("version: 9\n")
    assert ["partition.metadata" in one.file for one in errors_of(path)] == [True]


def test_a_lock_makes_it_a_directory_in_use(log_dir):
    path, _ = log_dir
    (path / LOCK).touch()
    assert not list_directory(path).locked
    with open(path / LOCK, "r+b") as lock:
        fcntl.fcntl(lock.fileno(), 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        found = list_directory(path)
    assert found.locked and not found.clean


def test_one_partition_alone_and_no_directory(log_dir, tmp_path):
    path, writer = log_dir
    report = report_of(path / "t-0")
    assert list(report.logs) == [("t", 0)] and report.logs["t", 0].log_end_offset == writer.end
    with pytest.raises(NotALogDirectoryError):
        list_directory(log_file(writer))
