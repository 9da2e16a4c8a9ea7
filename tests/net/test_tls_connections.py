"""TLS in the data loop: whatever the records and reads look like, the handler sees the frames, and clients the responses."""

import os
import random
import socket
import ssl
import sys
import threading
from contextlib import ExitStack, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek._ext.net.connection import FrameResult
from odradek._ext.net.output import FileSlice
from tests.certificates import ca_pem, client_context, material, of_client
from tests.net.connection_driver import EchoHandler, framed
from tests.net.tls_driver import TlsDriver, tls_listener, tlslite_client

VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
pytestmark = pytest.mark.usefixtures("tls_layer")


@pytest.fixture
def new_driver():
    """Makes a TlsDriver, which is closed after the test."""
    with ExitStack() as stack:

        def make(*arguments, **settings):
            driver = TlsDriver(*arguments, **settings)
            stack.callback(driver.close)
            return driver

        yield make


@pytest.fixture
def driver(new_driver):
    return new_driver()


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_are_answered(driver, version):
    client = driver.tls_client(client_context(version))
    assert client.tls.version() == {VERSIONS[0]: "TLSv1.2", VERSIONS[1]: "TLSv1.3"}[version]
    for size in (8, 100, 16_384, 16_385, 70_000, 600_000, 3_000_000):
        payload = random.Random(size).randbytes(size)
        client.send(framed(payload))
        assert client.receive(4 + size) == framed(payload)
    assert driver.loop.connections.unauthenticated_count == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_every_byte_may_arrive_alone(driver, version):
    client = driver.tls_client(client_context(version))
    frames = [bytes([i]) * (8 + i) for i in range(4)]
    for byte in client.encrypt(b"".join(map(framed, frames))):
        client.send_raw(bytes([byte]))
        driver.settle()
    assert driver.handler.seen == frames
    assert client.receive(sum(4 + len(frame) for frame in frames)) == b"".join(map(framed, frames))


def test_every_byte_of_a_handshake_may_arrive_alone(driver):
    client = driver.tls_client(handshake=False)
    send_raw = client.send_raw

    def one_by_one(data):
        for byte in data:
            send_raw(bytes([byte]))
            driver.settle()

    client.send_raw = one_by_one
    client.handshake()
    client.send(framed(b"12345678"))
    assert client.receive(12) == framed(b"12345678")


@settings(deadline=None, max_examples=25)
@given(
    sizes=st.lists(st.integers(8, 40_000), min_size=1, max_size=8),
    writes=st.lists(st.integers(1, 20_000), min_size=1, max_size=6),
    reads=st.lists(st.integers(1, 30_000), min_size=1, max_size=6),
    buffer=st.sampled_from([8192, 20_000, 524_288]),
)
def test_any_split_gives_the_same_frames(sizes, writes, reads, buffer):
    driver = TlsDriver(receive_buffer_bytes=buffer)
    client = driver.tls_client()
    frames = [random.Random(size).randbytes(size) for size in sizes]
    plain = b"".join(map(framed, frames))
    records = bytearray()
    at = step = 0
    while at < len(plain):  # into records of these sizes
        records += client.encrypt(plain[at : at + writes[step % len(writes)]])
        at += writes[step % len(writes)]
        step += 1
    at = step = 0
    while at < len(records):  # which arrive in pieces of these sizes
        client.send_raw(bytes(records[at : at + reads[step % len(reads)]]))
        driver.settle()
        at += reads[step % len(reads)]
        step += 1
    assert client.receive(len(plain)) == plain
    assert driver.handler.seen == frames
    driver.close()


def test_the_responses_of_one_turn_share_a_record(driver):
    client = driver.tls_client()
    client.send(framed(b"12345678"))
    assert client.receive(12)
    driver.handler.flushes = 0
    client.send_raw(b"".join(client.encrypt(framed(bytes([i]) * 50)) for i in range(10)))
    driver.settle()
    client.pull()
    assert driver.handler.flushes == 1, "ten records of one read are offered together"
    data = client.incoming.read()
    assert int.from_bytes(data[3:5], "big") + 5 == len(data), "one record"


