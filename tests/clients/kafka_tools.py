"""Kafka's command-line tools in one JVM (java/Tools.java), so that a test may run many of them; one JVM a broker.

The JVM is a child of the test process and ends when its input does.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests import toolchains
from tests.answering_jvm import AnsweringJvm

CLASSES = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "configs": "kafka.admin.ConfigCommand",
    "groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "all-groups": "org.apache.kafka.tools.GroupsCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
"""The scripts of Kafka's distribution without `kafka-` and `.sh`, and what they run."""


PATIENCE_S = 240
"""How long one tool may take."""


class ToolResult(NamedTuple):
    """What a tool ended with and printed."""

    code: int
    out: str
    err: str


class KafkaTools:
    """A JVM that runs tools against one broker.

    :param errors: the file of what the JVM itself complains of. :param version: of the tools.
    """

    def __init__(self, bootstrap_servers: str, errors: Path, version: str = toolchains.KAFKA_VERSION) -> None:
        self.bootstrap_servers = bootstrap_servers
        command = toolchains.java_command("Tools", classes=True, version=version)
        self._jvm = AnsweringJvm(command, errors, PATIENCE_S)

    def __enter__(self) -> KafkaTools:
        self._jvm.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._jvm.__exit__(kind, error, traceback)

    def run(self, tool: str, *arguments: str) -> ToolResult:
        """Run one of `CLASSES`; `--bootstrap-server` is added."""
        line = json.dumps([CLASSES[tool], "--bootstrap-server", self.bootstrap_servers, *arguments])
        answer = self._jvm.ask(line)
        result = json.loads(answer)
        return ToolResult(result["code"], result["out"], result["err"])

    def run_alone(self, tool: str, *arguments: str) -> ToolResult:
        """Run a tool in a separate JVM."""
        command = toolchains.java_command(CLASSES[tool], "--bootstrap-server", self.bootstrap_servers, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        return ToolResult(done.returncode, done.stdout, done.stderr)
