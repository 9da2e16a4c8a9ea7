"""Which directories of a log directory are logs that the broker neither serves nor deletes, and what shows them."""

import errno
import logging
import os

import pytest

import odradek._ext.shm.brokers as brokers
import odradek._ext.shm.views as views
from odradek.cleaner import upkeep
from odradek.cleaner.deleted_logs import DeletedLogs
from odradek.cleaner.retention import Retention
from odradek.cleaner.unassigned_logs import UNKNOWN, UnassignedLogs
from odradek.cli.health.tasks import judge_tasks
from odradek.config.broker_config import resolve
from odradek.processes.supervisor.status import task_row
from odradek.shm.published_tasks import Area, PublishedTasks, TaskReport
from tests.shm.one_broker import BROKER_ID, OneBroker


@pytest.fixture
def broker(tmp_path):
    with OneBroker(tmp_path) as made:
        yield made


def looked(broker, log_dirs=()):
    """What two looks find."""
    logs = UnassignedLogs(broker.shm, [broker.path, *log_dirs], BROKER_ID)
    assert logs.look() == {}
    return logs.look()


def join():
    brokers.begin_cluster(30_000)
    brokers.set_broker_epoch(7)
    brokers.note_published()


def publish(slot, *replicas):
    leader = replicas[0] if replicas else -2
    views.publish_view(
        slot, leader_id=leader, leader_epoch=1, partition_epoch=0, replicas=replicas, in_sync=replicas[:1]
    )


def test_a_log_without_a_topic_is_found_and_nothing_else(broker):
    broker.create("kept")
    for name in ("gone-0", "kept-1"):
        (broker.path / name).mkdir()
    for name in (
        "lost+found",
        ".snapshot-0",
        "__cluster_metadata-0",
        f"t-0.{'0' * 32}-delete",
        f"t-0.{'0' * 32}-stray",
    ):
        (broker.path / name).mkdir()
    (broker.path / "file-0").write_text("")
    assert looked(broker) == {f"{broker.path}/{name}": UNKNOWN for name in ("gone-0", "kept-1")}


def test_a_topic_that_is_created_while_it_looks_is_not_found(broker):
    logs = UnassignedLogs(broker.shm, [broker.path], BROKER_ID)
    (broker.path / "new-0").mkdir()
    assert logs.look() == {}
    broker.create("new", announce=False)
    assert logs.look() == logs.look() == {}


def test_a_second_directory_of_a_partition_is_found(broker, tmp_path_factory):
    second = tmp_path_factory.mktemp("second")
    directory = os.open(second, os.O_RDONLY)
    broker.shm.add_log_dir(directory)
    broker.create("t")
    (second / "t-0").mkdir()
    assert looked(broker, [second]) == {f"{second}/t-0": f"the broker uses the log of this partition in {broker.path}"}
    os.close(directory)


def test_in_a_cluster_only_the_partitions_of_this_broker_are_assigned(broker):
    join()
    ours, gone, moved = (broker.create(name) for name in ("ours", "gone", "moved"))
    publish(ours, 2, BROKER_ID)
    publish(gone)
    publish(moved, 3, 4)
    remote = broker.table.create_remote("remote", b"r" * 16, 0)
    publish(remote, BROKER_ID, 2)
    broker.table.announce([remote])
    (broker.path / "remote-0").mkdir()
    assert looked(broker) == {
        f"{broker.path}/gone-0": UNKNOWN,
        f"{broker.path}/moved-0": "the partition is assigned to other brokers: 3, 4",
        f"{broker.path}/remote-0": "the broker could not open it, or has just got the partition",
    }
    publish(moved, 3, BROKER_ID)
    publish(gone, BROKER_ID)
    assert looked(broker).keys() == {f"{broker.path}/remote-0"}


@pytest.mark.parametrize("begin", [OneBroker.lead, OneBroker.obey])
def test_in_a_cluster_a_replica_with_a_role_is_assigned_before_its_topic_is_announced(broker, begin):
    join()
    slot = broker.create("creating")
    publish(slot)
    begin(broker, slot, 1)
    assert looked(broker) == {}


def test_in_a_cluster_nothing_is_found_before_the_controller_has_sent_the_partitions(broker):
    brokers.begin_cluster(30_000)
    slot = broker.create("t")
    publish(slot)
    (broker.path / "gone-0").mkdir()
    assert looked(broker) == {}
    brokers.note_published()
    assert len(looked(broker)) == 2


def test_a_log_directory_that_cannot_be_read_is_named_and_one_that_failed_is_not(broker, monkeypatch):
    (broker.path / "gone-0").mkdir()

    def refused(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refused)
        failures = UnassignedLogs(broker.shm, [broker.path], BROKER_ID).look()
    assert failures == {
        str(broker.path): f"cannot look for unassigned logs: [Errno 13] Permission denied: '{broker.path}'"
    }
    broker.shm.set_log_dir_offline(0)
    assert looked(broker) == {}


def test_a_log_that_is_found_is_logged_once_and_forgotten_when_it_is_gone(broker, caplog):
    caplog.set_level(logging.WARNING, "odradek.cleaner")
    logs = UnassignedLogs(broker.shm, [broker.path], BROKER_ID)
    for name in ("a-0", "b-0"):
        (broker.path / name).mkdir()
    found = [logs.look() for _ in range(4)]
    assert [len(paths) for paths in found] == [0, 2, 2, 2]
    (message,) = caplog.messages
    assert message == (
        "2 logs are not assigned to this broker, which neither serves nor deletes them; new is "
        f"{broker.path}/a-0 and 1 more: the broker knows no such partition; if nobody needs their records, delete them while "
        "the broker is stopped"
    )
    (broker.path / "a-0").rmdir()
    (broker.path / "c-0").mkdir()
    assert logs.look().keys() == {f"{broker.path}/b-0"}
    assert logs.look().keys() == {f"{broker.path}/b-0", f"{broker.path}/c-0"}
    assert len(caplog.messages) == 2 and f"new is {broker.path}/c-0: " in caplog.messages[1]


def test_the_cleaners_pass_makes_a_finding_of_the_doctor(broker):
    """The pass, what the process publishes of it, the status, and the doctor, in the order in which they follow each other."""
    (broker.path / "gone-0").mkdir()
    log_dirs = [broker.path]
    retention, deleted = Retention(broker.shm, log_dirs), DeletedLogs(broker.shm, log_dirs)
    passes = {item.name: item for item in upkeep.passes(resolve([]), broker.shm, log_dirs, retention, deleted)}
    item = passes["search for unassigned logs"]
    published = PublishedTasks()
    now_ms = 1_700_000_000_000
    report = TaskReport(published, Area.CLEANER, wall=lambda: now_ms, steady=lambda: 0.0)
    report.expect(item.name, item.every_ms)
    findings = []
    for _ in range(2):
        report.ran(item.name, item.action())
        findings.append(list(judge_tasks([task_row(state) for state in published.read()], now_ms)))
    first, (finding,) = findings
    assert first == []
    assert (finding.severity, finding.subject) == ("warning", "task search for unassigned logs")
    assert finding.what.endswith(f", at 1 place: {broker.path}/gone-0: the broker knows no such partition")
    assert "never freed" in finding.reason