def test_frames_behind_a_hold_are_executed_after_it(driver):
    """While a frame is deferred, decrypted and encrypted bytes wait; epoll does not know of either."""
    held = []

    def answer(connection, frame):
        if frame.startswith(b"park"):
            held.append(connection.reserve())
            return FrameResult.FRAME_PENDING
        if held and not held[0].done:
            return FrameResult.FRAME_DEFER
        driver.loop.responses.write(framed(frame))
        return FrameResult.FRAME_DONE

    driver.handler.answer = answer
    client = driver.tls_client()
    rest = [b"x" * 100_000, b"y" * 100_000, b"z" * 100]
    client.send(framed(b"parked..") + b"".join(map(framed, rest)))
    driver.settle()
    held[0].complete([framed(b"answered")])
    driver.loop.flush_dirty()
    expected = framed(b"answered") + b"".join(map(framed, rest))
    assert client.receive(len(expected)) == expected


def test_a_client_that_does_not_read_is_held_and_bounded(new_driver):
    driver = new_driver(max_queued_bytes=300_000)
    client = driver.tls_client()
    frame = framed(b"q" * 50_000)
    payload = client.encrypt(frame * 60)
    thread = threading.Thread(target=client.socket.sendall, args=(payload,))
    client.socket.settimeout(30)
    thread.start()
    driver.until(lambda: client.connection.muted)
    driver.settle()
    assert client.connection.queued_bytes < 900_000
    received = client.receive(len(frame) * 60)
    thread.join()
    assert received == frame * 60


@pytest.mark.parametrize("size", [100, 16_384, 300_000, 2_500_000])
def test_slices_of_files_are_sent_whole(driver, tmp_path, size):
    path = tmp_path / "segment"
    content = random.Random(size).randbytes(size + 100)
    path.write_bytes(content)
    with path.open("rb") as file:

        def answer(connection, frame):
            driver.loop.responses.write(b"head")
            driver.loop.responses.write_file(FileSlice(file, 50, size))
            driver.loop.responses.write(b"tail")
            return FrameResult.FRAME_DONE

        driver.handler.answer = answer
        client = driver.tls_client()
        client.send(framed(b"12345678"))
        assert client.receive(size + 8) == b"head" + content[50 : 50 + size] + b"tail"


def test_pages_that_are_not_in_memory_are_read_by_the_cold_reader(new_driver, tmp_path):
    path = tmp_path / "segment"
    content = random.Random(1).randbytes(3_000_000)
    path.write_bytes(content)
    asked = []

    def cold_reader(owner, fd, position, length, done):
        asked.append((position, length))
        os.pread(fd, length, position)
        done()

    driver = new_driver(cold_reader=cold_reader)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        def answer(connection, frame):
            driver.loop.responses.write_file(FileSlice(file, 0, len(content)))
            return FrameResult.FRAME_DONE

        driver.handler.answer = answer
        client = driver.tls_client()
        client.send(framed(b"12345678"))
        assert client.receive(len(content)) == content


def test_a_file_that_is_too_short_closes_the_connection_without_close_notify(driver, tmp_path):
    path = tmp_path / "segment"
    path.write_bytes(b"x" * 100_000)
    with path.open("rb") as file:

        def answer(connection, frame):
            driver.loop.responses.write_file(FileSlice(file, 0, 200_000))
            return FrameResult.FRAME_DONE

        driver.handler.answer = answer
        client = driver.tls_client()
        client.send(framed(b"12345678"))
        with pytest.raises(ssl.SSLEOFError):
            client.receive(200_000)
    assert driver.loop.connections.closes["file"] == 1


# -- the end of a connection -------------------------------------------------------------------------------------------


