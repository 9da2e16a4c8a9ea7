"""A real Apache Kafka broker as the control of these tests: what fails against it is the test's own error.

Runs one JVM per `Peer` through the script that the environment variable KAFKA_PEER names (default
`../shared/peers/kafka/kafka`, from the root of the repository), and ends it with that script's `stop`.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from tests import toolchains
from tests.ports import reserved


class Peer:
    """A Kafka broker on free ports of 127.0.0.1, data in `directory`; a context manager as `odradek.testing.Broker`.

    `{port}` and `{controller}` in values of `config` stand for the ports of the broker and its controller.
    `version` is that of its release, None for the script's own choice.
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
            names = {"{port}": self._port, "{controller}": self._port + 1}
            settings = [f"{key}={value}" for key, value in self._config.items()]
            for name, port in names.items():
                settings = [setting.replace(name, str(port)) for setting in settings]
            subprocess.run(
                [self._script, "start", str(self._port), str(self._directory), *settings],
                env=self._environment(),
                stdout=subprocess.DEVNULL,
                timeout=300,
                check=True,
            )
            self._ports = ports.pop_all()
        return self

    def kill(self) -> None:
        """SIGKILL, as a crash; what it left stays."""
        os.kill(int((self._directory / "pid").read_text()), signal.SIGKILL)

    def _environment(self) -> dict[str, str]:
        version = {} if self._version is None else {"KAFKA_PEER_VERSION": self._version}
        return {**os.environ, "KAFKA_HEAP": "-Xms512m -Xmx512m", **version}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._ports:
            subprocess.run([self._script, "stop", str(self._directory)], timeout=300, check=True)
