"""A replica fetcher whose leader requires TLS or a login, and leaders that misbehave before the first request."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import odradek._ext.shm.brokers as brokers
from odradek._ext.testing import replica_probe
from odradek.protocol import client_connection
from odradek.replication.leader_connection import LeaderConnection, LeaderError, LeaderRefused, LeaderTimeout
from odradek.security.contexts import server_context
from odradek.security.peers import PeerSecurity
from tests import certificates
from tests.replication.fake_leader import FakeLeader
from tests.replication.following import Following, fill, sent
from tests.security.test_peers import PLAIN, Published, config, material
from tests.shm.one_broker import OneBroker
from tests.waiting import until

LOGIN = (
    "sasl.enabled.mechanisms=PLAIN",
    "sasl.mechanism.inter.broker.protocol=PLAIN",
    f"listener.name.b.plain.sasl.jaas.config={PLAIN}",
)


def security_of(protocol: str, counted: list[int] | None = None) -> PeerSecurity:
    lines = LOGIN if protocol.startswith("SASL") else ()
    published = Published(material(trust=certificates.ca_pem())) if protocol.endswith("SSL") else None
    return PeerSecurity(config(protocol, *lines), published, lambda: (counted if counted is not None else []).append(1))


@contextmanager
def following(path: Path, leader: FakeLeader, security: PeerSecurity) -> Iterator[Following]:
    data = path / "data"
    data.mkdir()
    with OneBroker(data) as broker, leader:
        replica_probe.cluster([1, 2])
        brokers.set_broker_epoch(77)
        made = Following(broker, leader)
        made.security = security
        yield made
        made.fetcher.stop()
        made.fetcher.join(30)
        assert made.fetcher.ended
        assert leader.complaints == []


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_large_responses_arrive_through_tls_byte_for_byte(version: str, tmp_path: Path) -> None:
    context = server_context(material(versions=(version, version)))
    with following(tmp_path, FakeLeader(context=context), security_of("SSL")) as made:
        slot, led = made.create()
        other, idle = made.create("other")
        for _ in range(200):
            led.batches.append(sent(led.log_end, 1000))  # some 20 KB: more than a record of TLS
        made.start()
        made.until_equal(slot, led)
        for count in (1, 700, 3, 2000):
            made.leader.append(led, sent(led.log_end, count))
            made.leader.append(idle, sent(idle.log_end, 1))
        made.until_equal(slot, led)
        made.until_equal(other, idle)
        made.leader.cut()
        made.leader.append(led, sent(led.log_end))
        made.until_equal(slot, led)
        assert made.fetcher.records_bytes == sum(map(len, led.batches + idle.batches))


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_session_is_replaced_before_it_ends_also_under_load(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_connection, "RENEWED_AFTER", 0.02)  # long before the end, however slow this machine is
    context = server_context(material()) if protocol == "SASL_SSL" else None
    leader = FakeLeader(context=context, lifetime_ms=60_000)
    with following(tmp_path, leader, security_of(protocol)) as made:
        slot, led = made.create()
        made.start(max_wait_ms=100)

        def renewed() -> bool:
            made.leader.append(led, sent(led.log_end))
            return leader.connections >= 2

        until(lambda: leader.fetches, "the follower fetches")
        until(lambda: leader.connections >= 2, "the session of an idle connection is replaced")
        connections = leader.connections
        until(lambda: renewed() and leader.connections > connections, "the session of a busy connection is replaced")
        made.until_equal(slot, led)


def test_a_refused_login_is_repeated_at_most_twice_a_second_and_works_when_it_is_accepted(
    tmp_path: Path, caplog
) -> None:
    counted: list[int] = []
    leader = FakeLeader(lifetime_ms=0)
    leader.login_error = 1
    with following(tmp_path, leader, security_of("SASL_PLAINTEXT", counted)) as made:
        slot, led = made.create()
        fill(led, 3)
        began = time.monotonic()
        made.start(backoff_ms=1)
        until(lambda: len(counted) >= 3, "three attempts")
        assert time.monotonic() - began >= 0.9, "the least time between two attempts is half a second"
        leader.login_error = 0
        made.until_equal(slot, led)
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1 and "the broker refused the login (SASL_AUTHENTICATION_FAILED): wrong password" in errors[0]
    assert "secret" not in caplog.text


Serve = Callable[[socket.socket], None]


def silent(connection: socket.socket) -> None:
    """Read everything, answer nothing."""
    while connection.recv(65536):
        pass


def dripping(connection: socket.socket) -> None:
    """One byte of a record, or of a frame, after the other."""
    for byte in b"\x16\x03\x03\x40\x00" + bytes(1 << 14):
        connection.sendall(bytes([byte]))
        if ended.wait(0.02):
            return


def garbage(connection: socket.socket) -> None:
    connection.recv(1)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100)


def huge(connection: socket.socket) -> None:
    connection.recv(1)
    connection.sendall(b"\x7f\xff\xff\xff" + bytes(100))


def negative(connection: socket.socket) -> None:
    connection.recv(1)
    connection.sendall(b"\xff\xff\xff\xff" + bytes(100))


def closing(connection: socket.socket) -> None:
    connection.recv(1)


ended = threading.Event()


@contextmanager
def served(serve: Serve) -> Iterator[tuple[str, int]]:
    """A server that treats each connection like this."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended.clear()

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                serve(connection)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(30)


