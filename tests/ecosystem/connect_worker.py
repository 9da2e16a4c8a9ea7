"""A worker of Kafka Connect in distributed mode, a process of its own, and its REST API. Runs in the tests' process."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.ecosystem.jars import java_command
from tests.ports import reserved
from tests.waiting import until

STRING = "org.apache.kafka.connect.storage.StringConverter"
SETTINGS: dict[str, str | int] = {
    "group.id": "connect",
    "key.converter": STRING,
    "value.converter": STRING,
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "config.storage.replication.factor": 1,
    "offset.storage.replication.factor": 1,
    "status.storage.replication.factor": 1,
    "offset.flush.interval.ms": 200,
    "scheduled.rebalance.max.delay.ms": 0,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 500,
    "plugin.discovery": "service_load",
}
"""Of a worker: docs/operate/ecosystem.md has the same with comments."""
PATIENCE_S = 120.0


class Refused(Exception):
    """A response with an error. ``code``: the HTTP status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class ConnectWorker:
    """A worker that can be killed and started again at the same address.

    :param directory: gets its settings and its log. :param servers: the broker's address. :param settings: added to `SETTINGS`.
    """

    def __init__(self, directory: Path, servers: str, settings: Mapping[str, str | int] = {}) -> None:
        self._directory = directory
        self._settings = {**SETTINGS, "bootstrap.servers": servers, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._held = ExitStack()

    def __enter__(self) -> ConnectWorker:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._port = self._held.enter_context(reserved())
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self._held.close()

    @property
    def name(self) -> str:
        """What the REST API calls this worker: `host:port`."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the worker; `until_ready` waits for it."""
        settings = {**self._settings, "listeners": f"http://{self.name}"}
        properties = self._directory / "worker.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = java_command("connect", "org.apache.kafka.connect.cli.ConnectDistributed", str(properties))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        """End the worker by SIGKILL, unless it has ended."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End the worker by SIGTERM, and wait for it."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    def until_ready(self) -> None:
        """Wait until the worker is a member of its group and has read its topics."""
        until(lambda: self._responds(), lambda: f"the worker responds: {self.log()}", PATIENCE_S)

    def _responds(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"the worker ended: {self.log()}"
        try:
            self.ask("GET", "/connectors")
        except (OSError, Refused):
            return False
        return True

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The response to a request, decoded; None if it is empty. Raises Refused, OSError."""
        request = urllib.request.Request(f"http://{self.name}{path}", method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                text = response.read()
        except urllib.error.HTTPError as error:
            raise Refused(error.code, error.read().decode()) from error
        return json.loads(text) if text else None

    def ask_patiently(self, method: str, path: str, body: object = None) -> Any:
        """As `ask`, again while the workers rebalance (409) or one of them is not reached (5xx)."""

        def attempt() -> list[Any]:
            try:
                return [self.ask(method, path, body)]
            except Refused as refused:
                if refused.code != 409 and refused.code < 500:
                    raise
            return []

        (response,) = until(attempt, lambda: f"{method} {path} succeeds: {self.log()}", PATIENCE_S)
        return response

    def configure(self, connector: str, config: Mapping[str, str]) -> None:
        """Create a connector, or change it, and wait until it and its task run."""
        self.ask_patiently("PUT", f"/connectors/{connector}/config", dict(config))
        self.until_state(connector, "RUNNING")

    def until_state(self, connector: str, state: str) -> dict[str, Any]:
        """Wait until a connector and its tasks, one at least unless it is stopped, are in a state; its status."""
        status: dict[str, Any] = {}

        def reached() -> bool:
            try:
                status.update(self.ask("GET", f"/connectors/{connector}/status"))
            except Refused:
                return False
            assert all(task["state"] != "FAILED" for task in status["tasks"]), status
            states = {status["connector"]["state"], *(task["state"] for task in status["tasks"])}
            return states == {state} and (state == "STOPPED" or bool(status["tasks"]))

        until(reached, lambda: f"{connector} is {state}: {status} {self.log()}", PATIENCE_S)
        return status

    def log(self) -> str:
        """The end of what the worker printed."""
        return self._log.read_text()[-3000:]

    @property
    def _log(self) -> Path:
        return self._directory / "worker.log"
