"""The brokers of these tests, and how a conversation is held with one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from odradek.testing import Broker
from tests.clients.kafka_peer import Peer
from tests.clients.kafka_tools import KafkaTools
from tests.ports import reserved
from tests.transactions_against_kafka.marker_gate import MarkerGate
from tests.transactions_against_kafka.transaction_talk import TIMEOUT_MS, Place, Producer, TransactionTalk
from tests.transactions_against_kafka.transcript import Transcript
from tests.waiting import until

CONFIG: dict[str, str | int] = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 20,
    "log.retention.ms": -1,
    "log.roll.ms": 1 << 50,  # markers have the time of now, records an old one
}
BROKER_ID = 1
"""Of the peer, and of ours."""
NEWEST_LEVEL = 2


class Side:
    """A broker, a connection to it, and the topics of the tests.

    :param process: the broker: `kill()` and `data_dir`. :param gate: what holds its markers; None: it cannot hold them.
    """

    def __init__(self, host: str, port: int, process: Any, stack: ExitStack, gate: Any = None) -> None:
        self.at = host, port
        self.process = process
        self._stack = stack
        self._gate = gate
        self.topics: dict[bytes, str] = {}
        self.ids: dict[str, bytes] = {}
        self.prepared: dict[str, Producer] = {}
        """What was prepared for conversations before the broker was started for the last time."""
        self._level = NEWEST_LEVEL
        self.talk = self.connect()
        self.talk.until_coordinated("any")
        for number in range(16):  # both partitions of __transaction_state, as good as certainly
            until(lambda number=number: self._has_coordinator(f"any-{number}"), f"a coordinator of any-{number}")

    @classmethod
    @contextmanager
    def of(cls, broker: Broker) -> Iterator[Side]:
        """A broker of ours that runs."""
        with ExitStack() as stack:
            yield _begun(cls(broker.host, broker.port, broker, stack))

    @cached_property
    def tools(self) -> KafkaTools:
        """Kafka's command-line tools, in a JVM that ends with the side."""
        errors = Path(self.process.data_dir).parent / "tools.err"
        return self._stack.enter_context(KafkaTools(":".join(map(str, self.at)), errors))

    def connect(self) -> TransactionTalk:
        """A connection that ends with the side."""
        return self._stack.enter_context(TransactionTalk(*self.at))

    def _has_coordinator(self, transactional_id: str) -> bool:
        self.talk.find_coordinator(transactional_id)
        return bool(self.talk.describe_transactions(transactional_id).transaction_states)

    def topic(self, name: str, partitions: int = 1, **configs: object) -> str:
        """Create a topic, whose partitions have leaders then; its name."""
        topic_id = self.talk.create(name, partitions, **configs)
        self.topics[topic_id] = name
        self.ids[name] = topic_id
        self.talk.until_led(name, partitions)
        return name

    def held_topic(self, name: str) -> str:
        """A topic of one partition whose markers `hold` holds."""
        return self.topic(name)

    def hold(self) -> None:
        """Hold markers from now on."""
        assert self._gate is not None, "this broker writes its markers at once"
        self._gate.hold()

    def release(self) -> None:
        """Let markers be written."""
        if self._gate is not None:
            self._gate.release()

    def transcript_of(self, row: Row) -> Transcript:
        """Hold a conversation."""
        if self._level != row.level:
            self.talk.at_level(row.level)
            self._level = row.level
        with ExitStack() as connections:
            stage = Stage(self, row, connections)
            try:
                row.conversation(stage, *row.arguments)
            finally:
                self.release()
            return stage.transcript


@contextmanager
def kafka(directory: Path, version: str | None = None, config: dict[str, str | int] | None = None) -> Iterator[Side]:
    """Apache Kafka with a gate in front of its listener for brokers."""
    with ExitStack() as stack:
        internal = stack.enter_context(reserved())
        gate = stack.enter_context(MarkerGate(internal))
        listeners = {
            "listeners": f"PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}},INTERNAL://127.0.0.1:{internal}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{{port}},INTERNAL://127.0.0.1:{gate.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
        }
        peer = stack.enter_context(Peer(directory, CONFIG | listeners | (config or {}), version))
        host, _, port = peer.bootstrap_servers.rpartition(":")
        yield _begun(Side(host, int(port), peer, stack, gate))


