"""A view of segments: floors, generations, and descriptors that are bounded but never closed under a sender."""

import os
import resource
import subprocess
import sys

import pytest

from odradek._ext.storage.segment_list import SegmentCache, SegmentList, descriptor_share
from odradek._ext.testing import storage_probe


def make(directory, bases, txn=()):
    directory.mkdir(exist_ok=True)
    for base in bases:
        for kind in (".log", ".index", ".timeindex"):
            (directory / f"{base:020d}{kind}").write_bytes(b"%d" % base)
    for base in txn:
        (directory / f"{base:020d}.txnindex").write_bytes(b"")
    return directory


def is_open(descriptor, path):
    """Whether the descriptor belongs to the file: a thread of an earlier test may have reused its number."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def test_floor_and_following(tmp_path):
    segments = SegmentList(make(tmp_path / "t-0", [10, 25, 3_000_000_000]), SegmentCache(8))
    assert storage_probe.floor_of(segments, 5) is None
    segments.see(1)
    assert segments.base_offsets() == [10, 25, 3_000_000_000]
    assert [storage_probe.floor_of(segments, offset) for offset in (0, 10, 24, 25, 26, 1 << 40)] == [
        10,
        10,
        10,
        25,
        25,
        3_000_000_000,
    ]
    assert [storage_probe.following_of(segments, base) for base in (10, 25, 3_000_000_000)] == [25, 3_000_000_000, None]


def test_a_new_generation_sees_what_changed(tmp_path):
    segments = SegmentList(make(tmp_path / "t-0", [0]), SegmentCache(8))
    segments.see(1)
    old = segments.open(0)
    (tmp_path / "t-0" / "swap").write_bytes(b"compacted")
    (tmp_path / "t-0" / "swap").rename(tmp_path / "t-0" / f"{0:020d}.log")
    make(tmp_path / "t-0", [7])
    segments.see(1)
    assert segments.base_offsets() == [0]
    assert segments.open(0) is old
    segments.see(2)
    assert segments.base_offsets() == [0, 7]
    assert os.pread(segments.open(0).log_fd, 20, 0) == b"compacted"
    assert os.pread(old.log_fd, 20, 0) == b"0"
    with pytest.raises(ValueError, match="dropped from its list"):
        old.index_descriptor()


def test_descriptors_open_when_first_used(tmp_path):
    segments = SegmentList(make(tmp_path / "t-0", [0, 9], txn=[9]), SegmentCache(8))
    segments.see(1)
    first, second = segments.open(0), segments.open(9)
    assert len({first.log_fd, first.index_descriptor(), first.time_index_descriptor()}) == 3
    assert storage_probe.txn_index_descriptor(first) is None
    assert storage_probe.txn_index_descriptor(second) is not None
    (tmp_path / "t-0" / f"{0:020d}.txnindex").write_bytes(b"")
    assert storage_probe.txn_index_descriptor(first) is not None


def test_the_cache_is_bounded_and_gives_the_used_a_second_chance(tmp_path):
    cache = SegmentCache(3)
    segments = SegmentList(make(tmp_path / "t-0", range(10)), cache)
    segments.see(1)
    kept = [segments.open(base) for base in range(3)]
    descriptors = [each.log_fd for each in kept]
    assert segments.open(0) is kept[0]
    segments.open(3)
    assert len(cache) == 3
    assert segments.open(0) is kept[0]
    del kept[1:]
    assert is_open(descriptors[0], tmp_path / "t-0" / f"{0:020d}.log")
    assert not is_open(descriptors[1], tmp_path / "t-0" / f"{1:020d}.log")


def test_a_sender_keeps_its_descriptor(tmp_path):
    cache = SegmentCache(1)
    segments = SegmentList(make(tmp_path / "t-0", range(3)), cache)
    segments.see(1)
    sending = segments.open(0)
    descriptor = sending.log_fd
    segments.open(1)
    segments.open(2)
    log = tmp_path / "t-0" / f"{0:020d}.log"
    assert is_open(descriptor, log)
    del sending
    assert not is_open(descriptor, log)
    segments.close()
    assert len(cache) == 0


def test_a_missing_segment_is_an_os_error(tmp_path):
    segments = SegmentList(make(tmp_path / "t-0", [0]), SegmentCache(4))
    segments.see(1)
    (tmp_path / "t-0" / f"{0:020d}.log").unlink()
    with pytest.raises(FileNotFoundError):
        segments.open(0)


def test_the_share_follows_the_limit():
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert descriptor_share(0.5) == max(soft // 8, 1)


def run_with_few_descriptors(tmp_path, body):
    """What the program prints that may open 60 descriptors and has `segments` of 200, in `cache`."""
    make(tmp_path / "t-0", range(200))
    program = f"""
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
from odradek._ext.storage.segment_list import SegmentCache, SegmentList
cache = SegmentCache(1000)
segments = SegmentList({str(tmp_path / "t-0")!r}, cache)
segments.see(1)
{body}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_too_many_open_files_only_evicts(tmp_path):
    printed = run_with_few_descriptors(
        tmp_path,
        """
for base in range(200):
    segment = segments.open(base)
    segment.index_descriptor()
    assert os.pread(segment.log_fd, 9, 0) == str(base).encode()
print(len(cache))
""",
    )
    assert 1 <= int(printed) < 60


def test_a_segment_stays_usable_when_opening_its_files_evicts_others(tmp_path):
    printed = run_with_few_descriptors(
        tmp_path,
        """
for base in (0, 1, 0, 1):                       # the cache keeps what was used twice longer
    segments.open(base)
segment = segments.open(2)
try:
    while True:
        os.open("/dev/null", os.O_RDONLY)
except OSError:
    pass
segment.index_descriptor()
segment.time_index_descriptor()
print(segments.open(2) is segment, len(cache))
""",
    )
    assert printed.split() == ["True", "1"]
