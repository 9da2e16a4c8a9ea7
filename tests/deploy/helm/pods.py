"""The pods of a release as processes on 127.0.0.1, started and stopped as the kubelet and the StatefulSet's controller do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

from odradek.clients.security import ClientSecurity
from tests.deploy.helm import chart
from tests.deploy.helm.pod_files import PASSWORD, unpack
from tests.ports import reserved
from tests.waiting import until
from tests.zookeeper import chroot

PORTS = {"9091": 0, "9092": 1, "9404": 2, "9094": 3}
"""Ports of a pod, and their places among those of a broker of the test."""
STOP_S = 120
READY_S = 300.0
"""How long a broker may take to become ready: on a busy machine, a start waits for others that repeat their logins."""


class Pods:
    """The pods of a value set, as processes.

    Attributes: ``directory``: of their files and data; ``pod``: the specification of a broker's pod, ``broker`` its container;
    ``objects``: all objects of the chart. :param own_ids: each broker has a namespace of process ids (needs root).
    """

    def __init__(self, values: str, directory: Path, stack: ExitStack, own_ids: bool = False) -> None:
        self.directory, self._stack, self._own_ids = directory, stack, own_ids
        self.objects = chart.objects(chart.manifest(values))
        stateful_set = chart.only(self.objects, "StatefulSet")["spec"]
        self.pod = stateful_set["template"]["spec"]
        (self.broker,) = self.pod["containers"]
        self._files = unpack(values, directory)
        self._ports = [[stack.enter_context(reserved()) for _ in PORTS] for _ in range(stateful_set["replicas"])]
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        for file in self._files.glob("*.properties"):
            file.write_text(self._local(file.read_text()))
        users = directory / "run/odradek/user"
        users.mkdir(parents=True)
        for name in ("broker", "admin", "alice"):
            (users / name).write_text(PASSWORD)

    def _local(self, text: str) -> str:
        """A configuration whose addresses and directories are those of the test."""
        if "zookeeper.connect=" in text:
            text = re.sub(r"(?m)^zookeeper\.connect=.*$", f"zookeeper.connect={self._tree}", text)
        own = re.search(r"(?m)^node\.id=(\d+)$", text)
        if own is None:
            return text
        broker_id = int(own[1])
        text = text.replace("/var/lib/odradek/data", str(self.directory / f"data-{broker_id}"))
        text = text.replace("${env:ODRADEK_NODE_ADDRESS}:31090", f"127.0.0.1:{self._ports[broker_id][PORTS['9094']]}")
        text = re.sub(
            r"prod-odradek-(\d)\.prod-odradek-brokers\.kafka\.svc\.cluster\.local:(\d+)",
            lambda found: f"127.0.0.1:{self._ports[int(found[1])][PORTS[found[2]]]}",
            text,
        )
        return re.sub(
            r"(://|=):(9\d\d\d)\b", lambda found: f"{found[1]}127.0.0.1:{self._ports[broker_id][PORTS[found[2]]]}", text
        )

    @cached_property
    def _tree(self) -> str:
        return chroot()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the listener for clients: what the Service of the first connection leads to."""
        return ",".join(f"127.0.0.1:{ports[1]}" for ports in self._ports)

    def command(self, words: list[str]) -> tuple[list[str], dict[str, str]]:
        """The command of a container with the paths of the test, and its environment."""
        assert words[0] == "odradek"
        paths = [re.sub(r"^/(etc|run)/", rf"{self.directory}/\1/", word) for word in words[1:]]
        paths = [word.replace("/var/lib/odradek/data", str(self.directory / "data-0")) for word in paths]
        client = self._files / "client.properties"
        environment = {"ODRADEK_BOOTSTRAP_SERVERS": self.bootstrap_servers, "ODRADEK_COMMAND_CONFIG": str(client)}
        return [sys.executable, "-m", "odradek.cli.main", *paths], os.environ | environment

    def run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command of a container to its end."""
        command, environment = self.command(words)
        command = [*self._namespace(), *command]
        return subprocess.run(command, capture_output=True, text=True, timeout=400, env=environment)

    def start(self, broker_id: int, file: Path | None = None) -> None:
        """Start a broker as its container does. :param file: another configuration."""
        words = [*self.broker["command"], *self.broker["args"]]
        words = [word.replace("$(ODRADEK_NODE_ID)", str(broker_id)) for word in words]
        command, environment = self.command(words)
        if file is not None:
            command[-1] = str(file)
        command = [*self._namespace(), *command]
        log = self._stack.enter_context((self.directory / f"log-{broker_id}").open("ab"))
        environment["ODRADEK_NODE_ID"] = str(broker_id)
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        self._running[broker_id] = process
        self._stack.callback(self._kill, process)

    def _namespace(self) -> list[str]:
        return ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"] if self._own_ids else []

    def kill(self, broker_id: int) -> None:
        """Kill all processes of a broker, as the kernel or a lost node does."""
        self._kill(self._running.pop(broker_id))

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self, broker_id: int) -> None:
        """Stop a broker as the kubelet does after preStop."""
        process = self._running.pop(broker_id)
        os.kill(self._program(process.pid), signal.SIGTERM)
        assert process.wait(STOP_S) == 0, self.log(broker_id)

    def _program(self, pid: int) -> int:
        """The process of the container's command: `unshare` ignores SIGTERM, and has only this child."""
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text()) if self._own_ids else pid

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
                READY_S,
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

    def address(self, broker_id: int, port: str) -> str:
        """Where a broker listens in place of a port of its pod."""
        return f"127.0.0.1:{self._ports[broker_id][PORTS[port]]}"

    def client(self) -> Mapping[str, object]:
        """Settings of librdkafka for the user of client.properties."""
        return ClientSecurity.from_file(self._files / "client.properties").librdkafka() | {
            "bootstrap.servers": self.bootstrap_servers
        }
