"""Log lines about a connection contain its client's address and client id."""

import pytest

from odradek._ext.net.connection import client_name
from odradek.net.forward_frames import ForwardContext
from odradek.protocol.schemas import fetch
from tests.api.worker_harness import HandWorker
from tests.wire import fetch_request

BAD_FRAME = (1).to_bytes(4, "big")


@pytest.fixture
def worker(tmp_path):
    worker = HandWorker(tmp_path)
    yield worker
    worker.close()


def closed_by(worker, wire, caplog):
    """The log record of the end of a connection that sends a bad frame."""
    wire.socket.sendall(BAD_FRAME)
    worker.turn()
    (record,) = [one for one in caplog.records if one.name == "odradek.connections"]
    return record


def test_a_line_about_a_connection_names_address_and_client_id(worker, caplog):
    worker.create("t")
    wire = worker.connect()
    wire.send(fetch_request([("t", 0, 0)]), fetch.API_KEY, 12)
    worker.turn()
    record = closed_by(worker, wire, caplog)
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(
        "connection 1 from client-1 (client id wire) closed: the client sent a frame of 1 bytes"
    )
    assert (record.connection_id, record.client_address, record.client_id) == (1, "client-1", "wire")


def test_a_connection_that_sent_no_request_has_no_client_id(worker, caplog):
    record = closed_by(worker, worker.connect(), caplog)
    assert record.getMessage().startswith("connection 1 from client-1 (no client id) closed: ")
    assert record.client_id is None


def test_the_name_follows_the_client_id_of_the_last_request(worker):
    worker.create("t")
    wire = worker.connect()
    (connection,) = worker.loop.connections.by_id.values()
    named = []
    for client_id in (b"first", b"second", None, b"x" * 300, b""):
        frame = wire.frame(fetch_request([("t", 0, 0)]), fetch.API_KEY, 12)
        own = b"\xff\xff" if client_id is None else len(client_id).to_bytes(2, "big") + client_id
        body = frame[4:12] + own + frame[12 + 2 + len(b"wire") :]
        wire.socket.sendall(len(body).to_bytes(4, "big") + body)
        worker.turn()
        wire.receive()
        named.append(connection.client_id)
    assert named == [b"first", b"second", None, b"x" * 240, b""]


def test_a_client_id_cannot_forge_a_line():
    assert client_name("a:1", "x\n2026 ERROR y\x1b[0m") == "a:1 (client id x\\x0a2026 ERROR y\\x1b[0m)"
    assert client_name("a:1", "caf\u00e9") == "a:1 (client id caf\u00e9)"
    assert client_name("a:1", None) == "a:1 (no client id)"
    assert client_name("a:1", "") == "a:1 (empty client id)"


def test_the_coordinator_names_clients_as_workers_do():
    assert ForwardContext(1, 0, "10.0.0.1:5", "app").client == "10.0.0.1:5 (client id app)"
