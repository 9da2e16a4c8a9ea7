"""Compares the key table with the definitions in Kafka's jars."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from odradek.config.key import show
from odradek.config.table import BROKER_KEYS, TOPIC_KEYS

HERE = Path(__file__).parent
JARS = Path(os.environ.get("KAFKA_PEER_HOME", Path.home() / ".cache/kafka-peer"))

OWN_DEFAULTS = {
    "num.network.threads",  # the number of CPU cores
    "principal.builder.class",  # Java classes that this broker does not have
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.jwt.validator.class",
    "metric.reporters",
    "socket.listen.backlog.size",  # connections also wait while the broker's processes start
    "socket.receive.buffer.bytes",  # the operating system tunes it better: docs/decisions/0006-socket-buffers.md
    "remote.log.metadata.manager.class.name",
}
OWN_KEYS = {
    "odradek.core.dumps",
    "metadata.store",
    "metrics.listener",
    "odradek.max.partitions",
    "odradek.stop.timeout.ms",
}
OWN_KEYS |= {"odradek.stuck.lock.ms", "odradek.stuck.process.ms", "odradek.log.dir.reserve.bytes"}
OWN_KEYS |= {"odradek.authentication.timeout.ms", "odradek.ssl.reload.ms", "odradek.unauthenticated.max.connections"}
OWN_KEYS |= {"odradek.unauthenticated.max.connections.per.ip", "metrics.listener.tls"}
OWN_KEYS |= {"metrics.listener.password.file", "metrics.listener.token.file"}
OWN_KEYS |= {"odradek.connections.kept.bytes", "odradek.published.address"}
OWN_KEYS |= {"metrics.max.bytes", "odradek.id.max.length"}
OWN_KEYS |= {
    "odradek.group.offset.metadata.max.bytes",
    "odradek.group.offset.metadata.max.bytes.per.client",
}
OWN_KEYS |= {f"odradek.{kind}.max{of}" for kind in ("groups", "transactional.ids") for of in ("", ".per.client")}
OWN_KEYS |= {f"odradek.log.dir.{mark}.free.{unit}" for mark in ("soft", "hard") for unit in ("bytes", "percent")}
OWN_KEYS |= {"metrics.max.topics", "metrics.max.clients", "metrics.usage.idle.ms"}
OWN_KEYS |= {
    "odradek.fetch.session.max.partitions",
    "odradek.fetch.max.wait.ms",
    "odradek.inter.broker.listener.only",
    "odradek.produce.max.decompressed.bytes",
}
OWN_KEYS |= {"odradek.delegation.tokens.max", "odradek.delegation.tokens.max.per.principal"}
OWN_KEYS |= {"usage.spool.dir", "usage.spool.interval.ms", "usage.spool.max.bytes"}
OWN_KEYS |= {"log.level", "log.levels", "log.format"}
OWN_KEYS |= {"odradek.retention.exact", "odradek.segment.deletion.policy.class.name"}
OWN_KEYS |= {
    f"odradek.producer.state.{limit}" for limit in ("max.bytes", "client.max.percent", "partition.max.producers")
}
OWN_KEYS |= {"odradek.controller.eligible"}
OWN_KEYS |= {
    "odradek.transaction.version",
    "odradek.features.epoch",
    "odradek.transactions.after.unclean.start",
}
OWN_KEYS |= {f"odradek.zookeeper.{part}" for part in ("auth", "username", "password")}
OF_AUTHORIZER = {"super.users", "allow.everyone.if.no.acl.found"}
"""Keys that Kafka's authorizer reads, and that the broker's table does not have."""
DYNAMIC_ONLY = {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}


def kafka_keys(version, tmp_path):
    """(scope, name) to (type, default or None, importance)."""
    jars = JARS / version
    if shutil.which("java") is None or not (jars / ".complete").exists():
        pytest.skip(f"needs Java and the jars of Kafka {version}")
    command = ["java", "-Xmx96m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(HERE / "KafkaKeys.java")]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True, timeout=400)
    rows = [line.split("\t") for line in result.stdout.splitlines() if line.count("\t") == 4]
    return {(scope, name): (type_, None if value == "\0" else value, rank) for scope, name, type_, value, rank in rows}


@pytest.mark.java
@pytest.mark.timeout(900)
def test_types_defaults_and_importance_are_those_of_kafka_4_3(tmp_path):
    wrong = {}
    kafka = kafka_keys("4.3.0", tmp_path)
    assert len(kafka) > 300
    for (scope, name), (type_, default, importance) in kafka.items():
        key = (BROKER_KEYS if scope == "broker" else TOPIC_KEYS).get(name)
        if key is None:
            wrong[name] = "missing"
            continue
        ours = (key.type_name.upper(), show(key.default) or None, key.importance.upper())
        theirs = (type_, default or None, importance)
        if name in OWN_DEFAULTS:
            ours, theirs = (ours[0], None, ours[2]), (theirs[0], None, theirs[2])
        if name in ("node.id", "broker.id"):  # required there, but -1 in 3.9 as here
            ours = (ours[0], theirs[1], ours[2])
        if key.no_effect:  # such a row has no importance
            ours, theirs = ours[:2], theirs[:2]
        if ours != theirs:
            wrong[name] = (ours, theirs)
    assert wrong == {}


@pytest.mark.java
@pytest.mark.timeout(900)
def test_every_key_is_one_of_kafka_4_3_or_3_9(tmp_path):
    newer, older = kafka_keys("4.3.0", tmp_path), kafka_keys("3.9.1", tmp_path)
    missing = {name for scope, name in older if name not in (BROKER_KEYS if scope == "broker" else TOPIC_KEYS)}
    assert missing == set()
    public = {name for _, name in newer} | {name for _, name in older}
    assert (OWN_KEYS | DYNAMIC_ONLY).isdisjoint(public)
    unexplained = {*BROKER_KEYS, *TOPIC_KEYS} - public - OWN_KEYS - DYNAMIC_ONLY - OF_AUTHORIZER
    internal = {"internal.", "controller.performance.", "unstable.", "remote.log.", "share.coordinator.", "group."}
    internal |= {"producer.id.expiration.check", "unclean.leader.election.interval", "server.max", "log.initial.task"}
    internal |= {"metadata.log.segment.min", "zookeeper.metadata.migration.min"}
    assert {name for name in unexplained if not name.startswith(tuple(internal))} == set()
