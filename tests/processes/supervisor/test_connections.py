"""Accepting, handing over, and connection limits, with the real supervisor and workers that execute commands."""

import os
import signal
import socket

import pytest

from odradek.testing.process_tree import listens_on, open_files
from tests.waiting import until


def test_each_connection_goes_to_the_worker_with_the_fewest(broker):
    broker.start()
    clients = [broker.connect() for _ in range(4)]
    assert sorted(client.hello["worker"] for client in clients) == [0, 0, 1, 1]
    assert len({client.hello["id"] for client in clients}) == 4
    for client in clients:
        if client.hello["worker"] == 1:
            client.socket.shutdown(socket.SHUT_WR)
            assert client.ended()
    while broker.status()["connections"] != 2:  # the worker's word is on its way
        continue
    assert [broker.connect().hello["worker"] for _ in range(2)] == [1, 1]


def test_a_worker_learns_who_connected_and_where(broker):
    broker.start(
        "listeners=PLAINTEXT://127.0.0.1:0,INSIDE://[::1]:0",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
    )
    outside, inside = broker.listeners
    for client, listener in (
        (broker.connect(port=outside.port), 0),
        (broker.connect(port=inside.port, host="::1", source="::1"), 1),
    ):
        host, port = client.socket.getsockname()[:2]
        assert client.hello["peer"] == (f"[{host}]:{port}" if listener else f"{host}:{port}")
        assert client.hello["listener"] == listener
        assert not client.hello["blocking"] and client.hello["nodelay"] and client.hello["keepalive"]


def test_a_listener_on_all_interfaces_reports_ipv4_peers_by_their_ipv4_address(broker):
    broker.start("listeners=PLAINTEXT://:0", "advertised.listeners=PLAINTEXT://localhost:1")
    client = broker.connect()
    assert client.hello["peer"] == f"127.0.0.1:{client.socket.getsockname()[1]}"


def test_sockets_in_the_channel_of_a_dead_worker_are_received_by_its_successor(broker):
    broker.start("num.network.threads=1")
    pid = broker.pids()["worker-0"]
    os.kill(pid, signal.SIGSTOP)
    clients = [broker.connect(greeted=False) for _ in range(20)]
    while broker.status()["connections_accepted"] < 20:
        continue
    os.kill(pid, signal.SIGKILL)
    hellos = [client.greeting() for client in clients]
    assert {hello["pid"] for hello in hellos} == {broker.pids()["worker-0"]} != {pid}
    assert len({hello["id"] for hello in hellos}) == 20 == broker.status()["connections"]


def test_sockets_of_a_dead_worker_are_handed_to_other_workers(broker):
    broker.start()
    pids = broker.pids()
    os.kill(pids["worker-0"], signal.SIGSTOP)
    clients = [broker.connect(greeted=False) for _ in range(10)]
    while broker.status()["connections_accepted"] < 10:
        continue
    os.kill(pids["worker-0"], signal.SIGKILL)
    assert pids["worker-0"] not in {client.greeting()["pid"] for client in clients}


def test_more_connections_than_the_channels_hold_wait_for_room(broker):
    broker.start("num.network.threads=1")
    pid = broker.pids()["worker-0"]
    os.kill(pid, signal.SIGSTOP)
    clients = [broker.connect(greeted=False) for _ in range(900)]
    os.kill(pid, signal.SIGCONT)
    assert {client.greeting()["worker"] for client in clients} == {0}
    assert broker.status()["connections"] == 900


def test_connections_of_one_address_are_limited_until_they_close(broker):
    broker.start("max.connections.per.ip=2", "num.network.threads=1")
    first, second = broker.connect(), broker.connect()
    assert broker.connect(greeted=False).ended()
    assert broker.connect(source="127.0.0.2").hello
    assert broker.status()["connections_refused"] == 1
    first.socket.shutdown(socket.SHUT_WR)
    assert first.ended()
    while broker.status()["connections"] != 2:
        continue
    assert broker.connect().hello
    assert second.ask("echo") == "echo"


def test_the_death_of_a_worker_frees_the_connection_counts_of_its_addresses(broker):
    broker.start("max.connections.per.ip=1", "num.network.threads=1")
    client = broker.connect()
    os.kill(client.hello["pid"], signal.SIGKILL)
    assert client.ended()
    while broker.status()["connections"]:
        continue
    assert broker.connect().hello


def test_single_addresses_may_have_other_limits(broker):
    broker.start("max.connections.per.ip=1", "max.connections.per.ip.overrides=127.0.0.2:3,localhost:2")
    for source, limit in (("127.0.0.1", 2), ("127.0.0.2", 3), ("127.0.0.3", 1)):
        for _ in range(limit):
            assert broker.connect(source=source).hello
        assert broker.connect(source=source, greeted=False).ended()


def test_above_the_total_limit_new_connections_wait(broker):
    broker.start("max.connections=2")
    first, second = broker.connect(), broker.connect()
    third = broker.connect(greeted=False)
    assert second.ask("echo") == "echo"
    status = broker.status()
    assert (status["connections"], status["connections_accepted"]) == (2, 2)
    first.socket.shutdown(socket.SHUT_WR)
    assert third.greeting()["worker"] == first.hello["worker"]
    assert "max.connections=2" in broker.log()


def test_an_unknown_host_in_the_overrides_fails_the_start(broker):
    broker.launch("max.connections.per.ip.overrides=no-such-host.invalid:3")
    assert "no-such-host.invalid" in broker.error_line()


def test_children_inherit_only_their_descriptors(broker):
    broker.start()
    clients = [broker.connect() for _ in range(4)]
    pids = broker.pids()
    os.kill(pids["worker-0"], signal.SIGKILL)  # its successor is forked while connections are open
    killed = pids["worker-0"]
    while (serving := broker.wait_for_pid("worker-0 serving")) == killed:
        continue  # what it said at its own start came late
    pids["worker-0"] = serving
    assert clients
    sockets = {"worker-0": 3, "worker-1": 4, "coordinator-0": 1, "cleaner-0": 0}
    for name, pid in pids.items():
        if name == "supervisor-0":
            continue
        files = open_files(pid)
        assert not listens_on(pid, broker.port)
        assert "anon_inode:[pidfd]" not in files and "anon_inode:[eventpoll]" not in files
        until(  # it has one more for a moment, by which it sends the test an event
            lambda pid=pid, most=sockets[name]: sum(target.startswith("socket:") for target in open_files(pid)) <= most,
            lambda name=name, pid=pid: f"{name} has no more sockets than are its own: {open_files(pid)}",
        )
        assert str(broker.data_dir / ".lock") in files


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", ""])
def test_a_port_in_use_is_named(broker, host):
    family = socket.AF_INET if host == "127.0.0.1" else socket.AF_INET6
    with socket.socket(family) as taken:
        taken.bind((host.strip("[]") or "::", 0))
        taken.listen()
        address = f"PLAINTEXT://{host}:{taken.getsockname()[1]}"
        broker.launch(f"listeners={address}", "advertised.listeners=PLAINTEXT://localhost:1")
        assert f"listener {address} cannot be opened: the port is in use" in broker.error_line()
