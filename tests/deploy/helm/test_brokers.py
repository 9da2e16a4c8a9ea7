"""Three brokers with the files and commands of the chart: the users' Job, `helm test`, and an upgrade with a broken step.

The test takes the place of the kubelet and of the controller of StatefulSets: it starts and stops the programs as the pods say,
on 127.0.0.1. TLS, logins between brokers and access control are on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.certificates import authority
from tests.deploy.helm.chart import Object
from tests.deploy.helm.pod_files import PASSWORD
from tests.deploy.helm.pods import Pods
from tests.toolchains import require_command, unavailable
from tests.waiting import until

pytestmark = pytest.mark.deploy

BROKERS = 3


class Writer:
    """Produces numbers to a topic with acks=all in a thread; remembers those that were acknowledged."""

    def __init__(self, settings: Mapping[str, object], topic: str, first: int = 0) -> None:
        self._producer = Producer({**settings, "acks": "all", "linger.ms": 5, "enable.idempotence": True})
        self._topic, self._next, self._stop = topic, first, threading.Event()
        self.acknowledged: set[int] = set()
        self.failed: list[str] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.produce(self._topic, str(self._next), on_delivery=self._delivered)
            self._next += 1
            self._producer.poll(0.01)
        self._producer.flush(60)

    def _delivered(self, error: object, message: Message) -> None:
        if error is None:
            self.acknowledged.add(int(message.value() or b""))
        else:
            self.failed.append(str(error))

    def wait_more(self, count: int = 50) -> None:
        """Wait until `count` further records were acknowledged."""
        wanted = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= wanted, "records are acknowledged")

    def end(self) -> None:
        """Stop, and wait for all acknowledgements."""
        self._stop.set()
        self._thread.join()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def containers(template: Object) -> list[Object]:
    return [*template.get("initContainers", ()), *template["containers"]]


def test_a_broken_upgrade_stops_at_its_broker_and_loses_nothing(stack: ExitStack, tmp_path: Path) -> None:
    pods = Pods("tls-scram", tmp_path, stack)
    (job,) = (item for item in pods.objects if item["kind"] == "Job")
    (test,) = (item for item in pods.objects if item["kind"] == "Pod")
    for broker_id in range(BROKERS):
        pods.start(broker_id)
    # Without their user, the brokers are alive, and none of them is ready.
    for broker_id in range(BROKERS):
        until(lambda n=broker_id: pods.probe(n, "livenessProbe")[0] == 200, f"broker {broker_id} is alive")  # type: ignore[misc]
        assert pods.probe(broker_id, "readinessProbe")[0] == 503
    for container in containers(job["spec"]["template"]["spec"]):
        done = pods.run(container["command"])
        assert done.returncode == 0, done.stderr
        assert PASSWORD not in done.stdout + done.stderr
    pods.wait_ready(*range(BROKERS))
    done = pods.run(test["spec"]["containers"][0]["command"])
    assert done.returncode == 0, done.stderr
    done = pods.run(["odradek", "topic", "create", "orders", "-p", "3"])
    assert done.returncode == 0, done.stderr
    writer = Writer(pods.client(), "orders")
    try:
        writer.wait_more()
        # The upgrade: the broker with the highest id first, and its new configuration is wrong.
        assert pods.pre_stop().returncode == 0
        pods.stop(2)
        pods.start(2, pods.broken(2))
        until(
            lambda: "of its replicas are not in sync yet" in pods.probe(2, "readinessProbe")[1],
            lambda: f"the broken broker says why it is not ready: {pods.probe(2, 'readinessProbe')}\n{pods.log(2)}",
        )
        assert pods.probe(2, "livenessProbe")[0] == 200
        # The others serve, and a drain of another node waits, but not forever.
        writer.wait_more()
        late = pods.pre_stop("2s")
        assert late.returncode == 1
        assert "2" in late.stderr
        assert pods.probe(2, "readinessProbe")[0] == 503
        # The repaired upgrade replaces the broken broker, then the others.
        pods.stop(2)
        pods.start(2)
        pods.wait_ready(2)
        for broker_id in (1, 0):
            assert pods.pre_stop().returncode == 0
            pods.stop(broker_id)
            writer.wait_more()
            pods.start(broker_id)
            pods.wait_ready(broker_id)
        writer.wait_more()
    finally:
        writer.end()
    assert not writer.failed
    assert writer.acknowledged <= consumed(pods.client(), "orders", len(writer.acknowledged))


def consumed(settings: Mapping[str, object], topic: str, least: int) -> set[int]:
    """All numbers in the topic."""
    consumer = Consumer({**settings, "group.id": "all", "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    numbers: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])

        def read() -> bool:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                numbers.add(int(message.value() or b""))
            return len(numbers) >= least

        until(read, lambda: f"{len(numbers)} of {least} records")
    finally:
        consumer.close()
    return numbers


def test_a_single_broker_is_killed_and_starts_again_with_its_users(stack: ExitStack, tmp_path: Path) -> None:
    """In a container, each process that starts first has the process id 1: the former broker's id is always in use."""
    require_command("unshare", "util-linux")
    if os.geteuid() != 0:
        unavailable("a namespace of process ids needs root")
    pods = Pods("nodeport", tmp_path, stack, own_ids=True)
    ca = tmp_path / "authority.pem"
    authority().cert_pem.write_to_path(ca)
    alice = {
        "bootstrap.servers": pods.address(0, "9094"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(ca),
    }
    acknowledged: set[int] = set()
    for round_ in range(3):
        for container in pods.pod["initContainers"]:
            done = pods.run(container["command"])
            assert done.returncode == 0, done.stderr
        pods.start(0)
        pods.wait_ready(0)
        if round_ == 0:
            done = pods.run(["odradek", "topic", "create", "orders", "-p", "3"])
            assert done.returncode == 0, done.stderr
        writer = Writer(alice, "orders", first=10**6 * round_)
        writer.wait_more()
        writer.end()
        assert not writer.failed
        acknowledged |= writer.acknowledged
        if round_ < 2:
            pods.kill(0)
    assert acknowledged <= consumed(alice, "orders", len(acknowledged))
    pods.stop(0)
