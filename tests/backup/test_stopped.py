"""Backups of a broker that is stopped or was killed, the files of a backup, and everything that can go wrong with them."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.backup import manifest as manifests
from odradek.backup.capture import capture
from odradek.backup.copying import Copier, end_of_batches
from odradek.backup.cut import LogCut, cut_of_stopped
from odradek.backup.errors import BackupError, LogsMoved
from odradek.storage.batch_file import FileBatch, read_file
from odradek.storage.checkpoints import write_gap_limit
from odradek.storage.log_directory import lock_directory, read_meta_properties
from odradek.testing import Broker
from tests.backup import clients
from tests.cli.command import Command
from tests.faults.small_disk import SmallDisk
from tests.waiting import until

TOPICS = {"orders": {"partitions": "2", "segment.bytes": "30000"}, "payments": {"partitions": "1"}}
RECORDS = 600
CONFIG = {"offsets.topic.num.partitions": 1}


def fill(servers, topic, first=0):
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(first, first + RECORDS):
        producer.produce(topic, b"%d-" % number + b"y" * 200, b"k", partition=number % int(TOPICS[topic]["partitions"]))
        if number % 20 == 0:
            producer.flush()
    producer.flush()


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The log directory of a stopped broker, and the records of its topics."""
    directory = tmp_path_factory.mktemp("original")
    with Broker(CONFIG, TOPICS, directory=directory) as broker:
        for topic in TOPICS:
            fill(broker.bootstrap_servers, topic)
        found = records_of(broker)
        broker.stop()
    return broker.data_dir, found


def records_of(broker):
    return {
        topic: clients.read_all(broker.bootstrap_servers, topic, int(settings["partitions"]))
        for topic, settings in TOPICS.items()
    }


@pytest.fixture(scope="module")
def whole(original, tmp_path_factory):
    """A backup, which no test changes."""
    directory = tmp_path_factory.mktemp("whole") / "backup"
    Command("")("backup", "create", directory, "--data-dir", original[0])
    return directory


@pytest.fixture
def copied(whole, tmp_path):
    """A copy of the backup, which a test may damage."""
    return Path(shutil.copytree(whole, tmp_path / "copied"))


odradek = Command("")


