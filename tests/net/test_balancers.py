"""Clients behind a TCP balancer, as docs/operate/cluster.md describes: a relay stands for the balancer."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.testing import Broker
from tests.ecosystem.records import Reader
from tests.ports import reserved
from tests.relay import Relay
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)


def send(producer: Producer, values: list[str]) -> None:
    """Let a producer send values, and wait for their acknowledgements."""
    for value in values:
        producer.produce("orders", value)
    assert producer.flush(90) == 0


def producer_at(port: int) -> Producer:
    """A producer with this port of 127.0.0.1 as its bootstrap server."""
    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "reconnect.backoff.max.ms": 200, "log_level": 0}
    return Producer({**settings, "enable.idempotence": True, "linger.ms": 0})


@pytest.fixture
def balancer(tmp_path: Path) -> Iterator[Relay]:
    """A relay that leads to a broker, which advertises the relay's address."""
    with ExitStack() as stack:
        port = stack.enter_context(reserved())
        relay = stack.enter_context(Relay(port))
        config = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay.port}",
        }
        stack.enter_context(Broker(config, {"orders": 1}, directory=tmp_path / "broker"))
        yield relay


def test_a_client_that_found_the_broker_through_a_balancer_does_not_need_it_any_more() -> None:
    with Broker(topics={"orders": 1}) as broker, Reader(broker.bootstrap_servers, "orders") as reader:
        with Relay(broker.port) as balancer:
            producer = producer_at(balancer.port)
            send(producer, ["through the balancer"])
        send(producer, ["without it"])
        reader.until(2)
        assert reader.values() == [["through the balancer", "without it"]]


def test_connections_to_an_advertised_balancer_can_be_cut_at_any_time(balancer: Relay) -> None:
    producer = producer_at(balancer.port)
    with Reader(f"127.0.0.1:{balancer.port}", "orders") as reader:
        for number in range(3):
            send(producer, [f"{number}"])
            reader.until(number + 1)
            balancer.cut()
        balancer.requests = False  # no other way leads to the broker
        producer.produce("orders", "3")
        balancer.wait_until_dropped()
        assert producer.flush(0) == 1
        balancer.heal_and_cut()
        assert producer.flush(90) == 0
        reader.until(4)
        assert reader.values() == [["0", "1", "2", "3"]]


@pytest.mark.parametrize(
    "header", [b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 9092\r\n", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"]
)
def test_the_log_names_a_balancer_that_sends_the_proxy_protocol(header: bytes) -> None:
    with Broker() as broker, socket.create_connection(("127.0.0.1", broker.port)) as connection:
        connection.sendall(header)
        connection.settimeout(90)
        assert connection.recv(1) == b""
        text = "sends a header of the PROXY protocol, which the broker does not read"
        until(lambda: text in broker.log_file.read_text(), text)
