"""This broker and a real Kafka with the same SASL listeners, for comparisons of what they answer."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from odradek.testing import Broker
from tests.clients.kafka_peer import Peer
from tests.ports import reserved

Ports = dict[str, int]
"""By the names of listeners."""


@contextmanager
def both_brokers(
    directories: pytest.TempPathFactory, listeners: Sequence[str], settings: Mapping[str, str]
) -> Iterator[tuple[Ports, Ports]]:
    """Start both, with a PLAINTEXT listener and SASL_PLAINTEXT listeners of these names; yields our ports, and Kafka's."""
    names = ("PLAINTEXT", *listeners)
    protocols = ",".join(
        ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", *(f"{name}:SASL_PLAINTEXT" for name in listeners)]
    )
    with ExitStack() as stack:
        first = stack.enter_context(reserved(len(listeners)))
        ports = {name: first + number for number, name in enumerate(listeners)}
        addresses = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ({"PLAINTEXT": "{port}"} | ports).items())
        theirs = {
            "listeners": f"{addresses},CONTROLLER://127.0.0.1:{{controller}}",
            "advertised.listeners": addresses,
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": "PLAINTEXT",
        }
        ours = {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
            "listener.security.protocol.map": protocols,
        }
        peer = stack.enter_context(Peer(directories.mktemp("kafka"), theirs | dict(settings)))
        broker = stack.enter_context(Broker(ours | dict(settings), directory=directories.mktemp("odradek")))
        bound = {listener["name"]: listener["port"] for listener in broker.status()["listeners"]}
        yield bound, ports | {"PLAINTEXT": peer.port}
