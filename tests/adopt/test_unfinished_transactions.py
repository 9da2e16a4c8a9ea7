"""Transactions that one broker leaves unfinished, and another one on the same directory ends: Kafka and ours, both ways.

A transaction is prepared when its end is decided and its markers are not written. Kafka's markers are held back by a gate. Ours
cannot be written to one of the partitions: its log is larger than the files that the coordinator process may write.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from odradek.testing import Broker
from tests.api.transactional_log import filtered
from tests.cluster.peer_processes import VERSION as OLD_VERSION
from tests.cluster.peer_processes import JavaProcess, Peers
from tests.ports import reserved
from tests.toolchains import KAFKA_VERSION
from tests.transactions_against_kafka import sides
from tests.transactions_against_kafka.marker_gate import MarkerGate
from tests.transactions_against_kafka.sides import CONFIG, Side
from tests.transactions_against_kafka.transaction_talk import Producer
from tests.waiting import until
from tests.wire import batch, whole

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

DATA, SOURCE = "data", "source"
SHORT_MS, LONG_MS = 1, 600_000
NEVER = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 3_600_000}
"""With this setting, the coordinator does not check for transactions that exceeded their timeout."""
ENDS = {
    "committed": "CompleteCommit",
    "aborted": "CompleteAbort",
    "open": "CompleteAbort",
    "to-commit": "CompleteCommit",
    "to-abort": "CompleteAbort",
}
"""The transactional ids, each with one transaction, and how it ends. "open" is open too long; "to-..." are prepared."""
PREPARED = {"to-commit": "PrepareCommit", "to-abort": "PrepareAbort"}
BEFORE, AFTER = 3, 10
"""The offset that each group had committed, and that of the transaction."""
MAX_FILE_BYTES = 2 << 20
BALLAST = bytes(800_000)
"""The value of the first three records, with which the log of DATA exceeds `MAX_FILE_BYTES`."""


class Kafka(Protocol):
    """A kind of Kafka on a directory of its own, which can run several times."""

    data: Path
    protocol: int

    def running(self, config: dict[str, Any] | None = None) -> AbstractContextManager[Side]: ...


class KRaft:
    """Kafka without ZooKeeper; 4.3 if nothing else is said."""

    def __init__(self, directory: Path, version: str = KAFKA_VERSION, protocol: int = 2) -> None:
        self._directory = directory
        self._version = version
        self.data = directory / "data"
        self.protocol = protocol

    def running(self, config: dict[str, Any] | None = None) -> AbstractContextManager[Side]:
        return sides.kafka(self._directory, self._version, config)

    def __enter__(self) -> KRaft:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class WithZookeeper:
    """Kafka 3.9.1 with ZooKeeper."""

    protocol = 1

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._peers = Peers(directory)
        self.data = directory / "data"

    def __enter__(self) -> WithZookeeper:
        self._peers.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._peers.__exit__(*exception)

    @contextmanager
    def running(self, config: dict[str, Any] | None = None) -> Iterator[Side]:
        with ExitStack() as stack:
            internal, port = stack.enter_context(reserved()), stack.enter_context(reserved())
            gate = stack.enter_context(MarkerGate(internal))
            settings = CONFIG | {
                "broker.id": sides.BROKER_ID,
                "zookeeper.connect": self._peers.connect,
                "log.dirs": self.data,
                "listeners": f"PLAINTEXT://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},INTERNAL://127.0.0.1:{gate.port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
                "inter.broker.listener.name": "INTERNAL",
            }
            configuration = self._directory / "server.properties"
            lines = [f"{name}={value}\n" for name, value in (settings | (config or {})).items()]
            configuration.write_text("".join(lines))
            broker = JavaProcess(self._directory, "kafka.Kafka", port)
            stack.callback(broker.stop)
            broker.start(configuration)
            yield Side("127.0.0.1", port, _Process(broker, self.data), stack, gate)


class _Process:
    def __init__(self, broker: JavaProcess, data: Path) -> None:
        self.kill = broker.kill
        self.data_dir = data


def old_kraft(directory: Path) -> KRaft:
    """Kafka 3.9 without ZooKeeper."""
    return KRaft(directory, OLD_VERSION, 1)


KINDS: dict[str, Callable[[Path], Any]] = {"4.3": KRaft, "3.9": old_kraft, "3.9 with ZooKeeper": WithZookeeper}
WITHOUT_ZOOKEEPER = ("4.3", "3.9")
"""With ZooKeeper, Kafka 3.9 drops markers if it loads transactions before the controller has told it of the partitions: it
takes them for deleted ones. So it does not end everything that is prepared in its own directory either."""


@contextmanager
def peer_of(kind: str, directory: Path) -> Iterator[Kafka]:
    with KINDS[kind](directory / "kafka") as kafka:
        yield kafka


class UnwritableLog:
    """Holds the markers of a broker of ours back from a partition whose log exceeds `MAX_FILE_BYTES`.

    The system refuses the coordinator process to write beyond that, so it can append to `__transaction_state` and
    `__consumer_offsets`, and cannot append to the partition.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def hold(self) -> None:
        """Refuse markers from now on."""
        self._limit(MAX_FILE_BYTES)

    def release(self) -> None:
        """Let markers be written."""
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        (pid,) = (part["pid"] for part in self._broker.processes() if part["kind"] == "coordinator")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@contextmanager
def ours(data: Path, directory: Path, config: dict[str, Any] | None = None) -> Iterator[Side]:
    """This broker on a directory that it has taken over."""
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(CONFIG | {"log.dirs": data} | (config or {}), directory=directory))
        yield Side(broker.host, broker.port, broker, stack, UnwritableLog(broker))


