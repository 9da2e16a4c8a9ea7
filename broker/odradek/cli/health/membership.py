"""Checks of `odradek doctor` on a broker of this machine as a member of a cluster, from its supervisor's status, and by
connecting to the other brokers."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from odradek.cli.framework.output import abbreviate, count, span
from odradek.cli.health.finding import Finding

UNDER_REPLICATED_S = 300
PENDING_S = 60
CONNECT_S = 3.0
AT_ONCE = 16
CONNECTED, JOINING, WRONG_TREE, NO_COORDINATOR = "connected", "joining", "wrong tree", "unknown"


def judge_membership(report: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings in the part of a supervisor's status about the cluster (`processes/supervisor/cluster_status.py`)."""
    yield from _session(report)
    if report["controller"] is None:
        yield Finding(
            "error",
            "controller",
            "this broker knows no controller",
            "no leader, no in-sync replicas and no topics change",
            "check that ZooKeeper runs and that at least one broker with odradek.controller.eligible=true is connected to it; "
            'look in the brokers\' logs for "is the controller", for ERROR lines of odradek.security about connections to '
            'other brokers, and for "denies UpdateMetadata requests"',
        )
    yield from _replicas(report["replicas"])


def _session(report: Mapping[str, Any]) -> Iterator[Finding]:
    zookeeper = report["zookeeper"]
    state, connect = zookeeper["state"], zookeeper["connect"]
    away = "" if zookeeper["since_s"] is None else f" for {span(int(zookeeper['since_s'] * 1000))}"
    check = f"check that the servers of zookeeper.connect ({connect}) run, have a quorum, and can be reached from this machine"
    if state == NO_COORDINATOR:
        yield Finding(
            "error",
            "coordinator",
            "no coordinator runs, so the broker has no connection to ZooKeeper",
            "the broker executes no requests of the controller, and after the session timeout others take over its partitions",
            "look for the coordinator's last messages in the broker's log",
        )
    elif state == WRONG_TREE:
        yield Finding(
            "error",
            "ZooKeeper",
            f"the tree at zookeeper.connect ({connect}) is not that of this broker's cluster: it was deleted, or ZooKeeper was "
            "replaced",
            "the broker is not registered: it serves the partitions that it has; topics, settings and leaders cannot change",
            "restore ZooKeeper from a backup and keep the brokers running; the broker's log names both cluster ids",
        )
    elif state == JOINING and not report["registered"]:
        yield Finding(
            "error",
            "membership",
            "the broker is not registered in ZooKeeper: it has not joined the cluster since its start",
            "it leads and follows no partitions",
            f"{check}; the broker's log says what it waits for (another broker with its id, other cluster id, ZooKeeper)",
        )
    elif state not in (CONNECTED, JOINING) and not report["registered"]:
        yield Finding(
            "error",
            "membership",
            f"the session in ZooKeeper has ended, and the broker could not register again{away}",
            "other brokers lead its partitions, and its records are not in sync",
            check,
        )
    elif state not in (CONNECTED, JOINING):
        timeout = zookeeper["session_timeout_s"]
        yield Finding(
            "error",
            "ZooKeeper",
            f"the broker has had no connection to ZooKeeper{away}",
            f"after the session timeout ({timeout:g} s) other brokers take over its partitions; meanwhile no leader and no "
            "in-sync replicas change",
            check,
        )
    elif not report["registered"]:
        yield Finding(
            "error",
            "membership",
            "the broker is connected to ZooKeeper, but is not registered",
            "other brokers lead its partitions",
            "the broker's log says why it cannot register; another broker may have its id or one of its addresses",
        )


def _replicas(replicas: Mapping[str, Any]) -> Iterator[Finding]:
    if replicas["under_replicated"] and replicas["under_replicated_s"] >= UNDER_REPLICATED_S:
        yield Finding(
            "warning",
            "under-replicated partitions",
            f"{count(replicas['under_replicated'], 'partition')} of this broker with fewer in-sync replicas than replicas, the "
            f"longest for {span(int(replicas['under_replicated_s'] * 1000))}",
            "the loss of one more broker may make these partitions unavailable, or lose acknowledged records",
            "`odradek topic list` names them, and `odradek partition explain TOPIC-N` shows which follower is behind; start "
            "its broker, or reassign the replica",
        )
    if replicas["pending_s"] >= PENDING_S:
        yield Finding(
            "error",
            "in-sync replicas",
            f"a change of in-sync replicas has waited for the controller for {span(int(replicas['pending_s'] * 1000))}",
            "a follower that failed stays in sync until the controller decides: writes with acks=all wait for it",
            'look for "did not judge" in this broker\'s log; check that the controller runs and can reach ZooKeeper',
        )
    if replicas["lost_tail_led"]:
        yield Finding(
            "error",
            "lost records",
            f"{count(replicas['lost_tail_led'], 'partition')} that this broker leads although their logs had lost records at "
            "their ends when it started",
            "records that were acknowledged while this broker alone was in sync, or with acks=1, may be lost",
            'look for "lost its end" in this broker\'s log, which names partitions and offsets, and write these records again '
            "if their producers can. The finding ends when another replica leads (kafka-leader-election), or with a restart",
        )
    if replicas["lost_tail"]:
        yield Finding(
            "warning",
            "incomplete logs",
            f"{count(replicas['lost_tail'], 'partition')} of this broker whose logs lost records at their ends when it "
            "started, and which are not in sync again",
            "if this broker becomes their leader before that, acknowledged records may be lost",
            "keep the brokers with the other replicas running, and start those that are down first; `odradek partition "
            "explain TOPIC-N` shows what a log lost",
        )
    if replicas["unfetched"]:
        yield Finding(
            "error",
            "followed partitions",
            f"{count(replicas['unfetched'], 'partition')} that this broker follows but does not fetch, because of an error",
            "these replicas fall behind and do not protect against the loss of the leader",
            "this broker's log names each partition and error; check the disk, and restart the broker",
        )


def unreachable(report: Mapping[str, Any], node_id: int) -> Iterator[Finding]:
    """A finding if the inter-broker listener of another live broker cannot be reached from this machine.

    :param report: see `judge_membership`. :param node_id: of the broker of this machine.
    """
    others = [broker for broker in report["brokers"] if broker["id"] != node_id]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        failures = list(pool.map(_failure, others))
    failed = [(broker, reason) for broker, reason in zip(others, failures, strict=True) if reason is not None]
    if failed:
        yield Finding(
            "error",
            "inter-broker listeners",
            f"{count(len(failed), 'broker')} cannot be reached from this machine: " + _names(failed),
            "this broker cannot replicate from these brokers, nor send them requests if it is the controller",
            f"check that every broker has a listener {report['inter_broker_listener']} whose advertised address can be reached "
            "from all brokers' machines (advertised.listeners, firewalls, names)",
        )


def _failure(broker: Mapping[str, Any]) -> str | None:
    """Why the inter-broker listener of a broker cannot be reached; None if it accepts connections."""
    if broker["host"] is None:
        return "it has no such listener"
    try:
        socket.create_connection((broker["host"], broker["port"]), CONNECT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _names(failed: Sequence[tuple[Mapping[str, Any], str]]) -> str:
    return abbreviate(
        f"broker {broker['id']}"
        + ("" if broker["host"] is None else f" at {broker['host']}:{broker['port']}")
        + f" ({reason})"
        for broker, reason in failed
    )
