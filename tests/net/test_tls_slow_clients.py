"""Clients of TLS connections that do not read, wait or end: what waits for them is neither sent too early nor lost."""

import os
import socket

import pytest

from odradek._ext.net.connection import FrameResult
from odradek._ext.net.output import FileSlice
from odradek._ext.testing import meter_probe, storage_probe
from tests.net.connection_driver import framed
from tests.net.tls_driver import TlsDriver, tlslite_client

CONTENT = os.urandom(200_000)
pytestmark = pytest.mark.usefixtures("tls_layer")


@pytest.fixture
def cold_file(tmp_path):
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if storage_probe.is_resident(file.fileno(), 0, len(CONTENT)):
            pytest.skip("this file system keeps its pages")
        yield file


def test_a_slice_is_not_sent_before_the_cold_reader_has_read_it(cold_file):
    """A client that asks for new keys and does not read them has encrypted bytes waiting while the cold reader works."""
    reads = []
    driver = TlsDriver(cold_reader=lambda *job: reads.append(job))

    def answer(connection, frame):
        driver.loop.responses.write_file(FileSlice(cold_file, 0, len(CONTENT)))
        return FrameResult.FRAME_DONE

    driver.handler.answer = answer
    client, _ = tlslite_client(driver, send_buffer=4608)
    client.write(framed(b"12345678"))
    driver.until(lambda: reads)
    for _ in range(30):
        for _ in client.send_keyupdate_request(1):
            pass
    driver.settle()
    assert not driver.loop.connections.drained
    _, fd, position, length, warmed = reads.pop()
    os.pread(fd, length, position)
    sent = driver.loop.sender.bytes_out
    raw = client.sock.socket
    waiting = raw.recv(1 << 20)  # room for the rest of the new keys
    driver.settle()
    assert driver.loop.sender.bytes_out - sent < 10_000, "new keys only"
    warmed(None)
    raw.setblocking(False)
    while driver.loop.sender.bytes_out < len(CONTENT):
        driver.settle()
        waiting += raw.recv(1 << 20)
    assert driver.closed_ids == [] and reads == []


def test_a_request_in_unread_records_outlives_a_half_close_during_a_throttle():
    driver = TlsDriver(receive_buffer_bytes=8192)
    first = b"throttle".ljust(8188)  # fills the buffer for plaintext, so nothing behind it is decrypted

    def answer(connection, frame):
        if frame == first:
            connection.throttle(driver.loop.responses.now_ms + 1_000)
        driver.loop.responses.write(framed(frame))
        return FrameResult.FRAME_DONE

    driver.handler.answer = answer
    client = driver.tls_client()
    records = client.encrypt(framed(first)) + client.encrypt(framed(b"x" * 100_000))
    client.send_raw(records)
    client.socket.shutdown(socket.SHUT_WR)
    driver.settle()
    assert driver.closed_ids == [], "a request is left in the records that were received and not decrypted"
    assert client.receive(8192) == framed(first)
    driver.loop.release_throttled(driver.loop.responses.now_ms + 1_000)
    assert client.receive(100_004) == framed(b"x" * 100_000)
    driver.until(lambda: driver.closed_ids)


def test_the_encrypted_bytes_that_a_close_drops_are_counted():
    driver = TlsDriver()
    driver.handler.answer = lambda connection, frame: (
        driver.loop.responses.write(framed(bytes(100_000))) or FrameResult.FRAME_DONE
    )
    client = driver.tls_client(send_buffer=4608)
    client.send(framed(b"12345678"))
    driver.settle()
    before = meter_probe.word("unsent_bytes")
    client.connection.close("test")
    assert meter_probe.word("unsent_bytes") - before > 50_000


def test_http_in_an_encrypted_connection_is_no_failed_authentication():
    driver = TlsDriver()
    client = driver.tls_client()
    client.send(b"GET / HTTP/1.1\r\n\r\n")
    driver.until(lambda: driver.closed_ids)
    assert driver.loop.connections.closes["other_protocol"] == 1
    assert driver.failures == [], "the client has authenticated"
