"""Small files: names, checkpoints, snapshots, identities, the lock. Round trips, Kafka's own bytes, and damage."""

import os
import subprocess
import sys
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage import checkpoints, file_names, indexes, log_directory, producer_snapshot
from odradek.storage.atomic_file import replace_file
from odradek.storage.file_names import DELETE, FUTURE, STRAY, ForeignNameError, PartitionDirectory
from odradek.storage.log_directory import MetaProperties
from odradek.storage.producer_snapshot import ProducerBatch, ProducerState
from tests.storage.log_files import encode_snapshot, read_offset_index, read_time_index

topics = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)
i64 = st.integers(-1, (1 << 63) - 1)
i32 = st.integers(-1, (1 << 31) - 1)


@given(topics, st.integers(0, (1 << 31) - 1), st.sampled_from([DELETE, STRAY, FUTURE]))
def test_directory_names_say_the_partition(topic, partition, fate):
    plain = file_names.partition_directory_name(topic, partition)
    if not topic.endswith(("-delete", "-future", "-stray")):
        assert file_names.parse_directory_name(plain) == PartitionDirectory(topic, partition)
    marked = file_names.marked_directory_name(topic, partition, fate)
    found = file_names.parse_directory_name(marked)
    assert (found.partition, found.fate) == (partition, fate)
    assert topic.startswith(found.topic)
    if fate == FUTURE:
        assert found.topic == topic
    else:
        assert len(marked) <= 255


@pytest.mark.parametrize(
    "name", ["topic", "-1", "topic-", "topic-x", "a-0-delete", "a.b-delete", "-3-stray", "a-1.x-gone"]
)
def test_foreign_names_are_refused(name):
    with pytest.raises(ForeignNameError):
        file_names.parse_directory_name(name)


def test_segment_file_names():
    assert file_names.segment_file_name(42, ".timeindex") == "00000000000000000042.timeindex"
    found = file_names.parse_segment_file_name("00000000000000000042.log.swap")
    assert (found.base_offset, found.kind, found.state) == (42, ".log", ".swap")
    for name in ("42.log", "00000000000000000042.log.tmp", "00000000000000000042.logs", "x0000000000000000042.log"):
        assert file_names.parse_segment_file_name(name) is None


def test_offset_checkpoints_round_trip_in_kafkas_form(tmp_path):
    path = tmp_path / file_names.RECOVERY_POINT_CHECKPOINT
    assert checkpoints.read_offset_checkpoint(path) == {}
    offsets = {("a", 0): 5, ("a.b-c", 17): 1 << 40}
    checkpoints.write_offset_checkpoint(path, offsets)
    assert path.read_bytes() == b"0\n2\na 0 5\na.b-c 17 1099511627776\n"
    assert checkpoints.read_offset_checkpoint(path) == offsets
    path.write_bytes(b"")
    assert checkpoints.read_offset_checkpoint(path) == {}


def test_leader_epochs_round_trip(tmp_path):
    path = tmp_path / "leader-epoch-checkpoint"
    checkpoints.write_leader_epochs(path, [(0, 0), (5, 100)])
    assert path.read_bytes() == b"0\n2\n0 0\n5 100\n"
    assert checkpoints.read_leader_epochs(path) == [(0, 0), (5, 100)]


@pytest.mark.parametrize(
    "content",
    [b"1\n0\n", b"0\n2\n0 0\n", b"0\n1\n0\n", b"0\n1\n0 x\n", b"0\nx\n", b"0\n1\n1 2 3\n", b"\xff\xfe\n", b"1\n"],
)
def test_corrupt_checkpoints_are_named(tmp_path, content):
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(content)
    with pytest.raises(checkpoints.CorruptCheckpointError, match="leader-epoch"):
        checkpoints.read_leader_epochs(path)


states = st.builds(
    ProducerState,
    producer_id=st.integers(0, 1 << 60),
    producer_epoch=st.integers(0, 32767),
    coordinator_epoch=i32,
    last_timestamp=i64,
    current_txn_first_offset=i64,
    batches=st.just(())
    | st.tuples(st.builds(ProducerBatch, i32, st.integers(0, 1 << 60), st.integers(0, 1000), st.just(0))),
)


@given(st.lists(states, max_size=5))
def test_snapshots_round_trip(producers):
    data = encode_snapshot(producers)
    assert len(data) == 10 + 46 * len(producers)
    found = producer_snapshot.decode_snapshot(data)
    for before, after in zip(producers, found, strict=True):
        assert after.batches == tuple(
            ProducerBatch(b.last_sequence, b.last_offset, b.offset_delta, before.last_timestamp) for b in before.batches
        )
        assert after.__dict__ | {"batches": ()} == before.__dict__ | {"batches": ()}


