"""A real Apache Kafka broker as the control of these tests: what fails against it is the test's own error.

Runs one JVM per `Peer` through the script that the environment variable KAFKA_PEER names (default
`../shared/peers/kafka/kafka`, from the root of the repository), and ends it with that script's `stop`.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import TracebackType

from tests import toolchains
from tests.ports import reserved
from tests.waiting import until

START_S = 300
"""How long Kafka may take to listen; the script gives up after a minute, which a busy machine needs."""
API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""Of version 0, without a client id: size, API, version, correlation id, length of the client id."""
_COMPILER = "-XX:TieredStopAtLevel=1"
"""The second compiler of Java needs more CPU time in the short life of a peer than its code saves."""


class Peer:
    """A Kafka broker on free ports of 127.0.0.1, data in `directory`; a context manager as `odradek.testing.Broker`.

    In values of `config`, "{port}" is the broker's port and "{controller}" the controller's. `version` is that of its release,
    None for the script's own choice.
    """

    def __init__(self, directory: Path, config: Mapping[str, str | int], version: str | None = None) -> None:
        default = toolchains.REPOSITORY.parent / "shared" / "peers" / "kafka" / "kafka"
        self._script = Path(os.environ.get("KAFKA_PEER", default))
        self._directory = directory
        self._config = config
        self._version = version
        self._port = 0
        self._ports = ExitStack()
        self.data_dir = directory / "data"

    @property
    def port(self) -> int:
        """The port of the broker."""
        return self._port

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of the broker."""
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> Peer:
        if not self._script.is_file():
            toolchains.unavailable(f"there is no {self._script} to start a Kafka broker with; KAFKA_PEER may name it")
        with ExitStack() as ports:
            self._port = ports.enter_context(reserved(2))  # the next one is the controller's
            ours = {"{port}": str(self._port), "{controller}": str(self._port + 1)}
            settings = [f"{key}={_with(str(value), ours)}" for key, value in self._config.items()]
            ports.callback(self._stop)
            started = subprocess.run(
                [self._script, "start", str(self._port), str(self._directory), *settings],
                env=self._environment(),
                stdout=subprocess.DEVNULL,
                timeout=300,
                check=False,
            )
            if started.returncode != 0:
                until(
                    lambda: self._listens() or not self._runs(), f"Kafka in {self._directory} listens or ends", START_S
                )
                if not self._listens():
                    started.check_returncode()
            if "SSL" not in str(self._config):  # a TLS listener does not answer a client without TLS
                until(self._answers, f"Kafka in {self._directory} answers a request", START_S)
            self._ports = ports.pop_all()
        return self

    def kill(self) -> None:
        """SIGKILL, as a crash; what it left stays."""
        os.kill(int((self._directory / "pid").read_text()), signal.SIGKILL)

    def _environment(self) -> dict[str, str]:
        options = [_COMPILER, *_archive(self._script, self._version)]
        return _environment(self._version) | {"JDK_JAVA_OPTIONS": " ".join(options)}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ports.close()

    def _stop(self) -> None:
        if (self._directory / "pid").exists():
            subprocess.run([self._script, "stop", str(self._directory)], timeout=300, check=True)

    def _listens(self) -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self._port)) == 0

    def _answers(self) -> bool:
        """Whether the broker answers: on a busy machine it may reset the first connections to its listener."""
        with socket.socket() as connection:
            connection.settimeout(START_S)
            try:
                connection.connect(("127.0.0.1", self._port))
                connection.sendall(API_VERSIONS_REQUEST)
                return bool(connection.recv(4))
            except ConnectionError:
                return False

    def _runs(self) -> bool:
        pid = self._directory / "pid"
        return pid.exists() and (Path("/proc") / pid.read_text().strip()).exists()


def _environment(version: str | None) -> dict[str, str]:
    chosen = {} if version is None else {"KAFKA_PEER_VERSION": version}
    return {**os.environ, "KAFKA_HEAP": "-Xms512m -Xmx512m", **chosen}


@cache
def _archive(script: Path, version: str | None) -> list[str]:
    """The options with which this Kafka takes its classes from an archive."""

    def load(option: str) -> None:
        environment = _environment(version) | {"JDK_JAVA_OPTIONS": f"{_COMPILER} {option}"}
        with tempfile.TemporaryDirectory(prefix="odradek-") as directory, reserved(2) as port:
            started = [str(script), "start", str(port), directory]
            subprocess.run(started, env=environment, stdout=subprocess.DEVNULL, timeout=START_S, check=True)
            subprocess.run([str(script), "stop", directory], timeout=START_S, check=True)

    return toolchains.class_archive("kafka-peer-classes", [str(version), _COMPILER, script.read_text()], load)


def _with(value: str, words: Mapping[str, str]) -> str:
    for word, instead in words.items():
        value = value.replace(word, instead)
    return value
