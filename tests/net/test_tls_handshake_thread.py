"""TLS handshakes that a thread computes: whatever happens to the connection meanwhile, nothing is lost or left open.

The thread is the test itself: `settle` runs the long steps, or, after `hello`, the test calls `work`.
"""

import logging
import ssl

import pytest

from odradek._ext.net.tls import TlsListener
from odradek._ext.testing import meter_probe
from odradek.security.contexts import server_context
from tests.certificates import client_context, material, of_client
from tests.net.connection_driver import framed
from tests.net.tls_driver import TlsDriver, tls_listener


class HandDriver(TlsDriver):
    """A TlsDriver whose key is slow, and whose handshakes can stop in the middle."""

    def __init__(self, **how):
        super().__init__(listener=tls_listener(material(slow=True, **how)))

    def hello(self, context=None):
        """A client whose first message has arrived, and waits for the thread."""
        client = self.tls_client(context, handshake=False)
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.do_handshake()
        client.flush()
        self.working = False
        self.until(lambda: self.jobs)
        return client


@pytest.fixture
def driver():
    return HandDriver()


def test_handshakes_are_computed_by_a_thread(driver):
    client = driver.tls_client()
    client.send(framed(b"12345678"))
    driver.settle()
    assert client.receive(12) == framed(b"12345678") and driver.worked >= 1


def test_a_connection_may_be_closed_while_a_thread_computes_its_handshake(driver):
    client = driver.hello()
    client.connection.close("test")
    driver.work()
    driver.settle()
    assert driver.closed_ids == [1]


def test_an_exception_in_the_thread_closes_the_connection_and_is_logged(driver, caplog):
    client = driver.hello()
    _, done = driver.jobs.pop()
    done(MemoryError("no memory for a test"))
    driver.settle()
    assert driver.closed_ids == [1] and driver.loop.connections.closes["error"] == 1
    assert "no memory for a test" in caplog.text
    assert client.socket.recv(1) == b""


def test_an_exception_after_the_thread_closes_the_connection_and_is_logged(caplog):
    """Without it, the connection would stay open as ANONYMOUS."""
    driver = HandDriver(client_auth="required")

    def fails(certificate):
        raise RuntimeError("a bug in the rules")

    driver.loop.use_tls([TlsListener(server_context(material("required")), principal_of=fails, slow_key=True)])
    with caplog.at_level(logging.ERROR):
        client = driver.tls_client(client_context(certificate=of_client()))
        driver.settle()
    assert "a bug in the rules" in caplog.text
    assert driver.loop.connections.closes["error"] == 1 and client.connection.principal is None


def test_the_time_of_a_handshake_does_not_contain_its_time_in_the_queue(driver):
    driver.hello()
    before = meter_probe.word("tls_handshake_us")
    step, done = driver.jobs.pop()
    began = driver.loop.responses.now_ms
    while driver.loop.responses.now_ms < began + 100:  # in the queue
        driver.turn(0.05)
        driver.loop.on_events()
    step()
    done(None)
    assert 0 < meter_probe.word("tls_handshake_us") - before < 90_000


def test_the_step_of_a_closed_connection_is_not_computed(driver):
    """After a storm whose clients have given up, the thread does not work for them."""
    client = driver.hello()
    client.connection.close("test")
    before = meter_probe.word("tls_handshake_us")
    driver.work()
    assert meter_probe.word("tls_handshake_us") == before and driver.worked == 1


@pytest.mark.parametrize(
    ("version", "client_auth", "steps"),
    [
        (ssl.TLSVersion.TLSv1_2, "none", 3),  # hello, key exchange, Finished
        (ssl.TLSVersion.TLSv1_3, "none", 1),  # hello; the Finished needs no long computation
        (ssl.TLSVersion.TLSv1_3, "required", 4),  # hello; certificate, its signature and Finished in a record each
    ],
)
def test_the_thread_computes_the_long_steps(version, client_auth, steps):
    """A change_cipher_spec waits for the message after it: it would be another step otherwise."""
    driver = HandDriver(client_auth=client_auth)
    certificate = None if client_auth == "none" else of_client()
    client = driver.tls_client(client_context(version, certificate=certificate))
    client.send(framed(b"12345678"))
    assert client.receive(12) == framed(b"12345678")
    assert driver.worked == steps


