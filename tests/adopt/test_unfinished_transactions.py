"""Transactions that one broker leaves unfinished, and another one on the same directory ends: Kafka and ours, both ways.

A transaction is prepared when its end is decided and its markers are not written. Kafka's are held back by a gate; ours are
made so by a record in the log of a stopped broker, because this broker writes its own markers at once.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from odradek.protocol.schemas.transaction_records import STATES
from odradek.testing import Broker
from tests.api.transactional_log import filtered
from tests.cluster.peer_processes import VERSION as OLD_VERSION
from tests.cluster.peer_processes import JavaProcess, Peers
from tests.ports import reserved
from tests.toolchains import KAFKA_VERSION
from tests.transactions_against_kafka import sides, state_log
from tests.transactions_against_kafka.marker_gate import MarkerGate
from tests.transactions_against_kafka.sides import CONFIG, Side
from tests.transactions_against_kafka.transaction_talk import Producer
from tests.waiting import until
from tests.wire import whole

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


@contextmanager
def ours(data: Path, directory: Path, config: dict[str, Any] | None = None) -> Iterator[Side]:
    """This broker on a directory that it has taken over."""
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(CONFIG | {"log.dirs": data} | (config or {}), directory=directory))
        yield Side(broker.host, broker.port, broker, stack)


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


def leave(side: Side, protocol: int, hold: bool) -> dict[str, Producer]:
    """All transactions of ENDS; those of PREPARED are prepared if `hold`, else open. The "open" one is late already."""
    for topic in (DATA, SOURCE):
        side.topic(topic)
    for name in ENDS:
        side.talk.commit(f"group-{name}", {(SOURCE, 0): BEFORE})
    left = {name: begin(side, name, protocol, SHORT_MS if name == "open" else LONG_MS) for name in ENDS}
    version = 5 if protocol >= 2 else 4
    side.talk.end(left["committed"], True, version)
    side.talk.end(left["aborted"], False, version)
    if hold:
        side.hold()
        for name, state in PREPARED.items():
            side.talk.end(left[name], state == "PrepareCommit", version, completes=False)
            assert side.talk.state_of(name).transaction_state == state
    return left


def prepare(data: Path, left: dict[str, Producer], protocol: int) -> None:
    """Write the record that decides an end into the log of a stopped broker."""
    for name, state in PREPARED.items():
        epoch = left[name].epoch + (1 if protocol >= 2 else 0)
        state_log.change(data, name, transaction_status=STATES.index(state), producer_epoch=epoch)


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
    return [value.decode() for _, value in filtered(whole(answer.records), answer.aborted_transactions, 0)]


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
            left = leave(kafka, peer.protocol, hold=True)
            if end == "kill":
                kafka.process.kill()
        adopt(peer.data)
        with ours(peer.data, tmp_path / "ours") as side:
            finishes(side, left, peer.protocol)


@pytest.mark.parametrize("end", ["clean", "kill"])
@pytest.mark.parametrize("kind", WITHOUT_ZOOKEEPER)
def test_kafka_ends_what_this_broker_left(tmp_path: Path, kind: str, end: str) -> None:
    with peer_of(kind, tmp_path) as peer:
        with peer.running():
            pass  # it makes the internal topics
        adopt(peer.data)
        with ours(peer.data, tmp_path / "ours", NEVER) as side:
            left = leave(side, peer.protocol, hold=False)
            if end == "kill":
                side.process.kill()
        prepare(peer.data, left, peer.protocol)
        with peer.running() as kafka:
            finishes(kafka, left, peer.protocol)
