"""HTTP requests to servers that misbehave: each ends in time, within its size, with one line."""

import gzip
import socket
import ssl
import threading
import time
from contextlib import contextmanager

import pytest

from odradek.http_request import (
    HttpError,
    MalformedError,
    RedirectError,
    SlowError,
    TooLargeError,
    UnreachableError,
    basic_login,
    request,
)
from odradek.security.provider_trust import tls_context
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


def refused(serve, words, kind=HttpError, **limits):
    with server(serve) as url:
        began = time.monotonic()
        with pytest.raises(kind) as caught:
            get(url, **limits)
    assert str(caught.value).startswith("127.0.0.1:") and str(caught.value).endswith(caught.value.predicate)
    assert words in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)
    return time.monotonic() - began


def test_a_document_is_read_over_http_and_https(tmp_path):
    with IdentityProvider() as provider:
        assert get(provider.url()) == (200, default_jwks(), "OK")
        assert get(provider.url("x?y=z")).status == 200
        assert get(provider.url("token"), body=b"x=y").status == 401
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificates.of_broker().configure_cert(context)
    with IdentityProvider(context) as provider:
        (tmp_path / "ca.pem").write_text(certificates.ca_pem())
        for trust in ((f"{tmp_path}/ca.pem", "PEM", None, None), (None, "PEM", None, certificates.ca_pem())):
            assert get(provider.url(), trust=trust).body == default_jwks()
        for trust in (NO_TRUST, (None, "PEM", None, certificates.ca_pem("another"))):
            with pytest.raises(UnreachableError, match=r"^127.0.0.1:[0-9]+ .*: its certificate is not accepted: "):
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
    took = refused(serve, "did not respond within 0.5 s", SlowError, limit_s=0.5)
    assert took < 30


def test_a_server_that_never_ends_the_tls_handshake_is_left_at_the_deadline():
    with server(hangs) as url, pytest.raises(SlowError, match=r"within 0\.3 s"):
        get(url.replace("http:", "https:"), limit_s=0.3)


