"""The loader: the start of a broker compares the metadata store with the directories on disk."""

import json
import uuid
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slots
from odradek._ext.shm.layout import ProcessKind
from odradek._ext.shm.slot import SlotState
from odradek.controller.topics import NewTopic
from odradek.metadata import znodes
from odradek.metadata.sqlite import SqliteStore
from odradek.processes import loader
from odradek.processes.context import ProcessContext
from odradek.processes.supervisor.status import loading_report, recovery_line, remaining_s
from odradek.storage.batch import Record, build_batch
from odradek.storage.checkpoints import write_offset_checkpoint
from odradek.storage.file_names import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from odradek.storage.log_directory import read_partition_metadata, write_partition_metadata
from tests.controller.mortal_cluster import Death, single_broker


@pytest.fixture
def cluster(tmp_path):
    with single_broker(tmp_path) as make:
        yield make()


def load(cluster, clean=True):
    """The broker is started again: its only loader runs; {topic: partitions online}."""
    cluster.store.close()
    cluster.boot(ProcessKind.LOADER)
    context = ProcessContext(
        config=cluster.config,
        shm=cluster.shm,
        index=0,
        kind=ProcessKind.LOADER,
        ordinal=0,
        count=1,
        listeners=(),
        advertised=(),
        log_dirs=cluster.data,
        clean=[clean] * len(cluster.data),
        forward_path="",
    )
    assert loader.main(context) == 0
    return cluster.served()


def begin(cluster):
    """Then the coordinator begins."""
    cluster.open().become_controller()
    return cluster.served()


def test_an_empty_broker_loads_nothing(cluster):
    assert load(cluster) == {}
    assert cluster.shm.loading == (0, 0)


@pytest.mark.parametrize("clean", [True, False])
def test_every_partition_is_online_in_its_directory_again(cluster, clean):
    cluster.controller.create_topics([NewTopic("a", 5, configs=[("segment.ms", "77")]), NewTopic("b")])
    before = {
        path: read_partition_metadata(path) for data in cluster.data for path in data.glob("*-*") if path.is_dir()
    }
    assert load(cluster, clean) == {"a": [0, 1, 2, 3, 4], "b": [0]}
    assert cluster.shm.loading == (6, 6)
    after = {path: read_partition_metadata(path) for data in cluster.data for path in data.glob("*-*") if path.is_dir()}
    assert after == before
    assert len(before) == 6
    assert begin(cluster) == {"a": [0, 1, 2, 3, 4], "b": [0]}
    state = slot_facts.describe(cluster.table.find("a", 4))
    assert (state.leader_id, state.topic_id) == (1, cluster.controller.image.topics["a"].topic_id.bytes)


def test_directories_of_unknown_topics_stay_and_are_logged(cluster, caplog):
    cluster.controller.create_topics([NewTopic("a")])
    stray, foreign, doomed = (cluster.data[0] / name for name in ("ghost-3", "not a partition", "x-0.abc-delete"))
    for path in (stray, foreign, doomed):
        path.mkdir()
        (path / "content").write_text("kept")
    assert load(cluster) == {"a": [0]}
    assert all((path / "content").read_text() == "kept" for path in (stray, foreign, doomed))
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "ghost-3" in line and "move it away or delete it" in line]
    assert [line for line in lines if "not a partition" in line]


def test_a_directory_of_another_topic_with_that_name_is_not_used(cluster):
    cluster.controller.create_topics([NewTopic("a")])
    ((mine, _),) = [(path, 0) for data in cluster.data for path in data.glob("a-0")]
    write_partition_metadata(mine, uuid.uuid4())
    (mine / "precious").write_text("kept")
    assert load(cluster) == {"a": [0]}
    assert not (mine / "precious").exists()
    (aside,) = mine.parent.glob("a-0.*-stray")
    assert (aside / "precious").read_text() == "kept"


def test_a_partition_without_directory_begins_empty(cluster):
    cluster.controller.create_topics([NewTopic("a")])
    (mine,) = [path for data in cluster.data for path in data.glob("a-0")]
    mine.rename(mine.with_name("away-0"))
    assert load(cluster) == {"a": [0]}


def test_a_partition_that_may_be_in_a_lost_log_directory_is_offline(cluster, monkeypatch):
    cluster.controller.create_topics([NewTopic("a", 2)])
    lost = next(n for n, data in enumerate(cluster.data) if (data / "a-1").exists())
    boot = cluster.boot

    def boot_without(kind):
        boot(kind)
        cluster.shm.set_log_dir_offline(lost)

    monkeypatch.setattr(cluster, "boot", boot_without)
    assert load(cluster) == {"a": [0]}
    begin(cluster)
    assert slots.state_of(cluster.table.find("a", 1)) == SlotState.SLOT_OFFLINE
    assert not (cluster.data[1 - lost] / "a-1").exists()