def names_in(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def contents_of(directory):
    return {str(path.relative_to(directory)): path.is_file() and path.read_bytes() for path in directory.rglob("*")}


# -- whole backups -------------------------------------------------------------------------------------------------------


def test_the_backup_of_a_stopped_broker_is_complete(original, whole, tmp_path):
    report = odradek.json("backup", "verify", whole)
    assert (report["errors"], report["running"]) == ([], False)
    assert report["partitions"] == len(names_of_logs(original[0]))
    assert report["records"] == 2 * RECORDS
    done = odradek.json("backup", "restore", whole, "--into", tmp_path / "data", "--new-cluster-id")
    assert done["cluster_id"] != report["cluster_id"]
    assert read_meta_properties(tmp_path / "data").cluster_id == done["cluster_id"]
    with Broker(CONFIG, directory=tmp_path) as broker:
        assert records_of(broker) == original[1]
        assert broker.status()["cluster_id"] == done["cluster_id"]
        explained = Command(broker.bootstrap_servers).json("partition", "explain", "orders-0")
        assert "'leader_epoch': 1" in str(explained)  # 0 in the original: consumers that had read more notice the loss


def test_the_backup_of_a_killed_broker_is_complete(original, tmp_path):
    shutil.copytree(original[0], tmp_path / "data")
    with Broker(CONFIG, directory=tmp_path) as broker:
        fill(broker.bootstrap_servers, "orders", RECORDS)
        found = records_of(broker)
        broker.kill_group()
        odradek("backup", "create", tmp_path / "backup", "--set", f"log.dirs={broker.data_dir}")
    assert odradek.json("backup", "verify", tmp_path / "backup")["errors"] == []
    (tmp_path / "restored").mkdir()
    odradek("backup", "restore", tmp_path / "backup", "--into", tmp_path / "restored" / "data")
    with Broker(CONFIG, directory=tmp_path / "restored") as broker:
        assert records_of(broker) == found


def test_several_log_directories(tmp_path):
    directories = [tmp_path / "a", tmp_path / "b"]
    config = CONFIG | {"log.dirs": ",".join(map(str, directories))}
    with Broker(config, TOPICS, directory=tmp_path / "broker") as broker:
        for topic in TOPICS:
            fill(broker.bootstrap_servers, topic)
        found = records_of(broker)
        odradek("backup", "create", tmp_path / "running", "--data-dir", directories[0])
        broker.stop()
    odradek.refused("backup", "create", tmp_path / "part", "--data-dir", directories[0], words=["name all log.dirs"])
    swapped = ("--data-dir", directories[1], "--data-dir", directories[0])
    odradek.refused("backup", "create", tmp_path / "part", *swapped, words=["metadata store", "name it first"])
    assert not (tmp_path / "part").exists()
    odradek.refused("backup", "restore", tmp_path / "running", "--into", tmp_path / "one", words=["2 log directories"])
    targets = [tmp_path / "new-a", tmp_path / "new-b"]
    odradek("backup", "restore", tmp_path / "running", "--into", targets[0], "--into", targets[1])
    assert [names_of_logs(path) for path in targets] == [names_of_logs(path) for path in directories]
    config = CONFIG | {"log.dirs": ",".join(map(str, targets))}
    with Broker(config, directory=tmp_path / "restored") as broker:
        assert records_of(broker) == found


def names_of_logs(directory):
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


def test_only_the_owner_may_read_a_backup(whole):
    assert whole.stat().st_mode & 0o777 == 0o700
    assert [path for path in whole.rglob("*") if path.is_file() and path.stat().st_mode & 0o077] == []


@pytest.mark.parametrize("killed", [False, True])
def test_the_original_is_not_changed(tmp_path, killed):
    with Broker(CONFIG, TOPICS, directory=tmp_path) as broker:
        broker.kill_group() if killed else broker.stop()
    before = contents_of(broker.data_dir)
    odradek("backup", "create", tmp_path / "backup", "--data-dir", broker.data_dir)
    assert contents_of(broker.data_dir) == before
    names = names_in(tmp_path / "backup")
    assert "metadata.db" in names and not {name for name in names if name.startswith("metadata.db-")}


def test_unchanged_segments_are_linked_to_the_base(original, whole, tmp_path):
    same = whole.parent / "same"  # on the same file system
    report = odradek.json("backup", "create", same, "--data-dir", original[0], "--base", whole)
    assert 0 < report["linked_bytes"] < report["bytes"]
    first = "dirs/0/orders-0/00000000000000000000.log"
    assert (same / first).samefile(whole / first)
    assert odradek.json("backup", "verify", same)["errors"] == []
    shutil.rmtree(same)
    assert odradek.json("backup", "verify", whole)["errors"] == []


def test_the_base_must_be_of_the_same_broker(original, whole, tmp_path):
    odradek("backup", "restore", whole, "--into", tmp_path / "data", "--new-cluster-id")
    create = ("backup", "create", tmp_path / "new", "--data-dir", tmp_path / "data", "--base", whole)
    odradek.refused(*create, words=["broker 1 of cluster", "name a backup of this broker"])
    assert not (tmp_path / "new").exists()


# -- wrong command lines -------------------------------------------------------------------------------------------------


def test_what_is_refused(original, whole, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "empty").mkdir()
    create, restore = ("backup", "create"), ("backup", "restore", whole, "--into")
    data = ("--data-dir", original[0])
    odradek.refused(*create, tmp_path / "full", *data, words=["full is not empty"])
    odradek.refused(*create, tmp_path / "new", "--data-dir", tmp_path / "empty", words=["empty", "meta.properties"])
    odradek.refused(*create, tmp_path / "new", *data, "--throttle", "much", words=["--throttle", "much"])
    odradek.refused(*create, tmp_path / "new", *data, "--base", tmp_path / "empty", words=["empty is not a backup"])
    odradek.refused(*restore, tmp_path / "full", words=["full is not an empty directory"])
    odradek.refused(*restore, tmp_path / "missing" / "data", words=["missing does not exist"])
    odradek.refused(*restore, tmp_path / "new", "--new-cluster-id", "short", words=["--new-cluster-id", "short"])
    odradek.refused(*restore, tmp_path / "new", "--tree", words=["--into", "--tree"])
    odradek.refused("backup", "restore", whole, "--tree", "--zookeeper", "h:1/c", words=["zookeeper.json"])
    odradek.refused("backup", "verify", tmp_path / "empty", words=["empty is not a backup"])
    assert names_in(tmp_path) == ["empty", "full", "full/file"]


def test_one_partition_without_a_log_is_noticed(original, tmp_path):
    shutil.copytree(original[0], tmp_path / "data")
    shutil.rmtree(tmp_path / "data" / "orders-1")
    create = ("backup", "create", tmp_path / "new", "--data-dir", tmp_path / "data")
    odradek.refused(*create, words=["partition orders-1 has no log", "name all log.dirs"])
    assert not (tmp_path / "new").exists()


def test_a_restore_deletes_nothing_behind_a_link(whole, tmp_path):
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "file").touch()
    (tmp_path / ".data.restoring").symlink_to(tmp_path / "else")
    odradek.refused("backup", "restore", whole, "--into", tmp_path / "data", words=["symbolic link", "delete it"])
    assert names_in(tmp_path) == [".data.restoring", "else", "else/file"]


