"""The broker of tests of transactions, Odradek or Apache Kafka, behind a relay through which all clients reach it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from odradek.testing import Broker
from tests.clients.kafka_peer import Peer
from tests.frame_relay import FrameRelay
from tests.ports import reserved
from tests.transactions.wire_calls import Address

HOST = "127.0.0.1"
TIME_OUT_CHECK_MS = 100
SETTINGS: dict[str, str | int] = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": TIME_OUT_CHECK_MS,
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}
"""Of both brokers. The listener BROKERS keeps what a broker sends to itself away from the relay."""


@dataclass
class UnderTest:
    """A running broker. ``broker``: None for Kafka. ``port``: that of the broker itself."""

    relay: FrameRelay
    port: int
    broker: Broker | None

    @property
    def server(self) -> Address:
        """The address for clients, which is the relay's."""
        return HOST, self.relay.port

    @property
    def direct(self) -> Address:
        """The address of the broker itself."""
        return HOST, self.port


@contextmanager
def start_odradek(directory: Path, settings: Mapping[str, str | int] = {}) -> Iterator[UnderTest]:
    """An Odradek broker without topics."""
    with ExitStack() as stack:
        port, for_brokers = stack.enter_context(reserved()), stack.enter_context(reserved())
        relay = stack.enter_context(FrameRelay(port))
        config = SETTINGS | {
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            "num.network.threads": 2,
            "listeners": f"CLIENTS://{HOST}:{port},BROKERS://{HOST}:{for_brokers}",
            "advertised.listeners": f"CLIENTS://{HOST}:{relay.port},BROKERS://{HOST}:{for_brokers}",
            **settings,
        }
        broker = stack.enter_context(Broker(config, directory=directory))
        yield UnderTest(relay, port, broker)


@contextmanager
def start_kafka(directory: Path, settings: Mapping[str, str | int] = {}) -> Iterator[UnderTest]:
    """A broker of Apache Kafka without topics."""
    with FrameRelay() as relay:
        config = SETTINGS | {
            "listeners": f"CLIENTS://{HOST}:{{port}},BROKERS://{HOST}:0,CONTROLLER://{HOST}:{{controller}}",
            "advertised.listeners": f"CLIENTS://{HOST}:{relay.port},BROKERS://{HOST}:0",
            **settings,
        }
        with Peer(directory, config) as peer:
            relay.server_port = peer.port
            yield UnderTest(relay, peer.port, None)


STARTERS = {"odradek": start_odradek, "kafka": start_kafka}
