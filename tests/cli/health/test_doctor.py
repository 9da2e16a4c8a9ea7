"""`odradek doctor`: each kind of finding, from a running broker, or from a changed status."""

import copy
import json
import os
import resource
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from odradek.cli.health.groups import GroupOffsets, judge_group, judge_members, judge_tree
from odradek.cli.health.local import examine_broker, judge_status
from odradek.cli.health.metrics import judge_metrics
from odradek.cli.inspection.local_broker import find, status_of
from odradek.clients import tree_offsets
from odradek.clients.cluster import Cluster
from odradek.clients.groups import CommittedOffset, GroupDescription, Member
from odradek.testing import Broker
from tests.children import kill
from tests.cli.command import Command
from tests.wire import Wire, batch

pytestmark = [pytest.mark.xdist_group("doctor"), pytest.mark.timeout(600)]

PATIENCE_S, PAUSE_S = 90.0, 0.05


@pytest.fixture(scope="module")
def patient(tmp_path_factory):
    with Broker({"num.network.threads": 1}, directory=tmp_path_factory.mktemp("patient")) as broker:
        yield broker


@pytest.fixture
def report(patient):
    """A copy of the supervisor's status, for tests to change."""
    return copy.deepcopy(status_of(*find(None, (), str(patient.data_dir), None)))


def test_a_healthy_broker_has_no_findings(patient):
    assert examine_broker(str(patient.data_dir)) == []
    command = Command(patient.bootstrap_servers)
    assert command.json("doctor", "--data-dir", patient.data_dir) == {
        "healthy": True,
        "checked": [f"the broker of {patient.data_dir}", f"the cluster at {patient.bootstrap_servers}"],
        "findings": [],
    }
    assert command("doctor").startswith("No problems found; checked")


def test_without_a_server_the_broker_of_the_directory_is_asked(patient, tmp_path, monkeypatch):
    command = Command("")
    monkeypatch.setattr(command, "_environment", os.environ | {"ODRADEK_BOOTSTRAP_SERVERS": ""})
    done = command.json("doctor", "--data-dir", patient.data_dir)
    assert done["checked"][-1] == f"the cluster at {patient.bootstrap_servers}" and done["healthy"]
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SSL\n")
    done = command.json("doctor", "--data-dir", patient.data_dir, "--command-config", config)
    (finding,) = done["findings"]
    assert "no listener of the broker has the protocol SSL" in finding["what"] and len(done["checked"]) == 1
    assert "PLAINTEXT (PLAINTEXT)" in finding["what"] and "--command-config" in finding["remedy"]
    stopped = command.run("doctor", "--data-dir", tmp_path)
    assert stopped.returncode == 1 and "9092" not in stopped.stdout and "1 error, 0 warnings" in stopped.stdout


def test_topics_with_fewer_replicas_than_min_in_sync_are_a_warning_with_the_command(patient):
    command = Command(patient.bootstrap_servers)
    command("topic", "create", "safe", "plain")
    command("config", "set", "--topic", "safe", "min.insync.replicas=2")
    try:
        report = command.json("doctor")
        assert report["healthy"]
        (finding,) = report["findings"]
        assert finding["severity"] == "warning" and finding["subject"] == "safe"
        assert finding["what"] == "1 topic with fewer replicas than min.insync.replicas"
        assert finding["remedy"].endswith("`odradek config set --topic safe min.insync.replicas=1`")
        command("config", "set", "--topic", "safe", "min.insync.replicas=1")
        assert command.json("doctor")["findings"] == []
    finally:
        command("topic", "delete", "safe", "plain", "--yes")


