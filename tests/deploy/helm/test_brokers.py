"""Three brokers with the files and commands of the chart: the users' Job, `helm test`, and an upgrade with a broken step.

The test takes the place of the kubelet and of the controller of StatefulSets: it starts and stops the programs as the pods say,
on 127.0.0.1. TLS, logins between brokers and access control are on.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from odradek.clients.security import ClientSecurity
from tests.deploy.helm import chart
from tests.deploy.helm.chart import Object
from tests.deploy.helm.pod_files import PASSWORD, unpack
from tests.ports import reserved
from tests.waiting import until
from tests.zookeeper import chroot

pytestmark = pytest.mark.deploy

BROKERS = 3
PORTS = {"9091": 0, "9092": 1, "9404": 2}
"""Ports of a pod, and their places among those of a broker of the test."""
STOP_S = 120


class Pods:
    """The pods of a release, as processes. ``directory`` has their files."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory, self._stack = directory, stack
        found = chart.objects(chart.manifest("tls-scram"))
        self.broker = chart.only(found, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]
        (self.job,) = (item for item in found if item["kind"] == "Job")
        (self.test,) = (item for item in found if item["kind"] == "Pod")
        self._files = unpack("tls-scram", directory)
        self._ports = [[stack.enter_context(reserved()) for _ in PORTS] for _ in range(BROKERS)]
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        connect = chroot()
        for file in self._files.glob("*.properties"):
            file.write_text(self._local(file, connect))
        users = directory / "run/odradek/user"
        users.mkdir()
        for name in ("broker", "admin"):
            (users / name).write_text(PASSWORD)

    def _local(self, file: Path, connect: str) -> str:
        """A configuration whose addresses and directories are those of the test."""
        text = file.read_text()
        text = re.sub(r"(?m)^zookeeper\.connect=.*$", f"zookeeper.connect={connect}", text)
        own = re.search(r"(?m)^node\.id=(\d+)$", text)
        if own is None:
            return text
        broker_id = int(own[1])
        text = text.replace("/var/lib/odradek/data", str(self.directory / f"data-{broker_id}"))
        text = re.sub(
            r"prod-odradek-(\d)\.prod-odradek-brokers\.kafka\.svc\.cluster\.local:(\d+)",
            lambda found: f"127.0.0.1:{self._ports[int(found[1])][PORTS[found[2]]]}",
            text,
        )
        return re.sub(
            r"(://|=):(9\d\d\d)\b", lambda found: f"{found[1]}127.0.0.1:{self._ports[broker_id][PORTS[found[2]]]}", text
        )

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the listener for clients: what the Service of the first connection leads to."""
        return ",".join(f"127.0.0.1:{ports[1]}" for ports in self._ports)

    def command(self, words: list[str]) -> tuple[list[str], dict[str, str]]:
        """The command of a container with the paths of the test, and its environment."""
        assert words[0] == "odradek"
        paths = [re.sub(r"^/(etc|run)/", rf"{self.directory}/\1/", word) for word in words[1:]]
        client = self._files / "client.properties"
        environment = {"ODRADEK_BOOTSTRAP_SERVERS": self.bootstrap_servers, "ODRADEK_COMMAND_CONFIG": str(client)}
        return [sys.executable, "-m", "odradek.cli.main", *paths], os.environ | environment

    def run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command of a container to its end."""
        command, environment = self.command(words)
        return subprocess.run(command, capture_output=True, text=True, timeout=400, env=environment)

    def start(self, broker_id: int, file: Path | None = None) -> None:
        """Start a broker as its container does. :param file: another configuration."""
        words = [*self.broker["command"], *self.broker["args"]]
        words = [word.replace("$(ODRADEK_NODE_ID)", str(broker_id)) for word in words]
        command, environment = self.command(words)
        if file is not None:
            command[-1] = str(file)
        log = self._stack.enter_context((self.directory / f"log-{broker_id}").open("ab"))
        environment["ODRADEK_NODE_ID"] = str(broker_id)
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        self._running[broker_id] = process
        self._stack.callback(self._kill, process)

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self, broker_id: int) -> None:
        """Stop a broker as the kubelet does after preStop."""
        process = self._running.pop(broker_id)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S) == 0, self.log(broker_id)

    def pre_stop(self, timeout: str | None = None) -> subprocess.CompletedProcess[str]:
        """The command before a stop. :param timeout: another limit."""
        words = list(self.broker["lifecycle"]["preStop"]["exec"]["command"])
        if timeout is not None:
            words[words.index("--timeout") + 1] = timeout
        return self.run(words)

    def log(self, broker_id: int) -> str:
        """The last lines of a broker's log."""
        return (self.directory / f"log-{broker_id}").read_text()[-4000:]

    def probe(self, broker_id: int, name: str) -> tuple[int, str]:
        """Status and text of a probe (`readinessProbe`); 0 without a response."""
        path = self.broker[name]["httpGet"]["path"]
        url = f"http://127.0.0.1:{self._ports[broker_id][2]}{path}"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def wait_ready(self, *broker_ids: int) -> None:
        """Wait until the readiness probe of each broker succeeds."""
        for broker_id in broker_ids:
            until(
                lambda n=broker_id: self.probe(n, "readinessProbe")[0] == 200,  # type: ignore[misc]
                lambda n=broker_id: f"broker {n} is ready: {self.probe(n, 'readinessProbe')}\n{self.log(n)}",  # type: ignore[misc]
            )

    def broken(self, broker_id: int) -> Path:
        """A configuration of a broker whose password for other brokers is wrong."""
        secrets = self.directory / "run/odradek/secrets"
        other = secrets / "other"
        other.mkdir(exist_ok=True)
        (other / "broker").write_text("another password")
        text = (self._files / f"server-{broker_id}.properties").read_text()
        assert f"{secrets}/kafka-users:broker" in text
        file = self.directory / "broken.properties"
        file.write_text(text.replace(f"{secrets}/kafka-users:broker", f"{other}:broker"))
        return file

    def client(self) -> Mapping[str, object]:
        """Settings of librdkafka for the user of client.properties."""
        return ClientSecurity.from_file(self._files / "client.properties").librdkafka() | {
            "bootstrap.servers": self.bootstrap_servers
        }


