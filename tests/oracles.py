"""Jars from Maven Central that tests compare with, one at a time.

They are kept under `.build/jars/`, whole or not at all (a rename publishes them), and are used from there without
Maven. Without Maven and without the jar, the test is skipped with that reason, or fails when `CI=true`. Test processes
that want the same jar at once wait for each other at a lock file, and there is one Maven at a time.
"""

from __future__ import annotations

import fcntl
import tempfile
from pathlib import Path

from tests.toolchains import BUILD_DIRECTORY, require_command, run_maven

JARS = BUILD_DIRECTORY / "jars"


def jar(group: str, artifact: str, version: str) -> Path:
    """The path of a jar by its Maven coordinates, fetched if need be. Raises RuntimeError if Maven fails."""
    path = JARS / f"{artifact}-{version}.jar"
    if path.exists():
        return path
    maven = require_command("mvn", "maven")
    JARS.mkdir(parents=True, exist_ok=True)
    with open(JARS / f"{path.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=JARS) as directory:
                coordinates = f"{group}:{artifact}:{version}"
                command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={coordinates}"]
                run_maven([*command, f"-DoutputDirectory={directory}"], Path(directory))
                (Path(directory) / path.name).replace(path)
    return path


def kafka_clients_jar(version: str) -> Path:
    """Kafka's own client library; among its resources are the definitions of all messages."""
    return jar("org.apache.kafka", "kafka-clients", version)