@pytest.mark.parametrize(
    ("change", "severity", "subject", "says", "remedy"),
    [
        (
            lambda status: status.update(state="recovering"),
            "warning",
            "broker",
            "the broker is recovering",
            "odradek status",
        ),
        (
            lambda status: status["processes"][0].update(restarts=3, last_exit="ended by SIGKILL"),
            "error",
            "process ",
            "restarted 3 times; its last exit: ended by SIGKILL",
            "the broker's log",
        ),
        (lambda status: status.update(memory_faults=2), "error", "memory", "died 2 times", "test the machine's memory"),
        (
            lambda status: status["log_dirs"][0].update(online=False),
            "error",
            "log directory /",
            "the log directory is offline",
            "repair or replace it",
        ),
        (
            lambda status: status["log_dirs"][0].update(disk="full", free_bytes=7_000_000),
            "error",
            "log directory /",
            "the disk is full: 7.0 MB of ",
            "topic list --sizes",
        ),
        (
            lambda status: status["producer_state"].update(
                used_bytes=9_000_000, max_bytes=10_000_000, producers=12_345
            ),
            "warning",
            "state of idempotent producers",
            "the state of 12,345 producers uses 90% of odradek.producer.state.max.bytes (10 MB)",
            "raise odradek.producer.state.max.bytes",
        ),
        (
            lambda status: status["producer_state"].update(refused_client=7),
            "error",
            "state of idempotent producers",
            "7 batches of new producers were refused since the broker's start because of odradek.producer.state.client.max.",
            "the workers' log lines name the clients' addresses",
        ),
        (
            lambda status: status["producer_state"].update(refused_arena=7),
            "error",
            "state of idempotent producers",
            "7 batches of new producers were refused since the broker's start because of odradek.producer.state.max.bytes",
            "raise odradek.producer.state.max.bytes",
        ),
        (
            lambda status: status["producer_state"].update(dropped_at_start=1500),
            "warning",
            "state of idempotent producers",
            "the state of 1,500 producers was dropped at the last start",
            "odradek.producer.state.partition.max.producers",
        ),
        (
            lambda status: status.update(access={"acls": 0, "locked_out": True}),
            "error",
            "access control",
            "nobody may change access control lists",
            "super.users=User:admin",
        ),
        (
            lambda status: status.update(
                metrics={"host": "127.0.0.1", "port": 40404}, metrics_instead_of="127.0.0.1:9404"
            ),
            "warning",
            "metrics.listener",
            "the default 127.0.0.1:9404 was in use at the start, so metrics are at 127.0.0.1:40404",
            "set metrics.listener",
        ),
        (
            lambda status: status["log_dirs"][0].update(disk="full", full_despite_space=True, free_bytes=70_000_000),
            "error",
            "log directory /",
            "a write found no space, or few inodes are left, although 70.0 MB of ",
            "df -i /",
        ),
        (
            lambda status: status["log_dirs"][0].update(disk="low", free_bytes=9_000_000),
            "warning",
            "log directory /",
            "the disk is nearly full: 9.0 MB of ",
            "enlarge the disk",
        ),
    ],
)
def test_problems_in_a_supervisors_status_are_findings(report, change, severity, subject, says, remedy):
    assert list(judge_status(report)) == []
    change(report)
    (finding,) = judge_status(report)
    assert finding.severity == severity
    assert finding.subject.startswith(subject) and says in finding.what and remedy in finding.remedy and finding.reason


def test_two_restarts_of_a_process_are_no_finding(report):
    report["processes"][0]["restarts"] = 2
    assert list(judge_status(report)) == []


def test_a_process_near_its_limit_of_open_files_is_a_finding(patient):
    (worker,) = [process["pid"] for process in patient.processes() if process["kind"] == "worker"]
    before = resource.prlimit(worker, resource.RLIMIT_NOFILE)
    used = sum(1 for _ in Path(f"/proc/{worker}/fd").iterdir())
    try:
        resource.prlimit(worker, resource.RLIMIT_NOFILE, (used + 2, before[1]))
        (finding,) = examine_broker(str(patient.data_dir))
    finally:
        resource.prlimit(worker, resource.RLIMIT_NOFILE, before)
    assert finding.subject == "process worker 0" and finding.severity == "error"
    assert f"open files; its limit is {used + 2}" in finding.what and "LimitNOFILE" in finding.remedy


def test_a_coordinator_that_was_restarted_three_times_is_a_finding(patient):
    for _ in range(3):
        old = coordinator(patient)
        kill(old)
        end = time.monotonic() + PATIENCE_S
        while coordinator(patient) in (None, 0, old):
            assert time.monotonic() < end, patient.log_tail()
            time.sleep(PAUSE_S)
    done = Command(patient.bootstrap_servers).run("doctor", "--data-dir", patient.data_dir, "--json")
    assert done.returncode == 1
    (finding,) = [
        finding for finding in json.loads(done.stdout)["findings"] if finding["subject"].startswith("process")
    ]
    assert finding["subject"] == "process coordinator 0"
    assert "restarted 3 times" in finding["what"] and "SIGKILL" in finding["what"]


