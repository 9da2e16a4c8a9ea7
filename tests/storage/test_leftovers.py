"""Opening a log completes interrupted deletions, cleanings and swaps, after a crash at any point."""

import errno
import shutil

import pytest

from odradek._ext.storage.segments import load_log
from tests.storage.log_writer import LogWriter
from tests.storage.test_segments import INTERVAL, assert_matches, contents, fill


@pytest.fixture
def writer(tmp_path):
    writer = fill(LogWriter(tmp_path / "t-0", INTERVAL), 45, seed=11)
    writer.close()
    assert len(writer.segments) >= 4
    return writer


def load(directory, **more):
    return load_log(directory, clean=True, index_interval_bytes=INTERVAL, **more)


def test_deleted_and_cleaned_files_go(writer):
    sound = contents(writer.directory)
    for suffix in (".deleted", ".cleaned"):
        for kind in (".log", ".index", ".timeindex", ".txnindex"):
            (writer.directory / f"{5:020d}{kind}{suffix}").write_bytes(b"junk")
    (writer.directory / f"{3:020d}.snapshot.deleted").write_bytes(b"junk")
    (writer.directory / "notes.deleted").write_bytes(b"not ours")
    loaded = load(writer.directory)
    assert_matches(loaded, writer)
    assert len(loaded.events) == 9
    assert contents(writer.directory) == sound | {"notes.deleted": b"not ours"}


def test_an_index_without_its_log_goes(writer):
    path = writer.directory / f"{1:020d}.timeindex"
    path.write_bytes(bytes(12))
    loaded = load(writer.directory)
    assert [event.file for event in loaded.events] == [path.name]
    assert not path.exists()


def swapped(writer, tmp_path):
    """The first two segments as compaction would leave them: one, in .swap files."""
    first, second = writer.segments[:2]
    merged = LogWriter(tmp_path / "merged", INTERVAL)
    for log in (first.log, second.log):
        at = 0
        while at < len(log):
            size = int.from_bytes(log[at + 8 : at + 12], "big") + 12
            merged.append(log[at : at + size])
            at += size
    merged.segments[-1].add_time()
    segment = merged.segments[0]
    files = {".log": segment.log, ".index": segment.index_bytes(), ".timeindex": segment.time_bytes()}
    if segment.txns:
        files[".txnindex"] = segment.txn_bytes()
    return files


def test_a_swap_is_completed_at_any_crash(writer, tmp_path):
    files = swapped(writer, tmp_path)
    before = contents(writer.directory)
    gone = {
        f"{segment.base_offset:020d}{kind}"
        for segment in writer.segments[:2]
        for kind in (".log", ".index", ".timeindex", ".txnindex")
    }
    expected = {name: data for name, data in before.items() if name not in gone}
    expected |= {f"{0:020d}{kind}": data for kind, data in files.items()}
    expected.pop(f"{writer.segments[1].base_offset:020d}.snapshot", None)  # of a segment that is no more
    for kind, data in files.items():
        (writer.directory / f"{0:020d}{kind}.swap").write_bytes(data)
    steps = 0
    while True:
        directory = tmp_path / f"after-{steps}" / "t-0"
        shutil.copytree(writer.directory, directory)
        try:
            load(directory, changes_allowed=steps)
        except OSError as error:
            assert error.errno == errno.ECANCELED
            loaded = load(directory)
            assert loaded.log_end_offset == writer.end
            assert contents(directory) == expected
            steps += 1
            continue
        assert contents(directory) == expected
        break
    assert steps >= 8


def test_a_swap_beside_its_cleaned_files_is_an_interrupted_split_and_goes(writer, tmp_path):
    sound = contents(writer.directory)
    files = swapped(writer, tmp_path)
    (writer.directory / f"{0:020d}.log.cleaned").write_bytes(b"half")
    for kind, data in files.items():
        (writer.directory / f"{4:020d}{kind}.swap").write_bytes(data)
    loaded = load(writer.directory)
    assert_matches(loaded, writer)
    assert contents(writer.directory) == sound
