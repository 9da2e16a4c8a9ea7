"""Karapace as schema registry, with Avro clients: schemas survive kills, and two instances elect a master through a group.

Karapace is in no package registry: `KARAPACE_SOURCE` names a checkout of its release 3.16.0. Its requirements come from PyPI.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from odradek.testing import Broker
from tests import toolchains
from tests.clients.killed_programs import running
from tests.ports import reserved
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("karapace"), pytest.mark.timeout(900)]

PACKAGES = [
    "accept-types==0.4.1",
    "aiohttp==3.9.5",
    "aiokafka==0.10.0",
    "async-timeout==4.0.3",
    "avro==1.12.0",
    "cachetools==5.3.3",
    "confluent-kafka[avro]==2.4.0",
    "isodate==0.6.1",
    "jsonschema==4.22.0",
    "lz4==4.3.3",
    "networkx==3.1",
    "prometheus-client==0.20.0",
    "protobuf==3.20.3",
    "pyjwt==2.8.0",
    "python-dateutil==2.9.0.post0",
    "python-snappy==0.7.1",
    "rich==13.7.1",
    "tenacity==9.0.0",
    "typing-extensions==4.12.1",
    "ujson==5.10.0",
    "watchfiles==0.22.0",
    "xxhash==3.4.1",
    "yarl==1.9.4",
    "zstandard==0.22.0",
]
"""What its requirements.txt names, with Avro as it was released instead of a commit of its repository."""
PATIENCE_S = 120.0
TOPIC, COUNT = "orders", 200


def python_with_packages() -> list[str]:
    """The command line of an interpreter that has Karapace and its clients. Skips the test without `KARAPACE_SOURCE`."""
    source = os.environ.get("KARAPACE_SOURCE")
    if source is None:  # also in CI: nothing that CI reaches has it
        pytest.skip("KARAPACE_SOURCE does not name a checkout of Karapace 3.16.0, which PyPI does not have")

    def install(output: Path) -> None:
        toolchains.fetch([sys.executable, "-m", "pip", "install", "-q", "--target", str(output), *PACKAGES])

    packages = toolchains.make_product("karapace-packages", [], install, PACKAGES)
    return ["env", f"PYTHONPATH={source}:{packages}", sys.executable]


class Registry:
    """An instance of Karapace at a port of 127.0.0.1."""

    def __init__(self, directory: Path, servers: str, port: int, python: list[str]) -> None:
        directory.mkdir()
        settings = {
            "bootstrap_uri": servers,
            "host": "127.0.0.1",
            "port": port,
            "advertised_hostname": "127.0.0.1",
            "advertised_port": port,
            "karapace_registry": True,
            "karapace_rest": False,
            "group_id": "schema-registry",
            "topic_name": "_schemas",
            "replication_factor": 1,
            "session_timeout_ms": 6000,
        }
        config = directory / "karapace.config.json"
        config.write_text(json.dumps(settings))
        self.url = f"http://127.0.0.1:{port}"
        self._log = directory / "karapace.log"
        self._command = [*python, "-m", "karapace.karapace_all", str(config)]
        self._process = ExitStack()

    def start(self) -> None:
        self._process.enter_context(running(self._command, self._log))

    def kill(self) -> None:
        self._process.close()

    def ask(self, path: str, method: str = "GET", body: object = None) -> Any:
        """The registry's response, decoded. Raises OSError."""
        request = urllib.request.Request(self.url + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return json.load(response)

    def until_writable(self) -> None:
        """Wait until the registry accepts a change: it has read all schemas, and it or another instance is the master."""

        def accepts() -> bool:
            try:
                return bool(self.ask("/config", "PUT", {"compatibility": "BACKWARD"}))
            except OSError:
                return False

        until(accepts, lambda: f"{self.url} accepts changes: {self.log()}", PATIENCE_S)

    def until_versions(self, versions: list[int]) -> None:
        """Wait until it knows the versions of the records' schema."""
        until(lambda: self.ask(f"/subjects/{TOPIC}-value/versions") == versions, self.log, PATIENCE_S)

    def log(self) -> str:
        return self._log.read_text()[-3000:]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker({"num.network.threads": 2}, {TOPIC: 1}, directory=tmp_path / "broker") as started:
        yield started


def client(python: list[str], action: str, broker: Broker, registry: Registry, *arguments: object) -> str:
    """What `avro_client.py` prints. Raises subprocess.CalledProcessError if it fails."""
    program = str(Path(__file__).with_name("avro_client.py"))
    command = [*python, program, action, broker.bootstrap_servers, registry.url, TOPIC, *map(str, arguments)]
    return subprocess.run(command, check=True, text=True, capture_output=True, timeout=PATIENCE_S).stdout


def test_avro_records_are_read_with_the_schemas_they_were_written_with(broker: Broker, tmp_path: Path) -> None:
    python = python_with_packages()
    with ExitStack() as stack:
        ports = [stack.enter_context(reserved()) for _ in range(2)]
        servers = broker.bootstrap_servers
        registries = [Registry(tmp_path / f"karapace-{n}", servers, port, python) for n, port in enumerate(ports)]
        for registry in registries:
            stack.callback(registry.kill)
            registry.start()
        for registry in registries:
            registry.until_writable()
        # whichever is not the master sends what it is asked to write to the other one
        client(python, "write", broker, registries[0], 1, 0, COUNT)
        client(python, "write", broker, registries[1], 2, COUNT, COUNT)
        with pytest.raises(subprocess.CalledProcessError) as refused:
            client(python, "write", broker, registries[1], "incompatible", 0, 1)
        assert "409" in refused.value.stderr
        for registry in registries:
            until(
                lambda registry=registry: len(registry.ask(f"/subjects/{TOPIC}-value/versions")) == 2, "both are known"
            )
        expected = [
            {
                "id": number,
                "customer": f"customer {number % 17}",
                "tags": ["tag"] * (number % 3 if number >= COUNT else 0),
            }
            for number in range(2 * COUNT)
        ]
        for killed, other in (registries, registries[::-1]):
            schemas = other.ask("/schemas")
            killed.kill()
            broker.restart()
            other.until_writable()
            killed.start()
            killed.until_writable()
            assert killed.ask("/schemas") == other.ask("/schemas") == schemas
            found = client(python, "read", broker, killed, 2 * COUNT)
            assert [json.loads(line) for line in found.splitlines()] == expected
