"""HTTP requests to identity providers that misbehave: each ends in time, within its size, with one line."""

import socket
import ssl
import threading
import time
from contextlib import contextmanager

import pytest

from odradek.security.http_request import HttpError, request, tls_context
from tests import certificates
from tests.identity_provider import IdentityProvider, default_jwks

NO_TRUST = (None, None, None, None)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def get(url, limit_s=30.0, largest=1 << 20, trust=NO_TRUST, **more):
    return request(url, limit_s=limit_s, largest=largest, context=lambda: tls_context(trust), **more)


@contextmanager
def server(serve):
    """A server that calls `serve(socket)` for each connection. Yields its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()
    threads = []

    def run():
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=handle, args=(sock,), daemon=True)
            thread.start()
            threads.append(thread)

    def handle(sock):
        with sock:
            try:
                serve(sock, ended)
            except OSError:
                pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/jwks"
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for one in (thread, *threads):
            one.join()


def answers(data):
    def serve(sock, ended):
        sock.recv(65536)
        sock.sendall(data)

    return serve


def drips(head, byte):
    """Sends a byte again and again, so that no single wait is long."""

    def serve(sock, ended):
        sock.recv(65536)
        sock.sendall(head)
        while not ended.wait(0.02):
            sock.sendall(byte)

    return serve


def sends_without_end(sock, ended):
    sock.recv(65536)
    sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while not ended.is_set():
        sock.sendall(b"x" * 65536)


def repeats(head, data):
    """Sends `head`, then `data` without an end."""

    def serve(sock, ended):
        sock.recv(65536)
        sock.sendall(head)
        while not ended.is_set():
            sock.sendall(data)

    return serve


def hangs(sock, ended):
    ended.wait()


def refused(serve, words, **limits):
    with server(serve) as url:
        began = time.monotonic()
        with pytest.raises(HttpError) as caught:
            get(url, **limits)
    assert words in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)
    return time.monotonic() - began


def test_a_document_is_read_over_http_and_https(tmp_path):
    with IdentityProvider() as provider:
        assert get(provider.url()) == (200, default_jwks())
        assert get(provider.url("x?y=z")).status == 200
        assert get(provider.url("token"), body=b"x=y").status == 401
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificates.of_broker().configure_cert(context)
    with IdentityProvider(context) as provider:
        (tmp_path / "ca.pem").write_text(certificates.ca_pem())
        for trust in ((f"{tmp_path}/ca.pem", "PEM", None, None), (None, "PEM", None, certificates.ca_pem())):
            assert get(provider.url(), trust=trust).body == default_jwks()
        for trust in (NO_TRUST, (None, "PEM", None, certificates.ca_pem("another"))):
            with pytest.raises(HttpError, match=r"the certificate of 127.0.0.1:[0-9]+ is not accepted: "):
                get(provider.url(), trust=trust)
        with pytest.raises(HttpError):
            get(provider.url().replace("https", "http"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificates.authority().issue_cert("another.example").configure_cert(context)
    with IdentityProvider(context) as provider, pytest.raises(HttpError, match=r"not accepted: IP address mismatch"):
        get(provider.url(), trust=(None, "PEM", None, certificates.ca_pem()))


@pytest.mark.parametrize(
    "serve",
    [
        hangs,
        drips(b"", b"x"),
        drips(b"HTTP/1.1 200 OK\r\n", b"X-Y: z\r\n"),
        drips(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x"),
        drips(CHUNKED, b"1\r\nx\r\n"),
        drips(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_a_server_that_is_slow_in_any_part_is_left_at_the_deadline(serve):
    took = refused(serve, "", limit_s=0.5)
    assert took < 30


def test_a_server_that_never_ends_the_tls_handshake_is_left_at_the_deadline():
    with server(hangs) as url, pytest.raises(HttpError, match=r"within 0\.3 s"):
        get(url.replace("http:", "https:"), limit_s=0.3)


@pytest.mark.parametrize(
    ("serve", "words"),
    [
        (sends_without_end, "more than 1000 bytes"),
        (answers(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n" + b"x" * 2000), "more than 1000 bytes"),
        (answers(CHUNKED + b"7d0\r\n" + b"x" * 2000 + b"\r\n0\r\n\r\n"), "more than 1000 bytes"),
        (answers(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"), "closed before the end"),
        (answers(CHUNKED + b"5\r\nab"), "respond in HTTP"),
        (answers(CHUNKED + b"zz\r\nab"), "respond in HTTP"),
        (answers(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n"), "redirects to 'file:///etc/passwd'"),
        (answers(b"HTTP/1.1 307 X\r\nLocation: http://169.254.169.254/\x1b[0m\r\n\r\n"), "redirects are not followed"),
        (answers(b"HTTP/1.1 301 X\r\n\r\n"), "redirects to ''"),
        (answers(b""), "it was closed"),
        (answers(b"SSH-2.0-OpenSSH\r\n"), "in HTTP"),
        (answers(b"\xff" * 200_000), "in HTTP"),
        (answers(b"HTTP/1.1 abc OK\r\n\r\n"), "in HTTP"),
        (answers(b"HTTP/1.1 200 OK\r\n" + b"X-Y: z\r\n" * 200 + b"\r\n"), "in HTTP"),
    ],
)
def test_responses_that_are_too_large_or_malformed_or_redirect_are_refused(serve, words):
    refused(serve, words, largest=1000)


@pytest.mark.parametrize(
    "serve",
    [
        repeats(CHUNKED + b"-1\r\n", b"x" * 65536),  # http.client reads such a chunk to the end of the connection
        repeats(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        repeats(CHUNKED + b"0\r\n", b"X-Y: z\r\n" * 100),
    ],
)
def test_the_bytes_of_a_response_are_bounded_whatever_they_are(serve):
    refused(serve, "more than 264144 bytes with its headers", largest=1000)


def test_a_port_that_nobody_serves_and_an_unknown_host_are_one_line():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(HttpError, match=r"the connection to 127.0.0.1:[0-9]+ failed: Connection refused"):
            get(f"http://127.0.0.1:{unused.getsockname()[1]}/")
    with pytest.raises(HttpError, match=r"the host name no-such-host\.invalid cannot be resolved"):
        get("http://no-such-host.invalid/")