def adopt(data: Path, *options: str) -> None:
    """Take a directory over."""
    command = [sys.executable, "-m", "odradek.cli.main", "adopt", "--yes", *options, str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done


def begin(side: Side, name: str, protocol: int, timeout_ms: int = LONG_MS) -> Producer:
    """A transaction with a record and an offset."""
    talk = side.talk
    producer = talk.init(name, timeout_ms=timeout_ms)
    assert producer.producer_id >= 0, f"{name} has no producer id"
    group = f"group-{name}"
    if protocol < 2:
        talk.add(producer, (DATA, 0))
        talk.add_offsets(producer, group, 3)
    sent = talk.send_batch(producer, (DATA, 0), 0, name.encode(), version=12 if protocol >= 2 else 11)
    assert sent.error_code == 0, sent
    version = 5 if protocol >= 2 else 4
    answer = talk.commit_in_transaction(producer, group, {(SOURCE, 0): AFTER}, version)
    assert answer.topics[0].partitions[0].error_code == 0, answer
    return producer


def create_topics(side: Side) -> None:
    """The topics of the transactions."""
    for topic in (DATA, SOURCE):
        side.topic(topic)


def leave(side: Side, protocol: int) -> dict[str, Producer]:
    """Begin all transactions of ENDS, end two of them, prepare those of PREPARED. The "open" one is late already."""
    talk = side.talk
    for _ in range(3):
        assert talk.produce(DATA, batch(BALLAST)).error_code == 0
    for name in ENDS:
        talk.commit(f"group-{name}", {(SOURCE, 0): BEFORE})
    left = {name: begin(side, name, protocol, SHORT_MS if name == "open" else LONG_MS) for name in ENDS}
    version = 5 if protocol >= 2 else 4
    talk.end(left["committed"], True, version)
    talk.end(left["aborted"], False, version)
    side.hold()
    for name, state in PREPARED.items():
        talk.end(left[name], state == "PrepareCommit", version, completes=False)
        assert talk.state_of(name).transaction_state == state
    return left


def committed(side: Side, name: str) -> int:
    """The offset of a group as a reader of stable offsets gets it, once it is stable."""

    def found() -> Any:
        answer = side.talk.offsets_of(f"group-{name}", {SOURCE: [0]}, stable=True)
        place = answer.groups[0].topics[0].partitions[0]
        return place if place.error_code == 0 else None

    return int(until(found, f"the offset of group-{name} is stable").committed_offset)


def visible(side: Side) -> list[str]:
    """The records that a reader of committed records gets."""
    answer = side.talk.fetch_at((DATA, 0))
    assert answer.last_stable_offset == answer.high_watermark, answer
    values = [value for _, value in filtered(whole(answer.records), answer.aborted_transactions, 0)]
    return [value.decode() for value in values if value != BALLAST]


def finishes(side: Side, left: dict[str, Producer], protocol: int) -> None:
    """The broker ends all transactions as ENDS says; then their ids begin new ones, and old producers are fenced."""
    talk = side.talk
    for name, state in ENDS.items():
        talk.until_state(name, state)
    kept = [name for name, state in ENDS.items() if state == "CompleteCommit"]
    assert visible(side) == kept
    assert {name: committed(side, name) for name in ENDS} == {name: AFTER if name in kept else BEFORE for name in ENDS}
    version = 5 if protocol >= 2 else 4
    for name, old in left.items():
        producer = begin(side, name, protocol)
        assert (producer.producer_id, producer.epoch > old.epoch) == (old.producer_id, True)
        sent = talk.send_batch(old, (DATA, 0), 1, b"late", version=11)
        assert sent.error_code != 0
        talk.end(producer, True, version)
    assert visible(side) == [*kept, *ENDS]
    assert {name: committed(side, name) for name in ENDS} == dict.fromkeys(ENDS, AFTER)


@pytest.mark.parametrize("end", ["clean", "kill"])
@pytest.mark.parametrize("kind", KINDS)
def test_this_broker_ends_what_kafka_left(tmp_path: Path, kind: str, end: str) -> None:
    with peer_of(kind, tmp_path) as peer:
        with peer.running(NEVER) as kafka:
            create_topics(kafka)
            left = leave(kafka, peer.protocol)
            if end == "kill":
                kafka.process.kill()
        adopt(peer.data)
        with ours(peer.data, tmp_path / "ours") as side:
            finishes(side, left, peer.protocol)


@pytest.fixture(scope="module", params=WITHOUT_ZOOKEEPER)
def adopted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A kind of Kafka, and a directory in which it has created the topics, taken over."""
    directory = tmp_path_factory.mktemp("adopted")
    with peer_of(request.param, directory) as peer:
        with peer.running() as kafka:
            create_topics(kafka)  # Kafka does not know topics that are created later, by us
        adopt(peer.data)
    return request.param, peer.data


def leave_and_finish(directory: Path, adopted: tuple[str, Path], kills: bool) -> None:
    """This broker leaves the transactions, Kafka finishes them."""
    kind, data = adopted
    with peer_of(kind, directory) as peer:
        shutil.copytree(data, peer.data)
        with ours(peer.data, directory / "ours", NEVER) as side:
            left = leave(side, peer.protocol)
            if kills:
                side.process.kill_group()
        with peer.running() as kafka:
            finishes(kafka, left, peer.protocol)


def test_kafka_ends_what_this_broker_left_when_it_was_killed(tmp_path: Path, adopted: tuple[str, Path]) -> None:
    leave_and_finish(tmp_path, adopted, kills=True)


def test_kafka_ends_what_this_broker_left_when_it_stopped(tmp_path: Path, adopted: tuple[str, Path]) -> None:
    leave_and_finish(tmp_path, adopted, kills=False)