def test_a_path_may_have_characters_of_an_address(original, tmp_path):
    directory = tmp_path / "50%25 of #1?"
    directory.mkdir()
    shutil.copytree(original[0], directory / "data")
    odradek("backup", "create", directory / "backup", "--data-dir", directory / "data")
    assert odradek.json("backup", "verify", directory / "backup")["errors"] == []


def test_a_broker_that_starts_is_kept_away(original, tmp_path):
    lock = lock_directory(original[0])
    try:
        odradek.refused("backup", "create", tmp_path / "new", "--data-dir", original[0], words=["odradek.cut.sock"])
    finally:
        os.close(lock)
    assert not (tmp_path / "new").exists()


# -- damage --------------------------------------------------------------------------------------------------------------


def test_a_changed_byte_is_found(copied, tmp_path):
    file = copied / "dirs/0/orders-1/00000000000000000000.log"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    done = odradek.run("backup", "verify", copied)
    assert done.returncode == 1 and f"{file}: the content does not match its checksum" in done.stdout
    odradek.refused("backup", "restore", copied, "--into", tmp_path / "data", words=[str(file), "checksum"])
    assert not [path for path in tmp_path.iterdir() if path != copied]


@pytest.mark.parametrize(
    "name", ["metadata.db", "dirs/0/meta.properties", "dirs/0/payments-0/00000000000000000000.log"]
)
def test_a_missing_and_a_shorter_file_are_found(copied, name):
    file = copied / name
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    assert f"{file}: {len(content) - 1} bytes" in odradek.run("backup", "verify", copied).stdout
    file.unlink()
    done = odradek.run("backup", "verify", copied)
    assert done.returncode == 1 and f"{file}: cannot be read" in done.stdout


def test_a_foreign_file_is_found(copied):
    (copied / "dirs/0/orders-0/00000000000000009999.log").touch()
    assert "not in the manifest" in odradek.run("backup", "verify", copied).stdout


