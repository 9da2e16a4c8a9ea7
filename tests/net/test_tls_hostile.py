"""Clients that misuse TLS after the handshake: only their own connection ends, with its reason, and nothing grows for ever."""

import logging
import ssl

import pytest
from tlslite.constants import ContentType
from tlslite.errors import TLSClosedConnectionError
from tlslite.messages import Message

from odradek._ext.net.connection import FrameResult
from odradek.security.contexts import server_context
from tests.certificates import client_context, material
from tests.net.connection_driver import framed
from tests.net.tls_driver import TlsDriver, tlslite_client

pytestmark = pytest.mark.usefixtures("tls_layer")
HALF_KEY_UPDATE = b"\x18\0\0\1"  # its header; the byte that says whether an answer is wanted is missing


@pytest.fixture
def driver():
    made = TlsDriver()
    yield made
    made.close()


def send_message(client, body):
    """Send the bytes of a handshake message in a record of their own."""
    for _ in client._sendMsg(Message(ContentType.handshake, bytearray(body)), False, False):
        pass


def closed_as(driver):
    return {reason: number for reason, number in driver.loop.connections.closes.items() if number}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_client_reads_why_a_damaged_record_behind_a_request_ended_its_connection(driver, version, caplog):
    client = driver.tls_client(client_context(version))
    damaged = client.encrypt(framed(b"goodgood")), bytearray(client.encrypt(framed(b"12345678")))
    damaged[1][-1] ^= 1
    client.send_raw(b"".join(damaged))
    driver.until(lambda: driver.closed_ids)
    assert closed_as(driver) == {"bad_frame": 1} and driver.handler.seen == [b"goodgood"]
    assert client.connection.close_reason == "decryption failed or bad record mac"
    assert not any(record.exc_info for record in caplog.records)
    with pytest.raises(ssl.SSLError, match=r"(?i)bad.record.mac"):
        while client.pull():
            client.tls.read(100)


def test_a_response_after_half_a_message_closes_the_connection(driver, caplog):
    parked = []

    def park(connection, frame):
        parked.append(connection.reserve())
        return FrameResult.FRAME_PENDING

    driver.handler.answer = park
    client, connection = tlslite_client(driver)
    client.write(framed(b"12345678"))
    send_message(client, HALF_KEY_UPDATE)
    driver.until(lambda: parked)
    driver.settle()
    parked[0].complete([framed(b"answered")])
    driver.loop.flush_dirty()
    assert closed_as(driver) == {"bad_frame": 1}
    assert connection.close_reason == "the client sent a part of a TLS message, so that no response can be sent"
    assert not any(record.exc_info for record in caplog.records)


def test_a_close_after_half_a_message_leaves_no_error_for_other_connections(driver):
    """OpenSSL keeps errors for each thread, and Python's `ssl` would raise those of our connections."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    other = server_context(material()).wrap_bio(received, sent, server_side=True)
    client = client_context().wrap_bio(sent, received, server_hostname="localhost")
    for end in (client, other) * 3:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    hostile, connection = tlslite_client(driver)
    send_message(hostile, HALF_KEY_UPDATE)
    driver.settle()
    connection.close("the broker stops")
    with pytest.raises(ssl.SSLWantReadError):
        other.read(10)


def test_a_client_that_asks_for_new_keys_and_does_not_read_the_answers_is_cut_off(driver):
    """Small frames without a response are between its requests, so that they are no flood of requests."""
    driver.handler.answer = lambda connection, frame: FrameResult.FRAME_DONE
    client, connection = tlslite_client(driver, send_buffer=4096)
    with pytest.raises(TLSClosedConnectionError):  # by the broker; the sockets' buffers end before the range does
        for _ in range(100_000):
            for _ in client.send_keyupdate_request(1):
                pass
            client.write(framed(b"12345678"))
            driver.settle()
    assert closed_as(driver) == {"bad_frame": 1} and "did not read the answers" in connection.close_reason


def test_a_client_can_read_the_end_after_an_internal_error(driver, caplog):
    """Its first request comes with the end of the handshake, so the session ticket waits for the response that fails."""
    caplog.set_level(logging.CRITICAL)
    requests = []

    def fail(connection, frame):
        requests.append(frame)
        raise RuntimeError("as if memory were short")

    driver.handler.answer = fail
    client = driver.tls_client(handshake=False)
    client.send_raw(client.end_of_handshake() + client.encrypt(framed(b"12345678")))
    driver.until(lambda: driver.closed_ids)
    while client.pull():
        pass
    assert requests == [b"12345678"] and client.tls.read(10) == b""  # close_notify