@pytest.mark.parametrize(
    "protocol, serve, kind, words",
    [
        ("SSL", silent, LeaderRefused, "no end of the TLS handshake within 0.3 s"),
        ("SSL", dripping, LeaderRefused, "no end of the TLS handshake within 0.3 s"),
        ("SSL", garbage, LeaderRefused, "does not speak TLS"),
        ("SSL", closing, LeaderError, "it closed the connection in the TLS handshake"),
        ("SASL_PLAINTEXT", silent, LeaderRefused, "no end of the login within 0.3 s"),
        ("SASL_PLAINTEXT", dripping, LeaderRefused, "malformed response in the login: "),
        ("SASL_PLAINTEXT", garbage, LeaderRefused, "malformed response in the login: "),
        ("SASL_PLAINTEXT", huge, LeaderRefused, "its size is 2147483647 bytes"),
        ("SASL_PLAINTEXT", negative, LeaderRefused, "its size is -1 bytes"),
        ("SASL_PLAINTEXT", closing, LeaderError, "it closed the connection in the login"),
        (None, silent, LeaderTimeout, "no end of the first response within 0.3 s"),
        (None, closing, LeaderError, "it closed the connection"),
    ],
)
def test_a_leader_that_misbehaves_ends_the_attempt_with_a_reason(
    protocol: str | None, serve: Serve, kind: type[LeaderError], words: str
) -> None:
    security = None if protocol is None else security_of(protocol)
    with served(serve) as address, pytest.raises(LeaderError) as caught:
        # Only those that never end have a short limit: the others are not too slow on a slow machine.
        LeaderConnection(address, "c", 30, setup_s=0.3 if "within 0.3 s" in words else 30, security=security)
    assert type(caught.value) is kind and words in str(caught.value), caught.value


@pytest.mark.parametrize("serve", [silent, closing])
def test_a_leader_that_never_completes_the_handshake_is_not_asked_in_a_loop(serve: Serve, tmp_path: Path) -> None:
    connections: list[float] = []
    counted: list[int] = []

    def noted(connection: socket.socket) -> None:
        connections.append(time.monotonic())
        serve(connection)

    with served(noted) as address, following(tmp_path, FakeLeader(), security_of("SSL", counted)) as made:
        fill(made.create()[1], 2)
        made.port = address[1]
        made.start(backoff_ms=1, setup_timeout_ms=100, setup_timeout_max_ms=200)
        until(lambda: len(connections) >= 5, "five attempts")
        assert connections[4] - connections[1] >= 0.3, (
            "half a second between two attempts, but a busy server notes them late"
        )
        assert counted or serve is closing
