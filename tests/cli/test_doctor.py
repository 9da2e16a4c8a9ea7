"""What the doctor sees of a broker on its own machine: each kind of finding, from a living broker or from what one tells."""

import copy
import json
import os
import resource
import select
import signal
import time
from pathlib import Path

import pytest

from broker.cli.health import GroupSeen, judge_group
from broker.cli.health_local import examine_broker, judge_status
from broker.cli.running_broker import find, status_of
from broker.clients.groups import Committed
from broker.testing import Broker
from tests.cli.command import Command

pytestmark = [pytest.mark.xdist_group("doctor"), pytest.mark.timeout(600)]

PATIENCE_S, PAUSE_S = 90.0, 0.05


@pytest.fixture(scope="module")
def patient(tmp_path_factory):
    with Broker({"num.network.threads": 1}, directory=tmp_path_factory.mktemp("patient")) as one:
        yield one


@pytest.fixture
def report(patient):
    """What its supervisor tells, to be changed."""
    return copy.deepcopy(status_of(*find(None, (), str(patient.data_dir), None)))


def test_nothing_is_found_where_nothing_is_wrong(patient):
    assert examine_broker(str(patient.data_dir)) == []
    command = Command(patient.bootstrap_servers)
    assert command.json("doctor", "--data-dir", patient.data_dir) == {
        "healthy": True,
        "looked_at": [f"the broker of {patient.data_dir}", f"the cluster at {patient.bootstrap_servers}"],
        "findings": [],
    }
    assert command("doctor").startswith("Nothing is wrong; looked at")


@pytest.mark.parametrize(
    ("change", "severity", "subject", "says", "remedy"),
    [
        (lambda told: told.update(state="recovering"), "warning", "broker", "it is recovering", "odradek status"),
        (
            lambda told: told["processes"][0].update(restarts=3, last_exit="ended by SIGKILL"),
            "error",
            "process ",
            "restarted 3 times; its last end: ended by SIGKILL",
            "the broker's log",
        ),
        (lambda told: told.update(memory_faults=2), "error", "memory", "died 2 times", "check the machine's memory"),
        (
            lambda told: told["log_dirs"][0].update(online=False),
            "error",
            "log directory /",
            "it is offline",
            "mend or replace it",
        ),
        (
            lambda told: told["log_dirs"][0].update(disk="full", free_bytes=7_000_000),
            "error",
            "log directory /",
            "it is full: 7 MB are free",
            "topic list --sizes",
        ),
        (
            lambda told: told["log_dirs"][0].update(disk="low", free_bytes=9_000_000),
            "warning",
            "log directory /",
            "low on room: 9 MB are free",
            "enlarge the disk",
        ),
    ],
)
def test_what_a_supervisor_tells_is_judged(report, change, severity, subject, says, remedy):
    assert list(judge_status(report)) == []
    change(report)
    (found,) = judge_status(report)
    assert found.severity == severity
    assert found.subject.startswith(subject) and says in found.what and remedy in found.remedy and found.reason


def test_a_process_that_was_restarted_twice_is_no_finding(report):
    report["processes"][0]["restarts"] = 2
    assert list(judge_status(report)) == []


def test_a_process_with_hardly_any_files_left_is_named(patient):
    (worker,) = [one["pid"] for one in patient.processes() if one["kind"] == "worker"]
    before = resource.prlimit(worker, resource.RLIMIT_NOFILE)
    used = sum(1 for _ in Path(f"/proc/{worker}/fd").iterdir())
    try:
        resource.prlimit(worker, resource.RLIMIT_NOFILE, (used + 2, before[1]))
        (found,) = examine_broker(str(patient.data_dir))
    finally:
        resource.prlimit(worker, resource.RLIMIT_NOFILE, before)
    assert found.subject == "process worker 0" and found.severity == "error"
    assert f"open files of {used + 2}" in found.what and "LimitNOFILE" in found.remedy


def test_a_coordinator_that_dies_again_and_again_is_named(patient):
    for _ in range(3):
        old = coordinator(patient)
        descriptor = os.pidfd_open(old)
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        select.select([descriptor], [], [], PATIENCE_S)
        os.close(descriptor)
        end = time.monotonic() + PATIENCE_S
        while coordinator(patient) in (None, 0, old):
            assert time.monotonic() < end, patient.log_tail()
            time.sleep(PAUSE_S)
    done = Command(patient.bootstrap_servers).run("doctor", "--data-dir", patient.data_dir, "--json")
    assert done.returncode == 1
    (found,) = [one for one in json.loads(done.stdout)["findings"] if one["subject"].startswith("process")]
    assert found["subject"] == "process coordinator 0"
    assert "restarted 3 times" in found["what"] and "SIGKILL" in found["what"]


def coordinator(broker):
    """Its process id."""
    (found,) = [one["pid"] for one in broker.processes() if one["kind"] == "coordinator"]
    return found


def test_a_directory_without_a_broker_is_told_with_what_to_do(tmp_path):
    (found,) = examine_broker(str(tmp_path))
    assert found.severity == "error" and found.subject == "broker" and str(tmp_path) in found.what
    assert "odradek start" in found.remedy
    done = Command("127.0.0.1:1").run("doctor", "--data-dir", tmp_path)
    assert done.returncode == 1 and not done.stderr
    assert "what to do: start it with `odradek start`" in done.stdout and "2 errors, 0 warnings" in done.stdout


T = ("t", 0)


@pytest.mark.parametrize(
    ("state", "committed", "start", "end", "says"),
    [
        ("Stable", 5, 0, 9, None),
        ("Empty", 9, 0, 9, None),
        ("Empty", 5, 0, 9, "it has no members and 4 records to read"),
        ("Stable", 5, 7, 9, "2 records that it had not read were deleted, of t-0"),
        ("Stable", 12, 0, 9, "its offsets lie behind the end of t-0"),
    ],
)
def test_offsets_of_groups_are_judged(state, committed, start, end, says):
    found = list(judge_group(GroupSeen("g", state, {T: Committed(committed)}), {T: start}, {T: end}))
    assert [one.what for one in found] == ([] if says is None else [says])
    assert all(one.subject == "group g" and one.remedy for one in found)
