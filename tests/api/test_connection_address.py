"""A single broker returns to each client the address to which this client has connected, if advertised.listeners is not set."""

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from odradek.api.connection_address import Address, ConnectionAddresses, Ends, Routes, ends_of, packed, read_routes
from odradek.api.served import ROWS
from odradek.config.broker_config import load
from odradek.config.errors import ConfigError
from odradek.config.listeners import Listener
from odradek.protocol.registry import by_key
from odradek.protocol.schema import structure_of
from odradek.protocol.schemas import create_topics, describe_cluster, find_coordinator, metadata
from odradek.testing import Broker
from tests.wire import Wire

PORT = 9092
OPEN = Listener("PLAINTEXT", "", PORT, "PLAINTEXT")
BRIDGE = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100580A\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth0\t0000580A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
"""
"""/proc/net/route in a container of a bridge network: 10.88.0.0/16 with the gateway 10.88.0.1."""
ROUTES_6 = (
    "fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 "
    "00000001 00000000 00000001 eth0\n"
    "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 "
    "00000001 00000000 00000003 eth0\n"
    "00000000000000000000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 "
    "00000002 00000000 80200001 lo\n"
)


@pytest.fixture
def routes(tmp_path: Path) -> Routes:
    (tmp_path / "route").write_text(BRIDGE)
    (tmp_path / "ipv6_route").write_text(ROUTES_6)
    return read_routes(tmp_path)


def test_routes_are_read_as_networks_and_gateways(routes: Routes, tmp_path: Path) -> None:
    assert routes.networks == (
        (packed("10.88.0.0"), packed("255.255.0.0")),
        (packed("fd00::"), packed("ffff:ffff:ffff:ffff::")),
    )
    assert routes.gateways == {packed("10.88.0.1"), packed("fd00::1")}
    assert read_routes(tmp_path / "nothing") == Routes((), frozenset())


def test_the_routes_of_this_machine_can_be_read() -> None:
    assert (
        any(network == packed("127.0.0.0") or any(network) for network, _ in read_routes().networks)
        or not socket.has_ipv6
    )


@pytest.mark.parametrize(
    ("way", "client", "local", "published"),
    [
        # measured with Podman 4.3; docs/decisions/0052-address-of-a-connection.md
        ("root, bridge: the host, over 127.0.0.1", "10.88.0.1", "10.88.0.10", True),
        ("root, bridge: the host, over its own address", "192.0.2.2", "10.88.0.10", True),
        ("root, bridge: a container beside it", "10.88.0.11", "10.88.0.10", False),
        ("rootless, slirp4netns or bridge: the forwarder in the container", "10.88.0.10", "10.88.0.10", True),
        ("pasta: the host, over 127.0.0.1", "127.0.0.1", "127.0.0.1", False),
        ("a command in the container", "127.0.0.1", "127.0.0.1", False),
        ("IPv6: a gateway", "fd00::1", "fd00::5", True),
        ("IPv6: a container beside it", "fd00::6", "fd00::5", False),
        ("IPv6: another network", "2001:db8::1", "fd00::5", True),
    ],
)
def test_clients_of_a_published_port_receive_the_published_address(
    way: str, client: str, local: str, published: bool, routes: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.api.connection_address.ends_of", lambda _: Ends(client, local, PORT))
    connection = SimpleNamespace(fd=7)

    def address(published_address: Address | None) -> tuple[str, int] | None:
        return ConnectionAddresses([OPEN], published_address, lambda: routes).of(0, connection)

    assert address(None) == (local, PORT), way
    assert address(Address("localhost", None)) == (("localhost", PORT) if published else (local, PORT)), way
    assert address(Address("kafka.example", 19092)) == (("kafka.example", 19092) if published else (local, PORT)), way


def test_the_routes_are_read_again_after_a_while(monkeypatch: pytest.MonkeyPatch, routes: Routes) -> None:
    monkeypatch.setattr("odradek.api.connection_address.ends_of", lambda _: Ends("10.88.0.11", "10.88.0.10", PORT))
    now, known = 0.0, [Routes((), frozenset()), routes]
    addresses = ConnectionAddresses([OPEN], Address("localhost", None), lambda: known.pop(0), lambda: now)
    assert addresses.of(0, SimpleNamespace(fd=7)) == ("localhost", PORT)
    now = 4.9
    assert addresses.of(0, SimpleNamespace(fd=7)) == ("localhost", PORT)
    now = 5.0
    assert addresses.of(0, SimpleNamespace(fd=7)) == ("10.88.0.10", PORT)


@contextmanager
def no_free_descriptor() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 4096), hard))
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


def test_a_broker_without_a_free_descriptor_returns_the_same_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted, no_free_descriptor():
            ends = ends_of(accepted.fileno())
        assert ends == Ends("127.0.0.1", *server.getsockname())
        assert client.getpeername() == server.getsockname()
    monkeypatch.setattr("odradek.api.connection_address.ends_of", lambda _: Ends("127.0.0.2", "192.0.2.1", PORT))
    now = 0.0
    addresses = ConnectionAddresses([OPEN], Address("localhost", None), read_routes, lambda: now)
    before = addresses.of(0, SimpleNamespace(fd=7)), addresses._routes
    now = 5.0
    with no_free_descriptor():
        assert (addresses.of(0, SimpleNamespace(fd=7)), addresses._routes) == before


@pytest.mark.parametrize(
    ("listener", "own"),
    [
        (Listener("PLAINTEXT", "", PORT, "PLAINTEXT"), True),
        (Listener("PLAINTEXT", "0.0.0.0", PORT, "PLAINTEXT"), True),
        (Listener("OUT", "::", PORT, "SASL_PLAINTEXT"), True),
        (Listener("PLAINTEXT", "broker.example", PORT, "PLAINTEXT"), False),
        (Listener("SSL", "", PORT, "SSL"), False),
        (Listener("OUT", "0.0.0.0", PORT, "SASL_SSL"), False),
    ],
)
def test_hosts_in_listeners_and_names_of_certificates_come_first(
    listener: Listener, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.api.connection_address.ends_of", lambda _: Ends("10.0.0.2", "10.0.0.1", PORT))
    found = ConnectionAddresses([listener], None).of(0, SimpleNamespace(fd=7))
    assert found == (("10.0.0.1", PORT) if own else None)


def test_the_ends_of_a_connection() -> None:
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        for host in ("127.0.0.1", "127.0.0.2", "::1"):
            with socket.create_connection((host, port)) as client:
                accepted, _ = server.accept()
                with accepted:
                    assert ends_of(accepted.fileno()) == Ends(str(client.getsockname()[0]), host, port)
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        with accepted:
            accepted.shutdown(socket.SHUT_RDWR)
            client.close()
            assert ends_of(accepted.fileno()) in (None, Ends("127.0.0.1", "127.0.0.1", port))
    near, far = socket.socketpair()
    with near, far:
        assert ends_of(near.fileno()) is None
    assert ends_of(-1) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", ("localhost", None)),
        ("localhost:19092", ("localhost", 19092)),
        ("[::1]", ("::1", None)),
        ("[fd00::5]:19092", ("fd00::5", 19092)),
        ("10.0.0.1", ("10.0.0.1", None)),
    ],
)
def test_forms_of_the_published_address(text: str, expected: tuple[str, int | None]) -> None:
    assert load(None, [f"odradek.published.address={text}"]).published_address == expected


@pytest.mark.parametrize(
    "text", ["", ":9092", "a b", "host:0", "host:70000", "::1", "PLAINTEXT://host:9092", "host:9092:1"]
)
def test_malformed_published_addresses_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^odradek\.published\.address="):
        load(None, [f"odradek.published.address={text}"])


def test_a_published_port_is_refused_if_there_are_several_listeners() -> None:
    listeners = ["listeners=A://:1,B://:2", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"]
    with pytest.raises(ConfigError, match="must have no port, because there are several listeners"):
        load(None, [*listeners, "odradek.published.address=localhost:19092"])
    assert load(None, [*listeners, "odradek.published.address=localhost"]).published_address == ("localhost", None)


def has_addresses(structure: Any) -> bool:
    """Whether a structure has a host and a port beside each other, in itself or below it."""
    names = {field.attribute for field in structure.fields}
    inner = (field.structure for field in structure.fields if field.structure is not None)
    return {"host", "port"} <= names or any(map(has_addresses, inner))


def test_every_api_that_returns_addresses_is_known() -> None:
    """Another one must use `cluster_view.brokers`, and belongs into the test below."""
    rows = [row for row in ROWS if not row.private]
    found = {row.key for row in rows if has_addresses(structure_of(by_key(row.key).response))}
    only_of_other_brokers = {0, 1}  # NodeEndpoints of Produce and Fetch: the new leader of a partition, in a cluster
    assert found - only_of_other_brokers == {metadata.API_KEY, find_coordinator.API_KEY, describe_cluster.API_KEY}


@pytest.fixture(scope="module")
def open_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """On all addresses of this machine; one worker, so that all clients share what it keeps."""
    config = {"listeners": "PLAINTEXT://:0", "num.network.threads": 1}
    with Broker(config, directory=tmp_path_factory.mktemp("open")) as broker:
        yield broker


def told(wire: Wire, api: int, version: int) -> set[tuple[str, int]]:
    """The addresses in a response of an API."""
    if api == metadata.API_KEY:
        response = wire.ask(metadata.Request(topics=[]), api, version)
    elif api == describe_cluster.API_KEY:
        response = wire.ask(describe_cluster.Request(endpoint_type=1), api, version)
    elif version < 4:
        response = wire.ask(find_coordinator.Request(key="group"), api, version)
        return {(response.host, response.port)}
    else:
        response = wire.ask(find_coordinator.Request(coordinator_keys=["group", "group-2"]), api, version)
        return {(row.host, row.port) for row in response.coordinators}
    return {(row.host, row.port) for row in response.brokers}


@pytest.mark.parametrize(
    ("api", "version"),
    [
        (row.key, version)
        for row in ROWS
        if row.key in (3, 10, 60)
        for version in range(row.min_version, row.max_version + 1)
    ],
)
def test_clients_that_take_turns_receive_their_own_addresses(open_broker: Broker, api: int, version: int) -> None:
    hosts = ["127.0.0.1", "127.0.0.2", "::1", "127.0.0.3"]
    wires = {host: Wire(host, open_broker.port) for host in hosts}
    try:
        for _ in range(2):
            for host, wire in wires.items():
                assert told(wire, api, version) == {(host, open_broker.port)}
    finally:
        for wire in wires.values():
            wire.socket.close()


def test_a_response_that_is_made_in_steps_has_the_address_of_its_connection(open_broker: Broker) -> None:
    with Wire("127.0.0.2", open_broker.port) as first, Wire("127.0.0.3", open_broker.port) as second:
        make = create_topics.Request
        first.ask(
            make(
                topics=[make.CreatableTopic(name="large", num_partitions=1200, replication_factor=-1)],
                timeout_ms=60_000,
            ),
            create_topics.API_KEY,
            7,
        )
        for wire in (first, second, first, second):
            wire.send(metadata.Request(topics=None), metadata.API_KEY, 12)
        for wire, host in ((first, "127.0.0.2"), (second, "127.0.0.3")) * 2:
            assert [broker.host for broker in wire.receive().brokers] == [host]


@pytest.mark.parametrize("host", ["127.0.0.2", "[::1]"])
def test_a_client_library_works_over_each_address(open_broker: Broker, host: str) -> None:
    servers = {"bootstrap.servers": f"{host}:{open_broker.port}"}
    producer = Producer(servers)
    producer.produce("t" + str(abs(hash(host))), b"value")
    assert producer.flush(30) == 0
    consumer = Consumer(servers | {"group.id": host.strip("[]"), "auto.offset.reset": "earliest"})
    consumer.subscribe(["t" + str(abs(hash(host)))])
    message = consumer.poll(30)
    assert message is not None and message.value() == b"value"
    assert {broker.host for broker in consumer.list_topics(timeout=30).brokers.values()} == {host.strip("[]")}
    consumer.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"advertised.listeners": "PLAINTEXT://kafka.example:29092"},
        {"advertised.listeners": "PLAINTEXT://kafka.example:29092", "odradek.published.address": "localhost"},
    ],
)
def test_configured_addresses_are_for_all_clients(settings: dict[str, str], tmp_path: Path) -> None:
    with Broker({"listeners": "PLAINTEXT://:0"} | settings, directory=tmp_path) as broker:
        for host in ("127.0.0.1", "127.0.0.2", "::1"):
            with Wire(host, broker.port) as wire:
                for api in (3, 10, 60):
                    assert told(wire, api, 1) == {("kafka.example", 29092)}
