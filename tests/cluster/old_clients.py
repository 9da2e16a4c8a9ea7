"""The clients of Kafka 0.8.2.2 that use ZooKeeper, in the JVM of a test: high-level consumer, SimpleConsumer, old producer."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.toolchains import zookeeper_clients_command

Record = tuple[str, int, int, str]
"""Topic, partition, offset, value."""

LATEST, EARLIEST = -1, -2


class OldClientError(Exception):
    """The client raised an exception; the text is the exception's."""


class OldClients:
    """A JVM with clients. Used as a context manager, which ends it. Methods raise OldClientError.

    :param connect: `zookeeper.connect`. :param log_file: receives what the clients log.
    """

    def __init__(self, connect: str, log_file: Path) -> None:
        self._connect = connect
        self._log_file = log_file
        self._process: subprocess.Popen[str]

    def __enter__(self) -> "OldClients":
        with open(self._log_file, "ab") as log:
            self._process = subprocess.Popen(
                zookeeper_clients_command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End the JVM with SIGKILL; its consumers do not leave their groups."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def do(self, what: str, **arguments: object) -> Any:
        """Execute a command of `OldClients.java`."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the JVM ended: {self.log_tail()}"
        answer = json.loads(line)
        if "error" in answer:
            raise OldClientError(answer["error"])
        return answer["result"]

    def log_tail(self) -> str:
        """The end of what the clients have logged."""
        return self._log_file.read_text(errors="replace")[-6000:]

    # -- high-level consumer --------------------------------------------------------------------------------------

    def consume(
        self,
        name: str,
        group: str,
        topics: Sequence[str] = (),
        topic_filter: Mapping[str, str] | None = None,
        **settings: object,
    ) -> None:
        """Start a consumer, with a stream for each topic or one for a filter.

        :param topic_filter: a regular expression of names, by the name "whitelist" or "blacklist".
        :param settings: properties of the consumer with underscores for dots.
        """
        properties = {
            "zookeeper.connect": self._connect,
            "zookeeper.session.timeout.ms": 6000,
            "group.id": group,
            "consumer.id": name,
            "auto.offset.reset": "smallest",
            "auto.commit.enable": "false",
            "rebalance.max.retries": 60,
            "rebalance.backoff.ms": 500,
            "refresh.leader.backoff.ms": 100,
            "offsets.channel.backoff.ms": 200,
            "socket.timeout.ms": 10_000,
        } | {key.replace("_", "."): value for key, value in settings.items()}
        source: dict[str, object] = {"topics": list(topics)} if topic_filter is None else dict(topic_filter)
        self.do("consume", name=name, properties=properties, **source)

    def records(self, name: str) -> list[Record]:
        """All records that a consumer has received, in its order."""
        return [tuple(record) for record in self.do("records", name=name)]

    def commit(self, name: str) -> None:
        """Commit what a consumer has received."""
        self.do("commit", name=name)

    def stop(self, name: str) -> None:
        """Let a consumer leave its group."""
        self.do("stop", name=name)

    # -- producer and SimpleConsumer ------------------------------------------------------------------------------

    def produce(
        self, servers: Sequence[str], topic: str, partition: int, values: Sequence[str], **settings: object
    ) -> None:
        """Send values to a partition with the old producer, and close it; it has sent all of them when this returns."""
        properties = {
            "metadata.broker.list": ",".join(servers),
            "producer.type": "sync",
            "message.send.max.retries": 100,
            "retry.backoff.ms": 200,
        } | {key.replace("_", "."): value for key, value in settings.items()}
        self.do("produce", topic=topic, partition=partition, values=list(values), properties=properties)

    def ask(self, what: str, server: str, topic: str, partition: int, **arguments: object) -> Any:
        """A request of SimpleConsumer about a partition to one broker (host:port)."""
        host, _, port = server.rpartition(":")
        return self.do(what, host=host, port=int(port), topic=topic, partition=partition, **arguments)