def test_encrypted_records_before_a_hello_are_refused_in_the_loop(driver):
    """They look like the end of a handshake, whose computation is short; nothing is computed for one that has not begun."""
    client = driver.tls_client(handshake=False)
    client.send_raw(b"\x16\x03\x01\x00\x00" + b"\x17\x03\x03\x00\x20" + bytes(32))
    driver.settle()
    assert driver.closed_ids == [1] and driver.loop.connections.closes["authentication"] == 1


def test_encrypted_records_that_cannot_be_decrypted_end_the_handshake(driver):
    client = driver.hello(client_context(ssl.TLSVersion.TLSv1_3))
    driver.work()
    client.send_raw(b"\x17\x03\x03\x00\x20" + bytes(32))
    driver.settle()
    assert driver.closed_ids == [1] and driver.loop.connections.closes["authentication"] == 1
    assert driver.worked == 1


def test_a_change_cipher_spec_without_an_end_is_no_progress(driver):
    """Records that wait for another one are bounded: only the first one waits."""
    client = driver.tls_client(handshake=False)
    client.send_raw(b"\x14\x03\x03\x00\x01\x01" * 1000)
    driver.until(lambda: driver.closed_ids)
    assert driver.loop.connections.closes["other_protocol"] == 1
    client = driver.hello()
    driver.working = True
    driver.settle()
    client.send_raw(b"\x14\x03\x03\x00\x01\x01" * 1000)
    driver.settle()
    assert driver.loop.connections.closes["authentication"] == 1


def test_bytes_that_arrive_while_the_thread_computes_are_read_afterwards():
    driver = HandDriver(client_auth="required")
    client = driver.hello(client_context(ssl.TLSVersion.TLSv1_3, certificate=of_client()))
    driver.work()
    driver.settle()
    client.pull()
    client.tls.do_handshake()
    client.flush()
    driver.until(lambda: driver.jobs)
    client.send(framed(b"12345678"))
    client.socket.shutdown(1)
    driver.settle()
    assert driver.handler.seen == []
    driver.working = True
    driver.until(lambda: driver.closed_ids)
    assert driver.handler.seen == [b"12345678"]


def finished(driver):
    """A client that has the server's part of a TLS 1.3 handshake, and its last records, which are not sent yet."""
    client = driver.hello(client_context(ssl.TLSVersion.TLSv1_3))
    driver.work()
    driver.settle()
    client.pull()
    client.tls.do_handshake()
    records = client.outgoing.read()
    return client, records


def test_the_ticket_and_the_first_response_are_sent_together(driver):
    """A system call and a packet less, if the request has arrived with the client's Finished."""
    client, records = finished(driver)
    sent = driver.loop.sender.bytes_out
    client.send_raw(records + client.encrypt(framed(b"12345678")))
    driver.turn()
    assert driver.handler.seen == [b"12345678"] and driver.loop.sender.bytes_out > sent + 200
    received = client.socket.recv(1 << 16)
    assert len(received) == driver.loop.sender.bytes_out - sent
    client.incoming.write(received)
    assert client.tls.read(100) == framed(b"12345678")


def test_a_bad_frame_with_the_end_of_the_handshake_is_refused_with_an_end_that_the_client_can_read(driver):
    """The ticket, which waits for a response, is sent before close_notify."""
    client, records = finished(driver)
    client.send_raw(records + client.encrypt(b"\x7f\xff\xff\xff"))
    driver.until(lambda: driver.closed_ids)
    while client.pull():
        pass
    with pytest.raises(ssl.SSLZeroReturnError):
        client.tls.do_handshake()
        if client.tls.read(1) == b"":
            raise ssl.SSLZeroReturnError
    assert driver.loop.connections.closes["bad_frame"] == 1
