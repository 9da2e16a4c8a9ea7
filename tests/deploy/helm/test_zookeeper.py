"""The configuration and the probes of the sub-chart with three real servers of ZooKeeper, of the version in Kafka's jars."""

from __future__ import annotations

import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.deploy.helm import chart
from tests.ports import reserved
from tests.toolchains import kafka_jars
from tests.waiting import until

pytestmark = pytest.mark.deploy

MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
OPTIONS = ("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
PORTS = (2181, 2888, 3888, 8080)


class Servers:
    """The servers of the sub-chart as processes, by their ids."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory, self._stack = directory, stack
        found = chart.objects(chart.manifest("cluster"))
        name = f"{chart.RELEASE}-zookeeper"
        self._text = chart.only(found, "ConfigMap", name)["data"]["zoo.cfg"]
        pod = chart.only(found, "StatefulSet", name)["spec"]["template"]["spec"]
        (self._container,) = pod["containers"]
        self.ids = [int(found) for found in re.findall(r"(?m)^server\.(\d+)=", self._text)]
        self._ports = {i: {port: stack.enter_context(reserved()) for port in PORTS} for i in self.ids}
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, server_id: int) -> None:
        """Start a server with the file of the chart, whose addresses are those of the test."""
        ports, data = self._ports[server_id], self._directory / f"data-{server_id}"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(f"{server_id}\n")
        text = self._text.replace("dataDir=/data", f"dataDir={data}").replace("tickTime=2000", "tickTime=500")
        text = text.replace("clientPort=2181", f"clientPort={ports[2181]}").replace("=8080", f"={ports[8080]}")

        def local(found: re.Match[str]) -> str:
            others = self._ports[int(found[1])]
            return f"server.{found[1]}=127.0.0.1:{others[2888]}:{others[3888]}"

        text, count = re.subn(r"(?m)^server\.(\d+)=\S+:2888:3888$", local, text)
        assert count == len(self.ids)
        file = self._directory / f"zoo-{server_id}.cfg"
        file.write_text(text)
        log = self._stack.enter_context((self._directory / f"log-{server_id}").open("ab"))
        command = ["java", *OPTIONS, "-cp", f"{kafka_jars('3.9.1')}/*", MAIN, str(file)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._running[server_id] = process
        self._stack.callback(self._end, process)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()

    def stop(self, server_id: int) -> None:
        """End a server as the kubelet does."""
        process = self._running.pop(server_id)
        process.terminate()
        process.wait(60)

    def is_alive(self, server_id: int) -> bool:
        """Whether the liveness probe succeeds."""
        url = f"http://127.0.0.1:{self._ports[server_id][8080]}{self._container['livenessProbe']['httpGet']['path']}"
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def is_ready(self, server_id: int) -> bool:
        """Whether the readiness probe succeeds."""
        command = [
            word.replace("/2181", f"/{self._ports[server_id][2181]}")
            for word in self._container["readinessProbe"]["exec"]["command"]
        ]
        return subprocess.run(command, capture_output=True, timeout=30).returncode == 0

    def log(self, server_id: int) -> str:
        return (self._directory / f"log-{server_id}").read_text(errors="replace")[-3000:]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(tmp_path, stack)


def test_servers_without_a_quorum_are_alive_and_not_ready(servers: Servers) -> None:
    assert servers.ids == [1, 2, 3]
    servers.start(1)
    until(lambda: servers.is_alive(1), lambda: f"server 1 is alive: {servers.log(1)}")
    assert not servers.is_ready(1)
    servers.start(2)
    until(lambda: servers.is_ready(1) and servers.is_ready(2), lambda: f"two servers are ready: {servers.log(1)}")
    servers.start(3)
    until(lambda: servers.is_ready(3), lambda: f"server 3 is ready: {servers.log(3)}")
    servers.stop(1)
    until(lambda: servers.is_ready(2) and servers.is_ready(3), lambda: f"the others are ready: {servers.log(2)}")
    servers.stop(2)
    until(lambda: not servers.is_ready(3), "the last server is not ready")
    until(lambda: servers.is_alive(3), lambda: f"server 3 is alive: {servers.log(3)}")
