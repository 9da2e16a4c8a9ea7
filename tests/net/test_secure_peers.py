"""Requests to other brokers over TLS and with a login, and brokers that misbehave before the first request."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from odradek._ext.protocol.messages import Message
from odradek.net import peers
from odradek.net.peers import Peer, PeerError
from odradek.protocol import ProtocolError, client_connection
from odradek.protocol.schemas import controlled_shutdown, sasl_authenticate, sasl_handshake
from odradek.replication.leader_connection import LeaderConnection, LeaderRefused
from odradek.security.contexts import server_context
from odradek.security.peers import PeerSecurity
from odradek.testing import Broker
from tests import certificates
from tests.net import test_peers
from tests.net.test_peers import FakeBroker, ask, run, shutdown_request
from tests.replication.test_secure_fetcher import security_of
from tests.security.test_peers import material
from tests.waiting import until_async

GOOD = b"\0b\0secret"


class SecureBroker(FakeBroker):
    """:ivar logins: the number of logins. :ivar refuses: whether they fail."""

    def __init__(self, lifetime_ms: int = 0, **options: Any) -> None:
        super().__init__()
        self.options, self.lifetime_ms = options, lifetime_ms
        self.logins = 0
        self.refuses = False
        self.handle = self.answer

    def answer(self, key: int, version: int, message: Any) -> Message:
        if key == sasl_handshake.API_KEY:
            return sasl_handshake.Response(mechanisms=["PLAIN"])
        if key == sasl_authenticate.API_KEY:
            self.logins += 1
            right = bytes(message.auth_bytes) == GOOD and not self.refuses
            return sasl_authenticate.Response(
                error_code=0 if right else 58,
                error_message="wrong" if not right else "",
                session_lifetime_ms=self.lifetime_ms,
            )
        return controlled_shutdown.Response()

    async def start(self, port: int = 0) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", port, **self.options)
        self.port = self.server.sockets[0].getsockname()[1]


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_peers, "SERVED", test_peers.SERVED | {17: (0, 1), 36: (0, 2)})


def peer_of(port: int, security: PeerSecurity, setup_ms: tuple[int, int] = (30_000, 30_000)) -> Peer:
    loop = asyncio.get_running_loop()
    return Peer(loop, "broker 1", lambda: ("127.0.0.1", port), "7", 30.0, security, setup_ms)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_requests_are_sent_over_tls_with_the_certificate_of_the_listener(version: str) -> None:
    async def test() -> None:
        broker = SecureBroker(ssl=server_context(material("required", versions=(version, version))))
        await broker.start()
        peer = peer_of(broker.port, security_of("SSL"))
        for _ in range(3):
            assert (await ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3)).error_code == 0
        assert broker.connections == 1
        peer.close()
        await broker.stop()

    run(test)


def test_a_session_is_replaced_between_two_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "RENEWED_AFTER", 0.0)

    async def test() -> None:
        broker = SecureBroker(lifetime_ms=60_000, ssl=server_context(material()))
        await broker.start()
        peer = peer_of(broker.port, security_of("SASL_SSL"))
        for number in range(1, 4):
            assert (await ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3)).error_code == 0
            assert broker.logins == broker.connections == number
        peer.close()
        await broker.stop()

    run(test)


def test_a_refused_login_is_logged_and_a_request_that_is_to_be_repeated_waits_until_it_is_accepted(caplog: Any) -> None:
    async def test() -> None:
        broker, counted = SecureBroker(), []
        broker.refuses = True
        await broker.start()
        peer = peer_of(broker.port, security_of("SASL_PLAINTEXT", counted))
        waiting = asyncio.create_task(ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3, repeat=True))
        once = await ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3)
        assert isinstance(once, PeerError) and "cannot authenticate a connection to broker 1" in str(once)
        await until_async(lambda: len(counted) >= 2, "it tries again")
        broker.refuses = False
        assert (await waiting).error_code == 0
        peer.close()
        await broker.stop()

    with caplog.at_level(logging.INFO):
        run(test)
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1 and "the broker refused the login (SASL_AUTHENTICATION_FAILED): wrong" in errors[0]
    assert any("connected to broker 1" in record.getMessage() for record in caplog.records)
    assert "secret" not in caplog.text


def test_a_certificate_that_a_broker_refuses_is_the_reason(tmp_path: Path, caplog: Any) -> None:
    certificates.write_files(tmp_path)
    (tmp_path / "ca.pem").write_text(certificates.ca_pem("strange"))
    words = "the other broker does not trust the certificate of this broker (alert unknown_ca)"
    with Broker(certificates.broker_settings(tmp_path, "required", listeners="SSL://127.0.0.1:0")) as broker:
        with pytest.raises(LeaderRefused) as caught:
            LeaderConnection(("127.0.0.1", broker.port), "c", 30, security=security_of("SSL"))
        assert words in str(caught.value)

        async def test() -> None:
            peer = peer_of(broker.port, security_of("SSL"))
            assert isinstance(await ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3), PeerError)
            peer.close()

        run(test)
        assert words in caplog.text


def test_bytes_before_the_handshake_do_not_become_a_part_of_the_first_response() -> None:
    async def test() -> None:
        broker = SecureBroker(ssl=server_context(material()))
        await broker.start()
        loop = asyncio.get_running_loop()
        _, stream = await loop.create_connection(lambda: peers._Stream("broker 1", "7"), "127.0.0.1", broker.port)
        stream.data_received(b"\0\0")  # as if somebody between the brokers had sent them
        context = security_of("SSL").context()
        assert context is not None
        with pytest.raises(ProtocolError, match="bytes that were sent before it"):
            await stream.encrypt(context, "127.0.0.1", 30)
        stream.abort("")
        await broker.stop()

    run(test)


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(65536):
        pass
    writer.close()


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100)
    await silent(reader, writer)


async def unasked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\0\0\0\x04\0\0\0\x01" * 1000)
    await silent(reader, writer)


async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.close()


@pytest.mark.parametrize(
    "protocol, serve, words",
    [
        ("SSL", silent, "no end of the TLS handshake within 0.3 s"),
        ("SSL", garbage, "does not speak TLS"),
        ("SSL", closing, "cannot connect to broker 1 at 127.0.0.1:"),
        ("SASL_PLAINTEXT", silent, "no end of the login within 0.3 s"),
        ("SASL_PLAINTEXT", garbage, "its size is 1213486160 bytes"),
        ("SASL_PLAINTEXT", unasked, "it sent a malformed response in the login"),
        ("SASL_PLAINTEXT", closing, "closed the connection in the login"),
    ],
)
def test_a_broker_that_misbehaves_ends_the_attempt_with_a_reason(protocol: str, serve: Any, words: str) -> None:
    async def test() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        setup_ms = (300, 300) if serve is silent else (30_000, 30_000)  # the others are not too slow on a slow machine
        peer = peer_of(server.sockets[0].getsockname()[1], security_of(protocol), setup_ms)
        outcome = await ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3)
        assert isinstance(outcome, PeerError) and words in str(outcome), outcome
        peer.close()
        server.close()

    run(test)


def test_an_attempt_that_fails_for_lack_of_a_thread_is_not_the_last_one(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    step, failures = peers._step, [RuntimeError("can't start new thread")]

    def failing(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return step(*arguments)

    async def test() -> None:
        monkeypatch.setattr(peers, "_step", failing)
        broker = SecureBroker(ssl=server_context(material()))
        await broker.start()
        peer = peer_of(broker.port, security_of("SSL"))
        outcome = await ask(peer, controlled_shutdown.SCHEMA, shutdown_request(), version=3, repeat=True)
        assert outcome.error_code == 0 and broker.connections == 2
        peer.close()
        await broker.stop()

    run(test)
    assert "internal error" in caplog.text and not failures
