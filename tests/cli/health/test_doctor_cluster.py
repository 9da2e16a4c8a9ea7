"""`odradek status` and `odradek doctor` in a cluster: each kind of finding, from a changed status."""

import copy

import pytest

from odradek.cli.health.membership import judge_membership, unreachable
from odradek.cli.machine.status_table import membership_lines
from tests.ports import reserved

STATUS = {
    "registered": True,
    "broker_epoch": 71,
    "zookeeper": {"connect": "zk1:2181/x", "state": "connected", "since_s": 3600.0, "session_timeout_s": 18.0},
    "controller": 2,
    "controller_epoch": 4,
    "inter_broker_listener": "PLAINTEXT",
    "brokers": [{"id": 1, "host": "127.0.0.1", "port": 1}, {"id": 2, "host": None, "port": None}],
    "replicas": {
        "led": 5,
        "followed": 10,
        "under_replicated": 0,
        "under_min_in_sync": 0,
        "at_min_in_sync": 0,
        "offline": 0,
        "no_leader": 0,
        "not_preferred": 0,
        "reassigning": 0,
        "unfetched": 0,
        "lost_tail": 0,
        "lost_tail_led": 0,
        "under_replicated_s": 0.0,
        "pending_s": 0.0,
    },
}


@pytest.fixture
def report():
    return copy.deepcopy(STATUS)


def zookeeper(state, since_s=90.0, registered=True):
    return lambda report: (
        report["zookeeper"].update(state=state, since_s=since_s), report.update(registered=registered)
    )  # fmt: skip


def replicas(**changes):
    return lambda report: report["replicas"].update(changes)


@pytest.mark.parametrize(
    ("change", "severity", "subject", "says", "remedy"),
    [
        (zookeeper("unknown", None), "error", "coordinator", "no coordinator runs", "broker's log"),
        (zookeeper("joining", None, False), "error", "membership", "has not joined", "zk1:2181/x"),
        (
            zookeeper("wrong tree", registered=False),
            "error",
            "ZooKeeper",
            "zk1:2181/x) is not that of",
            "from a backup",
        ),
        (zookeeper("suspended"), "error", "ZooKeeper", "no connection to ZooKeeper for 1 min 30 s", "zk1:2181/x"),
        (zookeeper("overdue"), "error", "ZooKeeper", "no connection to ZooKeeper for 1 min 30 s", "quorum"),
        (
            zookeeper("lost", 90.0, False),
            "error",
            "membership",
            "has ended, and the broker could not register",
            "quorum",
        ),
        (zookeeper("connected", 90.0, False), "error", "membership", "connected to ZooKeeper, but is not", "its id"),
        (lambda report: report.update(controller=None), "error", "controller", "knows no controller", "eligible"),
        (
            replicas(under_replicated=3, under_replicated_s=400.0),
            "warning",
            "under-replicated partitions",
            "3 partitions of this broker with fewer in-sync replicas than replicas, the longest for 6 min 40 s",
            "partition explain",
        ),
        (
            replicas(pending_s=61.0),
            "error",
            "in-sync replicas",
            "waited for the controller for 1 min 1 s",
            "did not judge",
        ),
        (
            replicas(lost_tail=2),
            "warning",
            "incomplete logs",
            "2 partitions of this broker whose logs lost",
            "start those",
        ),
        (
            replicas(lost_tail_led=1),
            "error",
            "lost records",
            "1 partition that this broker leads although",
            "lost its end",
        ),
        (
            replicas(unfetched=1),
            "error",
            "followed partitions",
            "1 partition that this broker follows but",
            "log names",
        ),
    ],
)
def test_problems_of_a_member_are_findings(report, change, severity, subject, says, remedy):
    assert list(judge_membership(report)) == []
    change(report)
    (finding,) = judge_membership(report)
    assert (finding.severity, finding.subject) == (severity, subject)
    assert says in finding.what and remedy in finding.remedy and finding.reason


@pytest.mark.parametrize(
    "change",
    [zookeeper("joining", None), replicas(under_replicated=3, under_replicated_s=299.0), replicas(pending_s=59.0)],
    ids=["the successor of a coordinator joins", "a follower restarts", "the controller moves"],
)
def test_states_that_pass_are_no_findings(report, change):
    change(report)
    assert list(judge_membership(report)) == []


def test_brokers_whose_listener_does_not_answer_are_named(report):
    assert list(unreachable(report | {"brokers": [{"id": 1, "host": "127.0.0.1", "port": 1}]}, 1)) == []
    with reserved() as port:
        brokers = [{"id": 3, "host": "127.0.0.1", "port": port}, {"id": 4, "host": None, "port": None}]
        (finding,) = unreachable(report | {"brokers": brokers}, 1)
    assert finding.what == (
        f"2 brokers cannot be reached from this machine: broker 3 at 127.0.0.1:{port} (Connection refused), "
        "broker 4 (it has no such listener)"
    )


def test_the_status_shows_membership_and_replicas(report):
    assert membership_lines(report, 1) == [
        "  membership   registered, broker epoch 71; live brokers: 1, 2; controller: broker 2",
        "  ZooKeeper    zk1:2181/x: connected for 1 h",
        "  replicas     5 led, 10 followed, 0 under-replicated, 0 under min.insync.replicas, 0 offline",
    ]
    report.update(registered=False, controller=1)
    report["replicas"].update(unfetched=2)
    first, _, last = membership_lines(report, 1)
    assert first == "  membership   not registered; live brokers: 1, 2; controller: this broker"
    assert "2 not fetched" in last