def test_an_orderly_close_says_so(driver):
    client = driver.tls_client()
    client.send(framed(b"12345678"))
    assert client.receive(12)
    client.connection.close("test")
    assert client.receive(1) == b"", "without close_notify, this raises SSLEOFError"


def test_close_notify_of_the_client_ends_the_stream_and_later_bytes_are_ignored(driver):
    client = driver.tls_client()
    client.send(framed(b"12345678"))
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.flush()
    client.send_raw(b"\x17\x03\x03\x00\x10" + b"after close_notify" * 100)
    driver.until(lambda: driver.closed_ids)
    assert driver.handler.seen == [b"12345678"]
    assert driver.loop.connections.closes["eof"] == 1


def test_responses_are_still_sent_after_close_notify(driver):
    parked = []

    def answer(connection, frame):
        parked.append(connection.reserve())
        return FrameResult.FRAME_PENDING

    driver.handler.answer = answer
    client = driver.tls_client()
    client.send(framed(b"12345678"))
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.flush()
    driver.settle()
    parked[0].complete([framed(b"late....")])
    driver.loop.flush_dirty()
    data = client.pull() and client.incoming.read()
    assert data[:1] == b"\x17" and driver.loop.connections.closes["eof"] == 1


def test_a_stream_that_is_cut_off_is_an_end(driver):
    client = driver.tls_client()
    records = client.encrypt(framed(b"12345678") + framed(b"x" * 1000))
    client.send_raw(records[:-10])
    client.socket.shutdown(socket.SHUT_WR)
    driver.until(lambda: driver.closed_ids)
    assert driver.loop.connections.closes["eof"] == 1 and driver.handler.seen in ([], [b"12345678"])


@pytest.mark.skipif(sys.version_info >= (3, 15), reason="OpenSSL itself is used with CPython 3.11 to 3.14")
def test_the_records_are_moved_by_openssl_itself(driver, tls_layer):
    assert driver.tls_client().connection.tls.is_native == tls_layer


@settings(max_examples=60)
@given(st.integers(0, 255), st.integers(1, 255), st.integers(0, 255), st.sampled_from(VERSIONS))
def test_a_changed_byte_of_a_record_in_any_split_ends_only_its_own_connection(at, flip, split, version):
    driver = TlsDriver()
    try:
        client = driver.tls_client(client_context(version=version))
        records = bytearray(client.encrypt(framed(b"1" * 200)))
        records[at % len(records)] ^= flip
        client.send_raw(bytes(records[: split % len(records)]))
        driver.settle()
        with suppress(OSError):  # the broker may have closed it
            client.send_raw(bytes(records[split % len(records) :]))
            client.socket.shutdown(socket.SHUT_WR)
        driver.until(lambda: driver.closed_ids)
        assert driver.handler.seen in ([], [b"1" * 200])  # some bytes of a header mean nothing
        other = driver.tls_client()
        other.send(framed(b"12345678"))
        assert other.receive(12) == framed(b"12345678")
    finally:
        driver.close()


def test_a_damaged_record_closes_the_connection(driver):
    client = driver.tls_client()
    records = bytearray(client.encrypt(framed(b"12345678")))
    records[-1] ^= 1
    client.send_raw(bytes(records))
    driver.until(lambda: driver.closed_ids)
    assert driver.loop.connections.closes["bad_frame"] == 1 and driver.handler.seen == []


# -- handshakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (framed(b"\0\x12\0\0\0\0\0\0"), "the client speaks plaintext"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP without TLS"),
        (b"\x80\x2e\x01\x03\x01", "the client speaks plaintext"),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 9093\r\n", "PROXY protocol"),
        (b"PRO", "PROXY protocol"),
        (b"\r\n", "PROXY protocol"),
        (b"P", "the client speaks plaintext"),
    ],
)
def test_other_protocols_are_refused_with_one_line(driver, sent, text):
    client = driver.tls_client(handshake=False)
    client.send_raw(sent)
    driver.until(lambda: driver.closed_ids)
    assert driver.loop.connections.closes["other_protocol"] == 1
    assert len(driver.failures) == 1 and text in driver.failures[0]