def coordinator(broker):
    """The process id of the broker's coordinator."""
    (pid,) = [process["pid"] for process in broker.processes() if process["kind"] == "coordinator"]
    return pid


def test_a_directory_without_a_broker_is_a_finding_with_a_remedy(tmp_path):
    (finding,) = examine_broker(str(tmp_path))
    assert finding.severity == "error" and finding.subject == "broker" and str(tmp_path) in finding.what
    assert "odradek start" in finding.remedy
    done = Command("127.0.0.1:1").run("doctor", "--data-dir", tmp_path)
    assert done.returncode == 1 and not done.stderr
    assert "what to do: start the broker with `odradek start`" in done.stdout and "2 errors, 0 warnings" in done.stdout


T = ("t", 0)


@pytest.mark.parametrize(
    ("state", "committed", "start", "end", "says"),
    [
        ("Stable", 5, 0, 9, None),
        ("Empty", 9, 0, 9, None),
        ("Empty", 5, 0, 9, "the group has no members, and 4 records to read"),
        ("Stable", 5, 7, 9, "2 records of t-0 were deleted before the group read them"),
        ("Stable", 12, 0, 9, "committed offsets are beyond the end of t-0"),
    ],
)
def test_offsets_of_groups_are_judged(state, committed, start, end, says):
    findings = list(judge_group(GroupOffsets("g", state, {T: CommittedOffset(committed)}), {T: start}, {T: end}))
    assert [finding.what for finding in findings] == ([] if says is None else [says])
    assert all(finding.subject == "group g" and finding.remedy for finding in findings)


def test_positions_of_a_mirror_are_not_judged_as_offsets_of_consumers():
    group = GroupOffsets("odradek-mirror.a->b", "Empty", {T: CommittedOffset(12)})
    assert list(judge_group(group, {T: 0}, {T: 9})) == []
    assert list(judge_group(group._replace(group_id="g"), {T: 0}, {T: 9}))


def described(*assigned, topics=("t",), state="Stable"):
    """A group whose members have these partitions assigned."""
    members = [
        Member(f"m{i}", None, "c", "/127.0.0.1", places, topics=list(topics)) for i, places in enumerate(assigned)
    ]
    return GroupDescription("g", "Classic", state, "range", 0, members=members)


@pytest.mark.parametrize(
    ("group", "says", "remedy"),
    [
        (described([("t", 0)], [("t", 1)]), None, None),
        (described([("t", 0)], [], state="CompletingRebalance"), None, None),
        (described(None, None), None, None),  # not consumers
        (
            described([("t", 0)], [], []),
            "2 of 3 members have no partition; the others have 1 partition",
            "alter t --partitions 3",
        ),
        (described([("t", 0)], [], topics=("a", "t")), "1 of 2 members", "alter TOPIC --partitions COUNT"),
        (
            described([("a", 0), ("t", 0)], [], topics=("a", "t")),
            "the others have 2 partitions",
            "another assignor than 'range'",
        ),
        (described([], []), "none of the members (2) has a partition", "members subscribe exist (t)"),
        (described([], topics=()), "none of the members (1) has a partition", "members subscribe exist (none)"),
    ],
)
def test_members_without_a_partition_are_found(group, says, remedy):
    findings = list(judge_members(group))
    if says is None:
        assert findings == []
    else:
        (finding,) = findings
        assert (finding.severity, finding.subject) == ("warning", "group g")
        assert says in finding.what and remedy in finding.remedy and finding.reason


def test_groups_whose_newest_offsets_are_in_the_tree_are_found():
    log = {
        "equal": {T: CommittedOffset(4)},
        "newer": {T: CommittedOffset(9)},
        "older": {T: CommittedOffset(3)},
        "other": {("u", 0): CommittedOffset(4)},
    }
    assert list(judge_tree({}, log)) == list(judge_tree({"equal": {T: 4}, "newer": {T: 4}}, log)) == []
    (finding,) = judge_tree({name: {T: 4} for name in (*log, "none")}, log)
    assert (finding.severity, finding.subject) == ("warning", "groups none, older, other")
    assert "offsets migrate --all --to log" in finding.remedy


