"""Kafka's DumpLogSegments reads every segment, index and snapshot that the clients' records became, without complaint."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.clients.conftest import Cluster
from tests.clients.dump_log_segments import Dump, dump, files_of

pytestmark = [pytest.mark.xdist_group("clients"), pytest.mark.timeout(600), pytest.mark.java]

DEEP = ("--deep-iteration",)


@pytest.fixture(scope="module")
def logs(stopped_cluster: Cluster) -> tuple[dict[Path, Dump], list[str]]:
    """What the tool says of every `.log` file."""
    return dump(stopped_cluster.data_dir, files_of(stopped_cluster.data_dir, ".log"), *DEEP)


def test_every_segment_is_read_without_complaint(
    stopped_cluster: Cluster, logs: tuple[dict[Path, Dump], list[str]]
) -> None:
    dumps, complaints = logs
    assert not complaints
    files = files_of(stopped_cluster.data_dir, ".log")
    assert files and set(dumps) == set(files)
    for topic in stopped_cluster.codecs:
        assert any(file.parent.name.startswith(f"{topic}-") for file in files), topic


def test_batches_and_their_records_follow_one_another_from_each_segments_base_offset(
    stopped_cluster: Cluster, logs: tuple[dict[Path, Dump], list[str]]
) -> None:
    segments = Counter(file.parent.name for file in logs[0])
    assert max(segments.values()) >= 3, "no log has rolled: the test sees too little"
    next_offsets: dict[str, int] = {}
    for file, dumped in sorted(logs[0].items()):
        next_offset = next_offsets.get(file.parent.name, 0)
        assert int(file.stem) == next_offset, file
        for batch in dumped.batches:
            assert batch.base_offset == next_offset, (file, batch)
            assert batch.count == batch.last_offset - batch.base_offset + 1, (file, batch)
            assert batch.leader_epoch >= 0, (file, batch)
            next_offset = batch.last_offset + 1
        assert dumped.offsets == list(range(int(file.stem), next_offset)), file
        next_offsets[file.parent.name] = next_offset


def test_batches_stay_compressed_as_the_producer_sent_them(
    stopped_cluster: Cluster, logs: tuple[dict[Path, Dump], list[str]]
) -> None:
    codecs: dict[str, set[str]] = {}
    for file, dumped in logs[0].items():
        codecs.setdefault(file.parent.name.rpartition("-")[0], set()).update(batch.codec for batch in dumped.batches)
    for topic, codec in stopped_cluster.codecs.items():
        # these send a batch that would grow as it is, as do old clients: one of a few small records, where the client was
        # kept from running while it gathered them
        grown = ("corpus-confluent", "corpus-kcat", "corpus-kafka-python", "corpus-aiokafka", "corpus-franz-go", "old-")
        allowed = {codec, "none"} if topic.startswith(grown) else {codec}
        assert codec in codecs[topic] and codecs[topic] <= allowed, topic


def test_idempotent_producers_left_their_ids_in_batches_and_snapshots(
    stopped_cluster: Cluster, logs: tuple[dict[Path, Dump], list[str]]
) -> None:
    assert stopped_cluster.idempotent
    written: dict[str, set[int]] = {}
    for file, dumped in logs[0].items():
        written.setdefault(file.parent.name, set()).update(batch.producer_id for batch in dumped.batches)
    files = files_of(stopped_cluster.data_dir, ".snapshot")
    snapshots, complaints = dump(stopped_cluster.data_dir, files)
    assert not complaints
    assert set(snapshots) == set(files)
    newest = {file.parent.name: dumped for file, dumped in sorted(snapshots.items())}
    for partition, producer_ids in written.items():
        if partition.rpartition("-")[0] in stopped_cluster.idempotent and producer_ids:
            assert -1 not in producer_ids, partition
            text = "\n".join(newest[partition].lines)
            assert all(f"producerId: {producer_id} " in text for producer_id in producer_ids), partition


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_every_index_agrees_with_its_segment(stopped_cluster: Cluster, suffix: str) -> None:
    files = files_of(stopped_cluster.data_dir, suffix)
    assert len(files) >= len(files_of(stopped_cluster.data_dir, ".log"))
    dumps, complaints = dump(stopped_cluster.data_dir, files)
    assert not complaints
    assert set(dumps) == set(files)
    entries = sum(line.startswith(("offset: ", "timestamp: ")) for dumped in dumps.values() for line in dumped.lines)
    assert entries > 1000, "hardly an entry: the test sees too little"


def test_every_index_is_one_that_kafka_would_not_rebuild(stopped_cluster: Cluster) -> None:
    files = files_of(stopped_cluster.data_dir, "index")
    assert {file.suffix for file in files} >= {".index", ".timeindex"}
    dumps, complaints = dump(stopped_cluster.data_dir, files, "--index-sanity-check")
    assert not complaints
    for file in files:
        # a sound time index is not remarked upon
        if file.suffix == ".index":
            assert dumps[file].lines in ([f"{file} passed sanity check."], [f"{file} is empty."])


@pytest.mark.parametrize(
    ("suffix", "position", "options"),
    [(".log", -1, DEEP), (".log", 8, DEEP), (".index", 4, ()), (".timeindex", 11, ()), (".snapshot", 2, ())],
    ids=lambda value: str(value),
)
def test_the_tool_would_have_complained(
    stopped_cluster: Cluster, tmp_path: Path, suffix: str, position: int, options: tuple[str, ...]
) -> None:
    partition = max(stopped_cluster.data_dir.glob("burst-*-0"), key=lambda path: len(list(path.iterdir())))
    copy = shutil.copytree(partition, tmp_path / partition.name)
    (first, *_) = (file for file in files_of(tmp_path, suffix) if (tmp_path / file).stat().st_size > 0)
    with open(tmp_path / first, "r+b") as damaged:
        damaged.seek(position, os.SEEK_END if position < 0 else os.SEEK_SET)
        byte = damaged.read(1)[0]
        damaged.seek(-1, os.SEEK_CUR)
        damaged.write(bytes([byte ^ 1]))
    assert dump(tmp_path, [first], *options)[1], copy