def test_a_client_that_only_connects_is_no_failure(driver):
    client = driver.tls_client(handshake=False)
    client.socket.close()
    driver.until(lambda: driver.closed_ids)
    assert driver.loop.connections.closes["eof"] == 1 and driver.failures == []


def test_a_handshake_that_is_cut_off_is_a_failure(driver):
    client = driver.tls_client(handshake=False)
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    client.send_raw(client.outgoing.read()[:-5])
    client.socket.shutdown(socket.SHUT_WR)
    driver.until(lambda: driver.closed_ids)
    assert driver.loop.connections.closes["authentication"] == 1 and "during the TLS handshake" in driver.failures[0]


@settings(deadline=None, max_examples=60)
@given(data=st.binary(max_size=300), like_tls=st.booleans(), split=st.integers(0, 300))
def test_hostile_bytes_of_a_handshake_end_only_their_own_connection(data, like_tls, split):
    driver = TlsDriver()
    honest = driver.tls_client()
    client = driver.tls_client(handshake=False)
    data = b"\x16\x03\x01" + data if like_tls else data
    for part in (data[:split], data[split:]):
        if part and client.connection.fd >= 0:
            client.socket.send(part)
            driver.settle()
    client.socket.close()
    driver.until(lambda: 2 in driver.closed_ids)
    honest.send(framed(b"12345678"))
    assert honest.receive(12) == framed(b"12345678")


@settings(deadline=None, max_examples=60)
@given(at=st.integers(0, 600), flip=st.integers(1, 255))
def test_a_changed_byte_of_a_client_hello_ends_only_its_own_connection(at, flip):
    driver = TlsDriver()
    client = driver.tls_client(handshake=False)
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    hello = bytearray(client.outgoing.read())
    hello[at % len(hello)] ^= flip
    client.send_raw(bytes(hello))
    driver.settle()
    honest = driver.tls_client()
    honest.send(framed(b"12345678"))
    assert honest.receive(12) == framed(b"12345678")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_a_client_certificate_becomes_the_principal(new_driver, version, client_auth):
    driver = new_driver(listener=tls_listener(material(client_auth, rules="RULE:^CN=([^,]*),.*$/$1/U,DEFAULT")))
    client = driver.tls_client(client_context(version, of_client()))
    client.send(framed(b"12345678"))
    assert client.receive(12)
    assert client.connection.principal == "User:ALICE"


def test_a_session_does_not_outlive_the_certificate_of_its_client(new_driver, monkeypatch, tls_layer):
    """TLS 1.2 resumes a session by its id also without tickets, and then checks no certificate. OpenSSL itself keeps none."""
    driver = new_driver(listener=tls_listener(material("required")))
    context = client_context(ssl.TLSVersion.TLSv1_2, of_client())
    session = driver.tls_client(context).tls.session

    def resumed():
        client = driver.tls_client(context, handshake=False)
        client.tls = context.wrap_bio(client.incoming, client.outgoing, server_hostname="localhost", session=session)
        client.handshake()
        driver.settle()
        assert client.tls.session_reused is not tls_layer
        return client

    again = resumed()
    assert again.connection.principal and again.connection.fd >= 0
    if tls_layer:
        return
    year_5138 = 10**11  # the certificates of these tests are valid very long
    monkeypatch.setattr("odradek._ext.net.tls.time", lambda: year_5138)
    late = resumed()
    assert late.connection.principal is None and late.connection.fd < 0
    assert driver.failures == ["the client's certificate has expired since its session began"]