LARGE = 'odradek_topic_largest_batch_bytes{topic="big"} 2097153\nodradek_topic_largest_batch_bytes{topic="huge"} 3e6\n'
SMALL = '# TYPE x gauge\nx 1\nodradek_topic_largest_batch_bytes{topic="small"} 1048576\n'
FETCHES = 'kafka_network_requestmetrics_requests_total{request="%s",version="%d"} %d\n'


@pytest.mark.parametrize(
    ("text", "subject", "old"),
    [
        (SMALL, None, False),
        (SMALL + FETCHES % ("Fetch", 0, 5), None, False),
        (SMALL + LARGE + FETCHES % ("Produce", 0, 5) + FETCHES % ("Fetch", 12, 5), "topics huge, big", False),
        (SMALL + LARGE + FETCHES % ("Fetch", 2, 0), "topics huge, big", False),
        (LARGE + FETCHES % ("Fetch", 2, 1), "topics huge, big", True),
        (LARGE.splitlines()[0], "topic big", False),
    ],
)
def test_batches_larger_than_fetches_are_found(text, subject, old):
    findings = list(judge_metrics(text))
    assert [finding.subject for finding in findings] == ([] if subject is None else [subject])
    for finding in findings:
        assert finding.severity == "warning" and ("older than 0.10.1" in finding.reason) == old
        assert max(subject.endswith("huge, big") * 3_000_000, 2_097_153) == int(
            finding.what.split()[4].replace(",", "")
        )


def member(broker, kind):
    """A consumer in a group with this protocol, which subscribes to topic u."""
    made = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": f"idle-{kind}", "group.protocol": kind})
    made.subscribe(["u"])
    return closing(made)


def test_a_running_cluster_is_checked_for_batches_groups_and_offsets(tmp_path):
    config = {"metrics.listener": "127.0.0.1:0", "message.max.bytes": 8 << 20, "group.initial.rebalance.delay.ms": 0}
    with Broker(config, {"t": 1, "u": 1}, directory=tmp_path) as broker:
        command = Command(broker.bootstrap_servers)
        address = broker.metrics_url.removeprefix("http://")
        options = [["--data-dir", broker.data_dir], ["--metrics", address]]
        assert [command.json("doctor", *arguments)["findings"] for arguments in options] == [[], []]
        with Wire(broker.host, broker.port) as wire:
            assert wire.produce("t", batch(bytes(2 << 20))).error_code == 0
            assert wire.produce("u", batch(b"v")).error_code == 0
        with Cluster(broker.bootstrap_servers) as cluster:
            assert tree_offsets.commit(cluster, "old", {("u", 0): 1}) == {}
        with ExitStack() as stack:
            members = [
                stack.enter_context(member(broker, kind)) for kind in ("classic", "classic", "consumer", "consumer")
            ]
            expected = ["topic t", "group idle-classic", "group idle-consumer", "groups old"]
            end, subjects, report = time.monotonic() + PATIENCE_S, [], None
            while subjects != expected:
                assert time.monotonic() < end, report
                for consumer in members:
                    consumer.poll(0.1)
                report = command.json("doctor", "--metrics", address)
                subjects = [finding["subject"] for finding in report["findings"]]
    assert report["checked"] == [f"the metrics at {address}", f"the cluster at {broker.bootstrap_servers}"]
    done = Command(broker.bootstrap_servers).run("doctor", "--metrics", address, "--timeout", 1)
    assert f"nothing listens on {address}" in done.stdout and "1 error, 1 warning" in done.stdout


def test_a_group_with_members_that_is_five_minutes_behind_is_a_finding() -> None:
    def text(group: str, age_s: float, members: int) -> str:
        labels = f'consumergroup="{group}",topic="orders"'
        return (
            f'odradek_consumergroup_lag_seconds{{{labels},partition="0"}} {age_s}\n'
            f'odradek_consumergroup_lag_seconds{{{labels},partition="1"}} 3\n'
            f'kafka_consumergroup_members{{consumergroup="{group}"}} {members}\n'
        )

    groups = (
        text("analytics", 4000.4, 2)
        + text("fast", 299, 1)
        + text("nobody", 4000, 0)
        + text("odradek-mirror.a->b", 4000, 1)
    )
    [found] = judge_metrics(groups)
    assert (found.severity, found.subject) == ("warning", "group analytics")
    assert found.what == "the oldest record of orders that the group has not committed is 1 h 6 min old"