def test_a_damaged_manifest_is_refused(copied):
    file = copied / "manifest.json"
    content = file.read_bytes()
    file.write_bytes(content.replace(b"orders", b"orderz", 1))
    odradek.refused("backup", "verify", copied, words=["manifest.json is damaged"])
    file.write_bytes(content.replace(b'"format": 1', b'"format": 7'))
    odradek.refused("backup", "verify", copied, words=["format 7"])
    file.write_bytes(b"")
    odradek.refused("backup", "verify", copied, words=["not the manifest"])
    file.unlink()
    odradek.refused("backup", "verify", copied, words=["an interrupted backup"])


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "x",
        "dirs/0",
        "dirs/9/orders-0/x",
        "dirs/x/y",
        "dirs/0/../y",
        "dirs/0/a/b/c",
        "",
    ],
)
def test_a_manifest_with_a_path_that_no_backup_has_is_refused(copied, path):
    manifest = manifests.read(copied)
    manifest.files[0] = manifest.files[0]._replace(path=path)
    manifests.write(copied, manifest)
    with pytest.raises(BackupError, match="names the file"):
        manifests.read(copied)


def test_a_link_in_a_log_is_not_followed(original, tmp_path):
    """The command may run as root, and the broker's user owns the logs."""
    stopped = Path(shutil.copytree(original[0], tmp_path / "data"))
    log = stopped / "orders-0" / "00000000000000000000.log"
    log.rename(tmp_path / "elsewhere")
    log.symlink_to(tmp_path / "elsewhere")
    odradek.refused("backup", "create", tmp_path / "backup", "--data-dir", stopped, words=["is a symbolic link"])
    assert not (tmp_path / "backup").exists()


# -- interruptions -------------------------------------------------------------------------------------------------------