def test_a_deletion_that_was_under_way_is_finished(cluster):
    cluster.controller.create_topics([NewTopic("a", 3), NewTopic("b")])
    cluster.table.lives = 1
    with pytest.raises(Death):
        cluster.controller.delete_topics(["a"])
    assert load(cluster) == {"b": [0]}
    assert begin(cluster) == {"b": [0]}
    assert [name for name in cluster.directories() if not name.endswith("-delete")] == ["b-0"]
    assert len(cluster.directories()) == 4
    assert cluster.store.children(znodes.DELETE_TOPICS) == []
    assert cluster.store.children(znodes.TOPICS) == ["b"]


def test_a_creation_that_was_under_way_is_finished(cluster):
    cluster.table.lives = 2
    with pytest.raises(Death):
        cluster.controller.create_topics([NewTopic("a", 3)])
    for partition in (1, 2):  # as if the states had been in a later transaction
        cluster.store.delete(znodes.state_path("a", partition))
    assert load(cluster) == {"a": [0]}
    assert begin(cluster) == {"a": [0, 1, 2]}
    assert json.loads(cluster.store.get(znodes.state_path("a", 2))[0])["isr"] == [1]


def test_a_topic_without_id_gets_one(cluster):
    cluster.store.create("/brokers/topics/old", b'{"version":1,"partitions":{"0":[1]}}')
    state = znodes.encode_state(znodes.PartitionState(1, 1, 4, [1]))
    cluster.store.create(znodes.state_path("old", 0), state, make_parents=True)
    assert load(cluster) == {"old": [0]}
    node = SqliteStore(cluster.path)
    topic_id = znodes.decode_topic("old", node.get("/brokers/topics/old")[0]).topic_id
    node.close()
    (path,) = [path for data in cluster.data for path in data.glob("old-0")]
    assert read_partition_metadata(path) == topic_id
    begin(cluster)
    assert slot_facts.describe(cluster.table.find("old", 0)).leader_epoch == 5, "its log was not there"


def test_a_damaged_checkpoint_means_recovery_not_failure(cluster, caplog):
    cluster.controller.create_topics([NewTopic("a", 2)])
    for data in cluster.data:
        (data / RECOVERY_POINT_CHECKPOINT).write_text("0\n3\nnonsense\n")
    assert load(cluster) == {"a": [0, 1]}
    assert "recovered from their start" in caplog.text


def test_the_store_of_another_cluster_is_refused(cluster, caplog, monkeypatch):
    boot = cluster.boot

    def boot_elsewhere(kind):
        boot(kind)
        cluster.shm.cluster_id = "another-cluster"

    monkeypatch.setattr(cluster, "boot", boot_elsewhere)
    with pytest.raises(AssertionError):
        load(cluster)
    assert "another-cluster" in caplog.text


def fill_and_tear(path, batches=50, torn=b""):
    """Sound batches in a partition's log, and what lies behind them."""
    data = b"".join(build_batch([Record(b"k", bytes(500), 1)], base_offset=offset) for offset in range(batches))
    (path / f"{0:020d}.log").write_bytes(data + torn)
    return len(data) + len(torn)


def test_the_header_counts_recovered_and_truncated_bytes_of_each_directory(cluster, caplog):
    cluster.controller.create_topics([NewTopic("a", 6)])
    sizes = [0, 0]
    for number, data in enumerate(cluster.data):
        for path in sorted(data.glob("a-*")):
            sizes[number] += fill_and_tear(path, torn=b"torn" * 30 if path.name in ("a-0", "a-3") else b"")
    load(cluster, clean=False)
    progress = cluster.shm.loading_dirs
    assert [counts["bytes_to_recover"] for counts in progress] == sizes
    assert [counts["bytes_recovered"] for counts in progress] == sizes
    assert [counts["logs"] for counts in progress] == [counts["logs_done"] for counts in progress] == [3, 3]
    assert sum(counts["truncated_bytes"] for counts in progress) == 240
    assert sum(counts["truncated_logs"] for counts in progress) == 2
    cut = [
        record.getMessage()
        for record in caplog.records
        if "120 bytes did not hold a sound batch" in record.getMessage()
    ]
    assert len(cut) == 2
    assert any("a-3" in line for line in cut)
    report = loading_report(progress, cluster.data)
    assert (report["done"], report["total"], report["remaining_s"]) == (6, 6, 0.0)
    assert [row["path"] for row in report["directories"]] == [str(path) for path in cluster.data]


