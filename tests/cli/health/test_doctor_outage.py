"""`odradek doctor` on brokers that are down: one finding, with what follows from it. What has another cause stays a finding."""

from types import SimpleNamespace

import pytest

from odradek.cli.health import cluster, doctor
from odradek.cli.health.cluster import brokers_that_are_down, examine_cluster
from odradek.clients.cluster import Address, Partition, TopicInfo, View
from odradek.protocol.errors import ErrorCode

ALIVE = (1, 2, 4)


def partition(number, leader, replicas, in_sync):
    return Partition("t", number, leader, 0, replicas, in_sync, (), ErrorCode.NONE)


class Site:
    """A cluster of these partitions: only the brokers of `ALIVE` are registered. :param default: default.replication.factor."""

    def __init__(self, partitions, default=3, minimum=2):
        self.partitions, self.default, self.minimum = partitions, default, minimum

    def metadata(self, topics=None):
        addresses = {node_id: Address("h", node_id) for node_id in ALIVE}
        return View("id", 1, addresses, {}, {"t": TopicInfo("t", b"", False, tuple(self.partitions))})

    def of_each(self, node_ids, work):
        return dict.fromkeys(node_ids)


@pytest.fixture
def examined(monkeypatch):
    """A function that examines a site."""

    def examine(site):
        values = {cluster.MIN_IN_SYNC: str(site.minimum), cluster.UNCLEAN: "false"}
        refusing = {node_id: site.default for node_id in ALIVE if site.default > len(ALIVE)}
        monkeypatch.setattr(cluster, "_default_replicas", lambda cluster, view: refusing)
        monkeypatch.setattr(
            cluster.configs, "of_topics", lambda cluster, names, key: {"t": SimpleNamespace(value=values[key])}
        )
        monkeypatch.setattr(cluster, "examine_groups", lambda cluster, view: [])
        monkeypatch.setattr(cluster, "examine_transactions", lambda cluster, view: [])
        return examine_cluster(site)

    return examine


UNDER_REPLICATED = "{} with fewer in-sync replicas than replicas"
REFUSING = "{} with fewer in-sync replicas than min.insync.replicas"
LEADERLESS = "1 of {} partitions have no leader"
SITES = {
    "one broker": (
        [partition(n, 1, (1, 2, 3), (1, 2)) for n in range(3)],
        {"default": 4},
        [
            ("t-0, t-1, t-2", UNDER_REPLICATED.format("3 partitions")),
            ("broker 1, broker 2, broker 4", "default.replication.factor is 4"),
        ],
        [],
    ),
    "writes are refused": (
        [partition(0, 1, (1, 3, 5), (1,))],
        {},
        [("t-0", UNDER_REPLICATED.format("1 partition")), ("t-0", REFUSING.format("1 partition"))],
        [],
    ),
    "only the broker that is down was in sync": (
        [partition(0, -1, (1, 3), (3,)), partition(1, 1, (1, 2, 3), (1, 2))],
        {"minimum": 1},
        [("t-0", LEADERLESS.format(2)), ("t-1", UNDER_REPLICATED.format("1 partition"))],
        [],
    ),
    "a live broker is not in sync either": (
        [partition(0, 1, (1, 2, 3), (1,)), partition(1, 1, (1, 2, 3), (1, 2))],
        {"minimum": 1},
        [("t-1", UNDER_REPLICATED.format("1 partition"))],
        [("t-0", UNDER_REPLICATED.format("1 partition"))],
    ),
    "the leader that is missing is alive": (
        [partition(0, -1, (1, 3), (1,)), partition(1, 1, (1, 2, 3), (1, 2))],
        {"minimum": 1},
        [("t-1", UNDER_REPLICATED.format("1 partition"))],
        [("t-0", LEADERLESS.format(2))],
    ),
    "the default is more than all brokers": (
        [partition(0, 1, (1, 2, 3), (1, 2))],
        {"default": 5},
        [("t-0", UNDER_REPLICATED.format("1 partition"))],
        [("broker 1, broker 2, broker 4", "default.replication.factor is 5, but 3 brokers")],
    ),
    "two brokers": (
        [partition(0, 1, (1, 2, 3), (1, 2)), partition(1, 1, (1, 2, 5), (1, 2))],
        {"default": 5},
        [
            ("t-0, t-1", UNDER_REPLICATED.format("2 partitions")),
            ("broker 1, broker 2, broker 4", "default.replication.factor is 5"),
        ],
        [],
    ),
}


@pytest.mark.parametrize(("partitions", "settings", "consequences", "others"), SITES.values(), ids=list(SITES))
def test_brokers_that_are_down_are_one_finding_with_its_consequences(
    examined, partitions, settings, consequences, others
):
    outage, *found = examined(Site(partitions, **settings))
    assert outage.severity == "error" and outage.what.startswith(("the broker is down: ", "the brokers are down: "))
    assert len(outage.consequences) == len(consequences)
    for text, (subject, what) in zip(outage.consequences, consequences, strict=True):
        assert text.startswith(f"{subject}: {what}") and "; " in text
    assert len(found) == len(others)
    for finding, (subject, what) in zip(found, others, strict=True):
        assert finding.subject == subject and finding.what.startswith(what) and finding.consequences == ()


def test_without_a_broker_that_is_down_each_problem_is_a_finding(examined):
    found = examined(Site([partition(0, 1, (1, 2), (1,)), partition(1, -1, (4,), ())], default=4))
    assert [finding.what.split(" ", 1)[1] for finding in found] == [
        "of 2 partitions have no leader",
        "partition with fewer in-sync replicas than replicas",
        "is 4, but 3 brokers of the cluster are alive",
        "partition with fewer in-sync replicas than min.insync.replicas",
        "topic with fewer replicas than min.insync.replicas",
        "topic whose min.insync.replicas is the number of replicas",
    ]
    assert not any(finding.consequences for finding in found)


def test_several_brokers_have_one_remedy():
    view = Site([partition(0, 1, (1, 3), (1,)), partition(1, 1, (1, 3, 5), (1,))]).metadata()
    (finding,) = brokers_that_are_down(view)
    assert finding.subject == "broker 3, broker 5"
    assert finding.what == "the brokers are down: they are not registered, and have 3 replicas (t-0, t-1)"
    assert (
        "start the brokers; if they" in finding.remedy and "`odradek partition move --off 3 --off 5`" in finding.remedy
    )


def test_consequences_are_printed_as_lines_of_their_finding(examined, capsys):
    findings = examined(Site([partition(0, 1, (1, 3), (1,))], default=4, minimum=1))
    doctor._print(findings)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "error  broker 3: the broker is down: it is not registered, and has 1 replica (t-0)"
    assert [line.split(": ", 1)[0] for line in lines[1:]] == [
        "  why it matters",
        "  consequence",
        "  consequence",
        "  what to do",
    ]