def test_any_damage_to_a_snapshot_is_noticed():
    data = encode_snapshot([ProducerState(5, 1, 2, 3, 4, (ProducerBatch(9, 8, 7, 3),))])
    for at in range(len(data)):
        with pytest.raises(producer_snapshot.CorruptSnapshotError):
            producer_snapshot.decode_snapshot(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(producer_snapshot.CorruptSnapshotError):
            producer_snapshot.decode_snapshot(data[:at])


def test_sequences_wrap():
    assert ProducerBatch(last_sequence=2, last_offset=10, offset_delta=5, timestamp=0).base_sequence == (1 << 31) - 3


def test_index_entries():
    aborted = indexes.AbortedTransaction(1, 2, 3, 4)
    assert len(bytes(aborted)) == 34
    assert indexes.read_txn_index(bytes(aborted) * 2) == [aborted, aborted]
    with pytest.raises(ValueError, match="version"):
        indexes.read_txn_index(b"\0\1" + bytes(aborted)[2:])
    assert read_offset_index(indexes.OFFSET_ENTRY.pack(5, 100), 1000) == [(1005, 100)]
    assert read_time_index(indexes.TIME_ENTRY.pack(77, 5), 1000) == [(77, 1005)]


def test_meta_properties_of_both_versions(tmp_path):
    assert log_directory.read_meta_properties(tmp_path) is None
    path = tmp_path / "meta.properties"
    path.write_text(
        "#\n#Sat Nov 21 07:31:22 UTC 2026\nnode.id=1\ndirectory.id=DYJrYp31VJgPrIIMiohmeQ\nversion=1\n"
        "cluster.id=MkU3OEVBNTcwNTJENDM2Qk\n"
    )
    found = log_directory.read_meta_properties(tmp_path)
    assert (found.version, found.node_id, found.cluster_id) == (1, 1, "MkU3OEVBNTcwNTJENDM2Qk")
    assert log_directory.encode_uuid(found.directory_id) == "DYJrYp31VJgPrIIMiohmeQ"
    for properties in (
        found,
        MetaProperties(0, 3, None),
        MetaProperties(0, None, "c"),
        MetaProperties(1, 2, "c", uuid.uuid4()),
    ):
        log_directory.write_meta_properties(tmp_path, properties)
        assert log_directory.read_meta_properties(tmp_path) == properties


@pytest.mark.parametrize(
    "content",
    [
        "version=1\n",
        "version=x\n",
        "version=2\nnode.id=1\n",
        "version=1\nnode.id=a\n",
        "version=1\nnode.id=1\ndirectory.id=abc\n",
    ],
)
def test_bad_meta_properties_are_named(tmp_path, content):
    (tmp_path / "meta.properties").write_text(content)
    with pytest.raises(log_directory.CorruptMetadataError, match=r"meta\.properties"):
        log_directory.read_meta_properties(tmp_path)


def test_the_clean_shutdown_mark_is_taken_once(tmp_path):
    assert log_directory.take_clean_shutdown(tmp_path) == (False, None)
    log_directory.write_clean_shutdown(tmp_path, 11)
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":11}'
    assert log_directory.take_clean_shutdown(tmp_path) == (True, 11)
    assert log_directory.take_clean_shutdown(tmp_path) == (False, None)
    for old in (b"", b"{}", b"[]"):
        (tmp_path / ".kafka_cleanshutdown").write_bytes(old)
        assert log_directory.take_clean_shutdown(tmp_path) == (True, None)


def test_partition_metadata_in_kafkas_form(tmp_path):
    assert log_directory.read_partition_metadata(tmp_path) is None
    topic_id = log_directory.decode_uuid("XH7Go-KhR12frHx_XMPpEQ")
    log_directory.write_partition_metadata(tmp_path, topic_id)
    assert (tmp_path / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: XH7Go-KhR12frHx_XMPpEQ"
    assert log_directory.read_partition_metadata(tmp_path) == topic_id
    for bad in ("version: 1\ntopic_id: XH7Go-KhR12frHx_XMPpEQ", "version: 0", "version: 0\ntopic_id: short"):
        (tmp_path / "partition.metadata").write_text(bad)
        with pytest.raises(log_directory.CorruptMetadataError, match=r"partition\.metadata"):
            log_directory.read_partition_metadata(tmp_path)


def test_the_lock_outlives_its_taker_and_keeps_java_out(tmp_path):
    lock = log_directory.lock_directory(tmp_path)
    with pytest.raises(log_directory.DirectoryInUseError, match="another broker"):
        log_directory.lock_directory(tmp_path)
    posix = f"import fcntl; fcntl.lockf(open({str(tmp_path / '.lock')!r}, 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    assert b"BlockingIOError" in subprocess.run([sys.executable, "-c", posix], capture_output=True, check=False).stderr
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock])
    os.close(lock)
    with pytest.raises(log_directory.DirectoryInUseError):
        log_directory.lock_directory(tmp_path)
    child.communicate(b"\n")
    os.close(log_directory.lock_directory(tmp_path))


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "file"
    replace_file(path, b"one")
    (tmp_path / "file.tmp").write_bytes(b"left by a crash, and longer")
    replace_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