def test_a_torn_end_that_was_truncated_before_it_was_measured_counts_as_measured(cluster, monkeypatch):
    cluster.controller.create_topics([NewTopic("a")])
    ((number, path),) = [(n, path) for n, data in enumerate(cluster.data) for path in data.glob("a-0")]
    size = fill_and_tear(path, torn=b"torn" * 30)
    monkeypatch.setattr(loader, "bytes_to_recover", lambda *_: size - 120)
    load(cluster, clean=False)
    progress = cluster.shm.loading_dirs[number]
    assert (progress["bytes_to_recover"], progress["bytes_recovered"]) == (size, size)


def test_a_small_index_that_differs_is_written_over_where_the_next_recovery_compares_it_again(cluster):
    cluster.controller.create_topics([NewTopic("a")])
    (path,) = [path for data in cluster.data for path in data.glob("a-0")]
    fill_and_tear(path)
    load(cluster, clean=False)
    index = path / f"{0:020d}.index"
    sound, inode = index.read_bytes(), index.stat().st_ino
    assert sound
    index.write_bytes(bytes(len(sound)))
    load(cluster, clean=False)
    assert (index.read_bytes(), index.stat().st_ino) == (sound, inode)


def test_after_an_ordered_stop_nothing_is_measured_or_recovered(cluster):
    cluster.controller.create_topics([NewTopic("a", 2)])
    load(cluster, clean=True)
    assert {(counts["bytes_to_recover"], counts["bytes_recovered"]) for counts in cluster.shm.loading_dirs} == {(0, 0)}


@pytest.mark.parametrize("points", [(15, 0), (0, 15), (12, 15)])
def test_only_bytes_after_the_recovery_point_and_the_log_start_are_measured_and_read(cluster, points):
    cluster.controller.create_topics([NewTopic("a")])
    ((data, path),) = [(data, path) for data in cluster.data for path in data.glob("a-0")]
    sizes = []
    for base in (0, 10, 20):
        batches = [build_batch([Record(b"k", bytes(99), 1)], base_offset=base + number) for number in range(10)]
        (path / f"{base:020d}.log").write_bytes(b"".join(batches))
        sizes.append(sum(map(len, batches)))
    recovery_point, log_start = points
    write_offset_checkpoint(data / RECOVERY_POINT_CHECKPOINT, {("a", 0): recovery_point})
    write_offset_checkpoint(data / LOG_START_OFFSET_CHECKPOINT, {("a", 0): log_start})
    load(cluster, clean=False)
    progress = cluster.shm.loading_dirs[cluster.data.index(data)]
    assert progress["bytes_to_recover"] == progress["bytes_recovered"] == sizes[1] + sizes[2]


@pytest.mark.parametrize(
    ("loaders", "directories", "expected"),
    [
        (1, 1, [[0]]),
        (2, 1, [[0], [0]]),
        (1, 3, [[0, 1, 2]]),
        (2, 3, [[0, 2], [1]]),
        (6, 3, [[0], [1], [2], [0], [1], [2]]),
    ],
)
def test_every_directory_has_separate_loaders(cluster, loaders, directories, expected):
    numbers = []
    for ordinal in range(loaders):
        context = ProcessContext(
            config=cluster.config,
            shm=cluster.shm,
            index=0,
            kind=ProcessKind.LOADER,
            ordinal=ordinal,
            listeners=(),
            advertised=(),
            log_dirs=[cluster.data[0]] * directories,
            clean=[True] * directories,
            forward_path="",
            count=loaders,
        )
        numbers.append(loader.Loading(context, None).directories())
    assert numbers == expected


@pytest.mark.parametrize(
    ("done", "recovered", "expected"),
    [(0, 0, None), (1, 250, 30.0), (2, 999, 0.0), (4, 1000, 0.0)],
)
def test_the_remaining_time_is_derived_from_the_bytes(done, recovered, expected):
    row = {"logs": 4, "logs_done": done, "bytes_to_recover": 1000, "bytes_recovered": recovered, "elapsed_ms": 10_000}
    assert remaining_s(row) == expected


def test_a_recovery_line_contains_progress_and_truncated_bytes():
    counts = {
        "logs": 4,
        "logs_done": 1,
        "bytes_to_recover": 10**9,
        "bytes_recovered": 250 * 10**6,
        "elapsed_ms": 10_000,
    }
    (row,) = loading_report([counts | {"truncated_bytes": 77, "truncated_logs": 1}], [Path("/data")])["directories"]
    assert recovery_line(row) == (
        "/data: 1 of 4 logs open after 10.0 s, 250.0 of 1000.0 MB recovered, 77 bytes cut off in 1 logs, about 30 s left"
    )