def test_sessions_of_clients_without_certificates_are_kept_up_to_a_limit(new_driver, tls_layer):
    """Their clients have no tickets; OpenSSL's own limit is 20,480."""
    listener = tls_listener()
    driver = new_driver(listener=listener)
    context = client_context(ssl.TLSVersion.TLSv1_2)
    context.options |= ssl.OP_NO_TICKET
    for _ in range(1030):
        client = driver.tls_client(context)
        client.socket.close()
    kept = listener.context.session_stats()["number"]
    assert 1000 < kept <= 1024 if tls_layer else kept == 1030


def test_without_a_requested_certificate_the_principal_is_anonymous(new_driver):
    driver = new_driver(listener=tls_listener(material("requested")))
    client = driver.tls_client()
    client.send(framed(b"12345678"))
    assert client.receive(12) and client.connection.principal is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("certificate", "reason"), [(None, "the client sent no certificate"), ("foreign", "was not accepted")]
)
def test_a_missing_or_foreign_certificate_is_refused(new_driver, version, certificate, reason):
    driver = new_driver(listener=tls_listener(material("required")))
    presented = None if certificate is None else of_client("mallory", ca="other")
    client = driver.tls_client(client_context(version, presented), handshake=False)
    with pytest.raises((ssl.SSLError, BrokenPipeError)):
        client.handshake()
        client.send(framed(b"12345678"))
        client.receive(12)
    assert driver.loop.connections.closes["authentication"] == 1 and driver.handler.seen == []
    assert reason in driver.failures[0]


def test_a_certificate_that_no_rule_maps_is_refused(new_driver):
    driver = new_driver(listener=tls_listener(material("required", rules="RULE:^CN=nobody$/x/")))
    client = driver.tls_client(client_context(certificate=of_client()))
    with pytest.raises((ssl.SSLError, BrokenPipeError, ConnectionResetError)):
        client.send(framed(b"12345678"))
        assert client.receive(12) == b""
        raise ConnectionResetError
    assert driver.handler.seen == [] and "no rule of ssl.principal.mapping.rules" in driver.failures[0]


def test_versions_that_are_not_enabled_are_refused(new_driver):
    driver = new_driver(listener=tls_listener(material(versions=("TLSv1.3", "TLSv1.3"))))
    client = driver.tls_client(client_context(ssl.TLSVersion.TLSv1_2), handshake=False)
    with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
        client.handshake()
    assert "ssl.enabled.protocols" in driver.failures[0]


def test_handshakes_that_take_too_long_are_closed(driver):
    half = driver.tls_client(handshake=False)
    with pytest.raises(ssl.SSLWantReadError):
        half.tls.do_handshake()
    half.flush()
    driver.settle()
    done = driver.tls_client()
    began = driver.loop.responses.now_ms
    assert driver.loop.connections.sweep_unauthenticated(began + 5_000) == 0
    assert driver.loop.connections.sweep_unauthenticated(began + 10_001) == 1
    assert driver.closed_ids == [half.connection.connection_id]
    done.send(framed(b"12345678"))
    assert done.receive(12)


def test_one_address_cannot_have_too_many_open_handshakes(driver):
    driver.loop.connections.max_unauthenticated_of_address = 10
    clients = [driver.tls_client(handshake=False) for _ in range(12)]
    assert driver.closed_ids == [11, 12] and "which is the limit" in driver.failures[0]
    clients[0].handshake()
    again = driver.tls_client()
    again.send(framed(b"12345678"))
    assert again.receive(12)


def test_all_addresses_together_cannot_have_too_many_open_handshakes(driver):
    driver.loop.connections.max_unauthenticated = 3
    first = driver.tls_client(handshake=False)
    for _ in range(2):
        driver.tls_client(handshake=False)
    driver.tls_client(handshake=False)  # nobody has been silent for a second
    assert driver.closed_ids == [4]
    while driver.loop.responses.now_ms < first.connection.last_activity_ms + 1_000:
        driver.turn(0.05)
        driver.loop.on_events()
    client = driver.tls_client()
    assert driver.closed_ids == [4, 1], "the first one, which is silent, makes room"
    client.send(framed(b"12345678"))
    assert client.receive(12)


