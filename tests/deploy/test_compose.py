"""Stacks that were written for other images of Kafka run unchanged: five compose files in the style of public ones."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import toolchains

HERE = Path(__file__).parent
JAVA = pytest.mark.java
SECONDS = 240


@cache
def may_unshare() -> bool:
    command = ["unshare", "--map-root-user", "--net", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/var/lib"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def run(name: str) -> dict[str, Any]:
    """What `compose_stack` found; the log lines of the broker as objects."""
    if not may_unshare():
        toolchains.unavailable("needs namespaces for users, networks and mounts (unshare)")
    if name in ("confluent-zookeeper", "wurstmeister"):
        toolchains.kafka_jars("3.9.1")
    command = ["unshare", "--map-root-user", "--net", "--mount", sys.executable, "-m", "tests.deploy.compose_stack"]
    done = subprocess.run(
        [*command, str(HERE / f"compose/{name}.yml")],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        cwd=toolchains.REPOSITORY,
        env=os.environ | {"PYTHONPATH": f"{toolchains.REPOSITORY / 'broker'}{os.pathsep}{toolchains.REPOSITORY}"},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["healthy"] is None, "\n".join([found["healthy"], *found["log"]])
    found["log"] = [json.loads(line) for line in found["log"]]
    return found


STACKS = {
    "apache-kraft": ["localhost:9092", "broker:19092"],
    "confluent-zookeeper": ["localhost:29092", "broker:9092"],
    "bitnami": ["localhost:9094", "kafka:9092"],
    "wurstmeister": ["localhost:9092", "kafka:9093"],
    "stack": ["localhost:9092", "broker:29092"],
}
WITHOUT_EFFECT = {
    "apache-kraft": ["CLUSTER_ID"],
    "confluent-zookeeper": [
        "CONFLUENT_METRICS_ENABLE",
        "CONFLUENT_SUPPORT_CUSTOMER_ID",
        "KAFKA_CONFLUENT_BALANCER_TOPIC_REPLICATION_FACTOR",
        "KAFKA_CONFLUENT_LICENSE_TOPIC_REPLICATION_FACTOR",
        "KAFKA_HEAP_OPTS",
        "KAFKA_JMX_HOSTNAME",
        "KAFKA_JMX_PORT",
        "KAFKA_LOG4J_LOGGERS",
    ],
    "bitnami": [
        "ALLOW_PLAINTEXT_LISTENER",
        "BITNAMI_DEBUG",
        "KAFKA_ENABLE_KRAFT",
        "KAFKA_HEAP_OPTS",
        "KAFKA_KRAFT_CLUSTER_ID",
    ],
    "wurstmeister": [],
    "stack": ["CLUSTER_ID", "KAFKA_JMX_PORT"],
}
"""The variables that the broker names in one line."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[JAVA] if name in ("confluent-zookeeper", "wurstmeister") else []) for name in STACKS],
)
def test_the_stack_runs_unchanged(name: str) -> None:
    found = run(name)
    assert sorted(set(found["servers"])) == sorted(STACKS[name])
    for server, talk in found["talks"].items():
        assert talk == {"failed": [], "consumed": server, "brokers": [server]}
    assert found["code"] == 0
    log = found["log"]
    assert [line["message"] for line in log if line["level"] in ("ERROR", "FATAL", "WARN")] == []
    if name != "confluent-zookeeper":  # whose level is WARN
        about = [line["message"] for line in log if "have no effect: " in line["message"]]
        names = WITHOUT_EFFECT[name]
        assert about == ([f"these environment variables have no effect: {', '.join(names)}"] if names else [])
        controllers = [
            line["message"] for line in log if line["message"].startswith("ignoring settings of Kafka's controllers")
        ]
        assert len(controllers) == (0 if name == "wurstmeister" else 1)
    if name == "wurstmeister":
        assert (found["topics"]["orders"], found["topics"]["events"]) == (3, 1)
        assert (found["policies"]["orders"], found["policies"]["events"]) == ("delete", "compact")
    if name == "bitnami":
        assert found["topics"]["topic-kafka-9092"] == 3  # num.partitions