class Writer:
    """Produces numbers to a topic with acks=all in a thread; remembers those that were acknowledged."""

    def __init__(self, settings: Mapping[str, object], topic: str) -> None:
        self._producer = Producer({**settings, "acks": "all", "linger.ms": 5, "enable.idempotence": True})
        self._topic, self._stop = topic, threading.Event()
        self.acknowledged: set[int] = set()
        self.failed: list[str] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(self._topic, str(number), on_delivery=self._delivered)
            number += 1
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
def pods(tmp_path: Path) -> Iterator[Pods]:
    with ExitStack() as stack:
        yield Pods(tmp_path, stack)


def containers(template: Object) -> list[Object]:
    return [*template.get("initContainers", ()), *template["containers"]]


def test_a_broken_upgrade_stops_at_its_broker_and_loses_nothing(pods: Pods) -> None:
    for broker_id in range(BROKERS):
        pods.start(broker_id)
    # Without their user, the brokers are alive, and none of them is ready.
    for broker_id in range(BROKERS):
        until(lambda n=broker_id: pods.probe(n, "livenessProbe")[0] == 200, f"broker {broker_id} is alive")  # type: ignore[misc]
        assert pods.probe(broker_id, "readinessProbe")[0] == 503
    for container in containers(pods.job["spec"]["template"]["spec"]):
        done = pods.run(container["command"])
        assert done.returncode == 0, done.stderr
        assert PASSWORD not in done.stdout + done.stderr
    pods.wait_ready(*range(BROKERS))
    done = pods.run(pods.test["spec"]["containers"][0]["command"])
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