@pytest.mark.parametrize("certificates", [40, 700])
def test_a_handshake_that_does_not_fit_into_the_socket_continues_when_it_does(new_driver, certificates):
    """The chain has so many certificates that the broker's flight is larger than the socket's buffer."""
    one = material()
    driver = new_driver(listener=tls_listener(one._replace(chain=one.chain + ca_pem("other") * certificates)))
    client = driver.tls_client(handshake=False, send_buffer=4096)
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    client.flush()
    driver.until(lambda: driver.loop.sender.bytes_out > 0)
    driver.settle()  # the client has not read yet
    assert driver.loop.sender.bytes_out < len(one.chain) * certificates // 4, "the flight did not fit"
    if certificates > 100:  # more than OpenSSL's clients accept
        with pytest.raises(ssl.SSLError):
            client.handshake()
        return
    client.handshake()
    client.send(framed(b"12345678"))
    assert client.receive(12) == framed(b"12345678")


# -- TLS records without frames ------------------------------------------------------------------------------------------


def test_key_updates_are_answered_and_a_flood_of_them_is_cut_off(driver):
    client, _ = tlslite_client(driver)
    for _ in range(3):
        for _ in client.send_keyupdate_request(1):
            pass
        client.write(framed(b"12345678"))
        driver.settle()
        assert client.read(min=12, max=12) == framed(b"12345678")
    for _ in range(40):
        for _ in client.send_keyupdate_request(1):
            pass
    driver.until(lambda: driver.closed_ids)
    assert driver.handler.seen == [b"12345678"] * 3


def test_a_reload_concerns_new_connections_only(driver):
    old = driver.tls_client()
    driver.loop.use_tls([tls_listener(material(versions=("TLSv1.2", "TLSv1.2")))])
    new = driver.tls_client()
    assert (old.tls.version(), new.tls.version()) == ("TLSv1.3", "TLSv1.2")
    for client in (old, new):
        client.send(framed(b"12345678"))
        assert client.receive(12) == framed(b"12345678")


def test_a_plain_listener_beside_it_stays_plain(new_driver):
    driver = new_driver(EchoHandler())
    driver.loop.use_tls([None])
    client, connection = driver.connect()
    client.sendall(framed(b"12345678"))
    assert driver.receive(client, 12) == framed(b"12345678") and connection.tls is None


def test_a_login_that_follows_the_handshake_is_awaited(new_driver):
    """On SASL_SSL, the handshake alone does not authenticate a client; nor is its certificate the principal."""
    listener = tls_listener(material("required")._replace(authenticates=False))
    driver = new_driver(listener=listener)
    logged_in = driver.tls_client(client_context(certificate=of_client()))
    silent = driver.tls_client(client_context(certificate=of_client()))
    assert driver.loop.connections.unauthenticated_count == 2 and logged_in.connection.principal is None
    driver.loop.connections.note_authenticated(logged_in.connection)
    assert driver.loop.connections.sweep_unauthenticated(driver.loop.responses.now_ms + 10_001) == 1
    assert driver.closed_ids == [silent.connection.connection_id]
    assert "had not logged in" in driver.failures[0]


def test_a_login_on_a_plain_listener_is_awaited(new_driver):
    driver = new_driver()
    driver.loop.use_tls([None])
    client, connection = driver.connect()
    driver.loop.connections.await_authentication(connection)
    driver.loop.connections.max_unauthenticated = 1
    driver.loop.connections.await_authentication(driver.connect()[1])
    assert driver.closed_ids == [2]
    assert driver.loop.connections.sweep_unauthenticated(driver.loop.responses.now_ms + 10_001) == 1
    assert client.recv(1) == b"" and driver.loop.connections.closes["authentication"] == 2
