"""`odradek log dump`: every kind of file, every format, Kafka's internal topics."""

import json
import subprocess
import sys
import uuid

import pytest

from odradek import codecs
from odradek.protocol import encode
from odradek.protocol.schemas import group_records, transaction_records
from odradek.protocol.schemas.consumer_protocol import Subscription
from odradek.storage.batch import Record, build_batch, build_end_marker
from odradek.storage.checkpoints import write_gap_limit, write_offset_checkpoint
from odradek.storage.log_directory import MetaProperties, encode_uuid, write_meta_properties, write_partition_metadata
from tests.adopt import kraft_writer
from tests.storage.log_writer import LogWriter
from tests.storage.old_writer import message, wrapper

ID = uuid.UUID(int=4711)


def odradek(*arguments):
    command = [sys.executable, "-m", "odradek.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def dump(*arguments, code=0):
    done = odradek("log", "dump", "--json", *arguments)
    assert done.returncode == code and not done.stderr, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def of_type(entries, kind):
    return [
        {name: value for name, value in entry.items() if name not in ("file", "type")}
        for entry in entries
        if entry["type"] == kind
    ]


@pytest.fixture
def log_dir(tmp_path):
    writer = LogWriter(tmp_path / "t-0", interval=0)
    records = [Record(b"k", b"v%d" % number, 100 + number, ((b"h", b"1"), (b"n", None))) for number in range(3)]
    for codec in range(5):
        writer.append(build_batch(records, base_offset=writer.end, codec=codec, partition_leader_epoch=codec // 2))
    writer.append(
        build_batch([Record(None, b"\xff\x00", 200)], base_offset=15, producer_id=9, producer_epoch=1, base_sequence=7,
                    attributes=0x10, partition_leader_epoch=2)
    )  # fmt: skip
    marker = {"producer_id": 9, "producer_epoch": 1, "coordinator_epoch": 33, "timestamp": 201}
    writer.append(build_end_marker(0, base_offset=16, partition_leader_epoch=2, **marker))
    writer.close()
    write_partition_metadata(writer.directory, ID)
    write_gap_limit(writer.directory, 12)
    write_offset_checkpoint(tmp_path / "recovery-point-offset-checkpoint", {("t", 0): 17})
    write_meta_properties(tmp_path, MetaProperties(1, 4, "MkU3OEVBNTcwNTJENDM2Qk", ID))
    return tmp_path, writer


def test_batches_and_records_of_every_codec_are_dumped(log_dir):
    path, _ = log_dir
    entries = dump("--deep", path / "t-0" / "00000000000000000000.log")
    batches, records = of_type(entries, "batch"), of_type(entries, "record")
    assert [entry["codec"] for entry in batches] == [*codecs.NAMES, "none", "none"]
    assert [entry["base_offset"] for entry in batches] == [0, 3, 6, 9, 12, 15, 16]
    assert [entry["leader_epoch"] for entry in batches] == [0, 0, 1, 1, 2, 2, 2]
    assert [entry["offset"] for entry in records] == list(range(17))
    headers = [{"key": "h", "value": "1"}, {"key": "n", "value": None}]
    assert records[4] == {"offset": 4, "timestamp": 101, "key": "k", "value": "v1", "headers": headers}
    assert records[15] == {"offset": 15, "timestamp": 200, "key": None, "value_base64": "/wA="}
    assert records[16] == {"offset": 16, "timestamp": 201, "control": "abort", "coordinator_epoch": 33}
    assert (batches[5]["producer_id"], batches[5]["base_sequence"], batches[5]["transactional"]) == (9, 7, True)
    assert batches[6]["control"] and not of_type(dump(path / "t-0" / "00000000000000000000.log"), "record")


def test_only_a_range_of_offsets_is_dumped(log_dir):
    path, _ = log_dir
    entries = dump("--deep", "--from-offset", 4, "--to-offset", 7, path / "t-0" / "00000000000000000000.log")
    assert [entry["base_offset"] for entry in of_type(entries, "batch")] == [3, 6]
    assert [entry["offset"] for entry in of_type(entries, "record")] == [4, 5, 6]


def test_a_directory_is_dumped_with_all_its_files(log_dir):
    path, writer = log_dir
    entries = dump(path)
    segment = writer.segments[0]
    assert [(entry["offset"], entry["position"]) for entry in of_type(entries, "index_entry")] == segment.index
    assert [(entry["timestamp"], entry["offset"]) for entry in of_type(entries, "time_index_entry")] == segment.times
    aborted = {"producer_id": 9, "first_offset": 15, "last_offset": 16, "last_stable_offset": 17}
    assert of_type(entries, "aborted_transaction") == [aborted]
    (producer,) = of_type(entries, "producer")
    assert (producer["producer_id"], producer["last_sequence"], producer["coordinator_epoch"]) == (9, 7, 33)
    assert [
        (entry["leader_epoch"], entry["start_offset"]) for entry in of_type(entries, "leader_epoch")
    ] == writer.epochs
    assert of_type(entries, "offset") == [{"topic": "t", "partition": 0, "offset": 17}]
    assert of_type(entries, "partition_metadata") == [{"topic_id": encode_uuid(ID)}]
    assert of_type(entries, "gap_limit") == [{"offset": 12}]
    assert of_type(entries, "meta_properties")[0]["cluster_id"] == "MkU3OEVBNTcwNTJENDM2Qk"


def test_text_output_has_a_line_for_each_entry(log_dir):
    path, _ = log_dir
    done = odradek("log", "dump", "--deep", path / "t-0")
    assert done.returncode == 0
    assert "| offset: 4 timestamp: 101 key: k value: v1 headers: " in done.stdout
    assert "producer_id: 9 first_offset: 15 last_offset: 16 last_stable_offset: 17" in done.stdout


def test_messages_of_old_formats_are_dumped(tmp_path):
    (tmp_path / "t-0").mkdir()
    log = tmp_path / "t-0" / "00000000000000000000.log"
    contents = [(b"a", b"1"), (None, b"2")]
    log.write_bytes(
        message(0, b"x", magic=0)
        + wrapper(1, contents, codec=1, magic=0)
        + message(3, b"y", magic=1, timestamp=8)
        + wrapper(4, contents, codec=2, magic=1, timestamps=[5, 6])
    )
    entries = dump("--deep", log)
    assert [(entry["magic"], entry["last_offset"], entry["codec"]) for entry in of_type(entries, "message")] == [
        (0, 0, "none"), (0, 2, "gzip"), (1, 3, "none"), (1, 5, "snappy"),
    ]  # fmt: skip
    records = of_type(entries, "record")
    assert [(entry["offset"], entry["timestamp"], entry["value"]) for entry in records] == [
        (0, -1, "x"), (1, -1, "1"), (2, -1, "2"), (3, 8, "y"), (4, 5, "1"), (5, 6, "2"),
    ]  # fmt: skip


def test_damage_is_shown_with_its_position(log_dir):
    path, writer = log_dir
    log = path / "t-0" / "00000000000000000000.log"
    position = writer.segments[0].positions[1][2]
    with open(log, "r+b") as file:
        file.seek(position + 70)
        file.write(b"\xff\xff")
    entries = dump(log, code=1)
    assert [entry["position"] for entry in of_type(entries, "damage")] == [position]
    assert len(of_type(entries, "batch")) == 6
    with open(log, "r+b") as file:
        file.truncate(position + 30)
    assert [entry["position"] for entry in of_type(dump(log, code=1), "damage")] == [position]
    snapshot = next((path / "t-0").glob("*.snapshot"))
    snapshot.write_bytes(b"\0\1rubbish and more")
    assert "CRC" in of_type(dump(snapshot, code=1), "damage")[0]["what"]


def test_kafkas_internal_topics_are_decoded(tmp_path):
    subscription = b"\0\0" + encode(Subscription(topics=["t"], user_data=None), 0)
    value = group_records.GROUP_METADATA.value(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m",
        members=[
            group_records.GROUP_METADATA.value.MemberMetadata(
                member_id="m",
                client_id="c",
                client_host="/h",
                session_timeout=9,
                subscription=subscription,
                assignment=b"",
            )
        ],
    )
    offset = group_records.OFFSET_COMMIT.value(offset=42, leader_epoch=1, metadata="x", commit_timestamp=5)
    records = [
        Record(*group_records.record(group_records.GROUP_METADATA, value, group="g"), 1),
        Record(*group_records.record(group_records.OFFSET_COMMIT, offset, group="g", topic="t", partition=2), 1),
        Record(*group_records.record(group_records.OFFSET_COMMIT, None, group="g", topic="t", partition=3), 1),
        Record(b"\0\x63rubbish", b"xx", 1),
    ]
    transaction = transaction_records.Value(
        producer_id=8, producer_epoch=2, transaction_timeout_ms=7, transaction_status=1,
        transaction_partitions=[transaction_records.Value.PartitionsSchema(topic="t", partition_ids=[0, 1])],
        transaction_last_update_timestamp_ms=1, transaction_start_timestamp_ms=2,
    )  # fmt: skip
    key = b"\0\0" + encode(transaction_records.Key(transactional_id="T"), 0)
    for name, content in (
        ("__consumer_offsets-7", records),
        ("__transaction_state-1", [Record(key, b"\0\1" + encode(transaction, 1), 1), Record(key, None, 1)]),
    ):
        writer = LogWriter(tmp_path / name)
        writer.append(build_batch(content, partition_leader_epoch=0))
        writer.close()
    kraft_writer.write_log(tmp_path / "__cluster_metadata-0", [kraft_writer.topic("t", ID), kraft_writer.bare(20)])
    group, committed, tombstone, rubbish = of_type(dump("--deep", tmp_path / "__consumer_offsets-7"), "record")
    assert group["key"] == {"group": "g"} and group["value"]["generation"] == 3
    assert group["value"]["members"][0]["subscription"]["topics"] == ["t"]
    assert committed["key"] == {"group": "g", "topic": "t", "partition": 2} and committed["value"]["offset"] == 42
    assert tombstone["value"] is None and "kind 99" in rubbish["not_decoded"]
    live, dead = of_type(dump("--deep", tmp_path / "__transaction_state-1"), "record")
    assert live["value"]["transaction_status"] == "Ongoing" and live["key"] == {"transactional_id": "T"}
    assert (
        live["value"]["transaction_partitions"] == [{"topic": "t", "partition_ids": [0, 1]}] and dead["value"] is None
    )
    topic, empty = of_type(dump("--deep", tmp_path / "__cluster_metadata-0"), "record")
    assert topic["value"] == {"name": "t", "topic_id": encode_uuid(ID)} and empty["kind"] == "NoOpRecord"
    elsewhere = tmp_path / "00000000000000000000.log"
    elsewhere.write_bytes((tmp_path / "__consumer_offsets-7" / elsewhere.name).read_bytes())
    assert of_type(dump("--offsets", elsewhere), "record")[1]["value"]["offset"] == 42


def test_errors_are_one_line(tmp_path):
    (tmp_path / "file.txt").touch()
    for path, word in (
        (tmp_path / "file.txt", "unknown kind"),
        (tmp_path / "none.txt", "none.txt: No such file"),
        (tmp_path / "00000000000000000000.log", "No such file"),
    ):
        done = odradek("log", "dump", path)
        assert done.returncode == 1, done
        assert done.stderr.startswith("odradek: ") and done.stderr.count("\n") == 1 and word in done.stderr