@contextmanager
def odradek(directory: Path, config: dict[str, str | int] | None = None) -> Iterator[Side]:
    """This broker."""
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(CONFIG | {"broker.id": BROKER_ID} | (config or {}), directory=directory))
        yield _begun(Side(broker.host, broker.port, broker, stack))


def _begun(side: Side) -> Side:
    """A broker has given the producer id 0 to nobody in a conversation: requests do not show a 0."""
    with side.talk.quietly():
        side.talk.init(None)
    return side


class Stage:
    """What a conversation gets: connections that are heard, names of its own, and topics on request.

    The names are the same at both brokers: the conversation's own name, a dash and a word.
    """

    def __init__(self, side: Side, row: Row, connections: ExitStack) -> None:
        self.side = side
        self.name = row.name
        self.transcript = Transcript(row.name, side.topics)
        self._connections = connections
        self.talk = self.connect()

    def connect(self) -> TransactionTalk:
        """One more connection that is heard."""
        talk = self._connections.enter_context(TransactionTalk(*self.side.at))
        talk.heard = self.transcript.hear
        return talk

    def word(self, word: str) -> str:
        """A name of this conversation."""
        return f"{self.name}-{word}"

    def topic(self, word: str = "topic", partitions: int = 1, **configs: object) -> str:
        """A topic of this conversation."""
        return self.side.topic(self.word(word), partitions, **configs)

    def started(self, word: str = "id", **fields: Any) -> Producer:
        """A new transactional id."""
        return self.talk.init(self.word(word), **fields)

    def brought(self, state: str, word: str = "id", ends: int = 5, place: Place | None = None) -> Producer:
        """A new transactional id in a state, unheard, and what its client holds.

        A transaction has one partition, without data. Markers are held from Prepare on; `release` lets it complete.

        :param state: a state of Kafka's, or "TimedOut". :param ends: the version of EndTxn.
        :param place: the partition of the transaction; by default it has its own topic.
        """
        with self.talk.quietly():
            return self._brought(state, word, ends, place)

    def _brought(self, state: str, word: str, ends: int, place: Place | None) -> Producer:
        talk = self.talk
        held = state.startswith("Prepare")
        if place is None and state != "Empty":
            name = self.word(f"{word}-topic")
            place = (self.side.held_topic(name) if held else self.side.topic(name), 0)
        producer = self.started(word, timeout_ms=1 if state == "TimedOut" else TIMEOUT_MS)
        if place is not None and state != "Empty":
            if ends < 5:
                talk.add(producer, place)
            else:
                talk.add_as_broker((producer, [place]), verify=False)
        if held:
            self.side.hold()
        if state == "TimedOut":
            talk.until_state(producer.transactional_id, "CompleteAbort")
        elif state not in ("Empty", "Ongoing"):
            producer = talk.end(producer, state.endswith("Commit"), ends, completes=not held)
        return producer

    def complete(self, producer: Producer) -> None:
        """Let the markers be written, and wait for that."""
        self.side.release()
        self.talk.until_complete(producer.transactional_id)


@dataclass(frozen=True)
class Row:
    """A conversation with its arguments, at a level of `transaction.version`.

    :param holds: it holds markers back. :param takes_long: it is not part of `make test`.
    """

    conversation: Callable[..., None]
    arguments: tuple[Any, ...] = ()
    level: int = NEWEST_LEVEL
    holds: bool = False
    takes_long: bool = False

    @property
    def name(self) -> str:
        """The row's name, with which the names of its topics begin."""
        words = [self.conversation.__name__.replace("_", "-"), *map(word_of, self.arguments)]
        if self.level != NEWEST_LEVEL:
            words.append(f"level-{self.level}")
        return "-".join(words)


Rows = list[Row]
WORDS = {True: "commit", False: "abort"}


def word_of(argument: Any) -> str:
    """An argument in a row's name; a truth value is the result of a transaction."""
    return WORDS[argument] if isinstance(argument, bool) else str(argument)


def rows(
    conversation: Callable[..., None],
    *arguments: Any,
    levels: tuple[int, ...] = (NEWEST_LEVEL,),
    holds: bool = False,
    takes_long: bool = False,
) -> Rows:
    """A row for each of the arguments, tuples or single ones, and each level.

    A row with a state of Prepare among its arguments holds markers.
    """
    tuples = [one if isinstance(one, tuple) else (one,) for one in arguments] or [()]
    return [
        Row(conversation, one, level, holds or any(str(part).startswith("Prepare") for part in one), takes_long)
        for level in levels
        for one in tuples
    ]