@pytest.mark.parametrize(
    ("serve", "words", "kind"),
    [
        (sends_without_end, "more than 1000 bytes", TooLargeError),
        (
            answers(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n" + b"x" * 2000),
            "more than 1000 bytes",
            TooLargeError,
        ),
        (answers(CHUNKED + b"7d0\r\n" + b"x" * 2000 + b"\r\n0\r\n\r\n"), "more than 1000 bytes", TooLargeError),
        (
            answers(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"),
            "closed the connection before the end",
            MalformedError,
        ),
        (answers(CHUNKED + b"5\r\nab"), "respond in HTTP", MalformedError),
        (answers(CHUNKED + b"zz\r\nab"), "respond in HTTP", MalformedError),
        (
            answers(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n"),
            "redirects to 'file:///etc/passwd'",
            RedirectError,
        ),
        (
            answers(b"HTTP/1.1 307 X\r\nLocation: http://169.254.169.254/\x1b[0m\r\n\r\n"),
            "redirects are not followed",
            RedirectError,
        ),
        (answers(b"HTTP/1.1 301 X\r\n\r\n"), "redirects to ''", RedirectError),
        (answers(b""), "cannot be reached: it closed the connection", UnreachableError),
        (answers(b"SSH-2.0-OpenSSH\r\n"), "in HTTP", MalformedError),
        (answers(b"\xff" * 200_000), "in HTTP", MalformedError),
        (answers(b"HTTP/1.1 abc OK\r\n\r\n"), "in HTTP", MalformedError),
        (answers(b"HTTP/1.1 200 OK\r\n" + b"X-Y: z\r\n" * 200 + b"\r\n"), "in HTTP", MalformedError),
    ],
)
def test_responses_that_are_too_large_or_malformed_or_redirect_are_refused(serve, words, kind):
    refused(serve, words, kind, largest=1000)


@pytest.mark.parametrize(
    "serve",
    [
        repeats(CHUNKED + b"-1\r\n", b"x" * 65536),  # http.client reads such a chunk to the end of the connection
        repeats(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
        repeats(CHUNKED + b"0\r\n", b"X-Y: z\r\n" * 100),
    ],
)
def test_the_bytes_of_a_response_are_bounded_whatever_they_are(serve):
    refused(serve, "more than 264144 bytes with the headers", TooLargeError, largest=1000)


def test_a_port_that_nobody_serves_and_an_unknown_host_are_one_line():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(UnreachableError, match=r"127.0.0.1:[0-9]+ cannot be reached: Connection refused"):
            get(f"http://127.0.0.1:{unused.getsockname()[1]}/")
    with pytest.raises(UnreachableError, match=r"no-such-host\.invalid:80 .*: its host name cannot be resolved"):
        get("http://no-such-host.invalid/")


def packed(content):
    data = gzip.compress(content)
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(data) + data


def test_a_compressed_body_is_bounded_before_and_after_decompression():
    with server(answers(packed(b"content"))) as url:
        assert get(url, compressed=True).body == b"content"
    bomb = packed(bytes(1 << 20))
    assert len(bomb) < 2000
    refused(answers(bomb), "sent more than 2000 bytes", TooLargeError, largest=2000, compressed=True)
    cut = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"content")[:-9]
    refused(answers(cut), "sent an incomplete response", MalformedError, compressed=True)
    refused(answers(cut[:-5] + b"x" * 20), "in HTTP (error)", MalformedError, compressed=True)


@pytest.mark.parametrize(
    "body",
    [
        answers(b"HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\nshort"),
        answers(b"HTTP/1.1 503 Busy\r\n\r\n" + b"x" * 70_000),
        drips(b"HTTP/1.1 503 Busy\r\n\r\n", b"x"),
    ],
)
def test_the_status_of_a_failure_is_known_without_its_body(body):
    with server(body) as url:
        assert get(url, largest=1000, limit_s=0.5) == (503, b"", "Busy")


def test_the_body_of_a_failure_may_be_larger_than_that_of_a_success():
    with server(answers(b"HTTP/1.1 503 Busy\r\n\r\n" + b"x" * 2000)) as url:
        assert get(url, largest=1000).body == b"x" * 2000


def test_a_redirection_has_its_status():
    with server(answers(b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n")) as url, pytest.raises(RedirectError) as caught:
        get(url)
    assert (caught.value.status, caught.value.reason) == (302, "Found")


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://a/b",
        "a:1",
        "http://a:b/",
        "http://a:99999/",
        "http://[/",
        "http://a/b c",
        "http://me:secret@a/",
        "http://a/\x7f",
    ],
)
def test_other_urls_are_refused(url):
    with pytest.raises(HttpError, match="must be a") as caught:
        get(url)
    assert "secret" not in str(caught.value)


def test_a_response_without_length_is_refused_if_it_must_be_complete():
    with server(answers(b"HTTP/1.0 200 OK\r\n\r\nhalf of it")) as url:
        assert get(url).body == b"half of it"
        with pytest.raises(MalformedError, match="how long its response is"):
            get(url, complete=True)
    for whole in (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", CHUNKED + b"2\r\nab\r\n0\r\n\r\n"):
        with server(answers(whole)) as url:
            assert get(url, complete=True).body == b"ab"


def test_data_behind_a_compressed_body_are_not_ignored():
    body = gzip.compress(b"first") + gzip.compress(b"second")
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with server(answers(head + body)) as url, pytest.raises(MalformedError, match="behind its compressed"):
        get(url, compressed=True)


def test_a_header_cannot_add_another_one():
    received = []

    def serve(sock, ended):
        received.append(sock.recv(65536))
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

    with server(serve) as url:
        with pytest.raises(HttpError):
            get(url, headers={"X": "a\r\nY: b"})
        get(url, headers=basic_login("me:secret") | {"Accept": "text/plain"})
    (head,) = received
    lines = head.decode().split("\r\n")
    assert lines[0] == "GET /jwks HTTP/1.1" and lines[-2:] == ["", ""] and len(set(lines[1:-2])) == len(lines) - 3
    assert "Authorization: Basic bWU6c2VjcmV0" in lines and "Accept: text/plain" in lines
    assert "Accept-Encoding: identity" in lines and "Connection: close" in lines


def test_proxies_of_the_environment_are_not_used(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with server(answers(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")) as url:
        assert get(url).body == b"ok"