def begin(*arguments):
    command = [sys.executable, "-m", "odradek.cli.main", "backup", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_interrupted_backup_is_none(original, tmp_path, number):
    target = tmp_path / "backup"
    process = begin("create", target, "--data-dir", original[0], "--throttle", "10000")
    until(lambda: list(target.rglob("*.log")), "the first segment is copied")
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    if number == signal.SIGKILL:
        odradek.refused("backup", "verify", target, words=["an interrupted backup"])
        odradek.refused("backup", "restore", target, "--into", tmp_path / "data", words=["an interrupted backup"])
        odradek.refused("backup", "create", target, "--data-dir", original[0], words=["not empty"])
    else:
        assert "no backup was made" in errors and not target.exists()
    odradek("backup", "create", tmp_path / "second", "--data-dir", original[0])


def test_an_interrupted_restore_can_be_repeated(original, whole, tmp_path):
    target, stage = tmp_path / "data", tmp_path / ".data.restoring"
    process = begin("restore", whole, "--into", target)
    until(lambda: stage.exists() or target.exists(), "the restore has begun")
    process.kill()
    process.communicate(timeout=60)
    if not target.exists():
        (stage / "left").mkdir(exist_ok=True)
        odradek("backup", "restore", whole, "--into", target)
    assert not stage.exists() and not (target / "left").exists()
    assert names_of_logs(target) == names_of_logs(original[0])


def test_a_full_disk_leaves_nothing(original, tmp_path):
    with SmallDisk(tmp_path / "disk", 24 << 20) as disk:
        target = disk.path / "backup"
        process = begin("create", target, "--data-dir", original[0], "--throttle", "20000")
        until(lambda: list(target.rglob("*.log")), "the first segment is copied")
        filler = disk.fill()
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1 and errors.endswith("No space left on device\n") and str(target) in errors
        assert list(disk.path.iterdir()) == [filler]
        odradek.refused("backup", "create", target, "--data-dir", original[0], words=["bytes free"])
        assert list(disk.path.iterdir()) == [filler]


# -- files that change ---------------------------------------------------------------------------------------------------


@pytest.fixture
def log(original, tmp_path):
    """A copy of the directory of a log, and its cut."""
    directory = Path(shutil.copytree(original[0], tmp_path / "data"))
    cut = cut_of_stopped([str(directory)], clustered=False).logs["orders", 0]
    return directory / "orders-0", cut


def test_deleted_segments_are_copied(log, tmp_path):
    path, cut = log
    contents = {file.name: file.read_bytes() for file in path.iterdir()}
    captured = capture(path, cut)
    shutil.rmtree(path)
    assert len(captured.opened) > 4
    for file in captured.opened:
        Copier().copy(file.descriptor, file.size, tmp_path / file.name, file.name)
        assert (tmp_path / file.name).read_bytes() == contents[file.name]
    captured.close()


def test_a_segment_that_is_cut_meanwhile_is_noticed(log, tmp_path):
    path, cut = log
    captured = capture(path, cut)
    file = captured.opened[0]
    os.truncate(path / file.name, file.size - 1)
    with pytest.raises(BackupError, match="was cut meanwhile"):
        Copier().copy(file.descriptor, file.size, tmp_path / "copy", path / file.name)
    captured.close()


def test_compaction_beyond_the_cut_needs_another_cut(log):
    path, cut = log
    cut = LogCut(cut.topic_id, 0, 0, 150)
    write_gap_limit(path, 150)
    capture(path, cut).close()
    write_gap_limit(path, 151)
    with pytest.raises(LogsMoved, match="compacted beyond its cut"):
        capture(path, cut)


def test_a_log_that_was_deleted_needs_another_cut(log):
    path, cut = log
    shutil.rmtree(path)
    with pytest.raises(LogsMoved, match="was deleted"):
        capture(path, cut._replace(end=10))


def test_a_log_whose_records_before_the_cut_were_deleted_needs_another_cut(log):
    path, cut = log
    (path / "00000000000000000000.log").unlink()
    with pytest.raises(LogsMoved, match="were deleted"):
        capture(path, cut._replace(end=1))


def test_segments_before_the_start_and_after_the_cut_are_left_out(log):
    path, cut = log
    bases = sorted(int(file.stem) for file in path.glob("*.log"))
    assert len(bases) > 2
    captured = capture(path, cut._replace(log_start=bases[1] + 1, end=bases[2] + 1))
    assert sorted(file.name for file in captured.opened if file.name.endswith(".log")) == [
        f"{base:020d}.log" for base in bases[1:3]
    ]
    assert [file.partial for file in captured.opened if file.name.endswith(".log")] == [False, True]
    assert (captured.log_start, captured.last_base) == (bases[1] + 1, bases[2])
    captured.close()


def test_a_log_is_cut_between_batches(log):
    path, _ = log
    file = path / "00000000000000000000.log"
    size = file.stat().st_size
    with open(file, "rb") as opened:
        batches = [batch for batch in read_file(opened.fileno(), size) if isinstance(batch, FileBatch)]
        ends = [(batch.position + batch.size, batch.base_offset + len(batch.content.records())) for batch in batches]
        for end in range(ends[-1][1] + 2):
            expected = max(((position, after) for position, after in ends if after <= end), default=(0, 0))
            assert end_of_batches(opened.fileno(), size, 0, end, file) == expected
        assert end_of_batches(opened.fileno(), size, 0, None, file) == ends[-1]
        assert end_of_batches(opened.fileno(), size - 1, 0, None, file) == ends[-2]
        with pytest.raises(BackupError, match=f"position {ends[-2][0]}: there is no valid batch"):
            end_of_batches(opened.fileno(), size - 1, 0, ends[-1][1], file)


def test_what_is_after_the_cut_does_not_matter(log, tmp_path):
    path, _ = log
    file = tmp_path / "tail.log"
    content = (path / "00000000000000000000.log").read_bytes()
    with open(path / "00000000000000000000.log", "rb") as opened:
        _, end = end_of_batches(opened.fileno(), len(content), 0, None, file)
    for tail in (bytes(100), b"\xff" * 100, content[:50], content[:20]):
        file.write_bytes(content + tail)
        with open(file, "rb") as opened:
            assert end_of_batches(opened.fileno(), len(content) + len(tail), 0, end, file) == (len(content), end)
            assert end_of_batches(opened.fileno(), len(content) + len(tail), 0, None, file) == (len(content), end)
    file.write_bytes(bytes(100))
    with open(file, "rb") as opened:
        assert end_of_batches(opened.fileno(), 100, 7, 7, file) == (0, 7)


def test_the_manifest_is_json_lines(whole):
    head, body, end = (whole / "manifest.json").read_text().split("\n")
    assert json.loads(head)["format"] == 1 and json.loads(body)["node_id"] == 1 and end == ""
