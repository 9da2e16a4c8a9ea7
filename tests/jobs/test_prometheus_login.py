"""The login for a Prometheus goes to this server only, and is no argument of a command."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.options import LOGIN, check_source
from odradek.jobs.usage_report.prometheus_http import Prometheus, Query


class Server(ThreadingHTTPServer):
    """Answers with no values, or redirects to `target`; keeps the logins that it received."""

    def __init__(self, target: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.target = target
        self.logins: list[str | None] = []
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        self.thread.join(10)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.logins.append(self.headers.get("Authorization"))
        body = b'{"status":"success","data":["a"]}'
        self.send_response(200 if self.server.target is None else 302)
        if self.server.target is not None:
            self.send_header("Location", self.server.target + self.path)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def other() -> Iterator[Server]:
    server = Server()
    yield server
    server.end()


def test_the_login_is_sent_to_no_other_host(other: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{other.server_port}")
    server = Server(f"http://127.0.0.1:{other.server_port}")
    try:
        prometheus = Prometheus(f"http://report:s3cret@127.0.0.1:{server.server_port}")
        with pytest.raises(ReportError, match=r"returned HTTP 302.*it redirects; give the address that it names"):
            prometheus.label_values("job", Query("up"), 0, 1000)
    finally:
        server.end()
    assert server.logins == ["Basic " + base64.b64encode(b"report:s3cret").decode()] and not other.logins


def test_the_login_may_be_in_the_environment(other: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOGIN, "report:s3:cr@t/\n")
    source = check_source(None, f"http://127.0.0.1:{other.server_port}/")
    assert source.prometheus is not None and "s3" not in str(source)
    assert Prometheus(source.prometheus).label_values("job", Query("up"), 0, 1000) == ["a"]
    assert other.logins == ["Basic " + base64.b64encode(b"report:s3:cr@t/").decode()]


@pytest.mark.parametrize("login", ["report", ":x"])
def test_a_login_without_a_password_is_refused_without_showing_it(login: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOGIN, login)
    with pytest.raises(ReportError, match=r"^ODRADEK_PROMETHEUS_LOGIN: expected USER:PASSWORD$"):
        check_source(None, "http://localhost:9090")


def test_no_message_shows_the_login_of_a_url() -> None:
    assert str(check_source(None, "http://report:s3cret@localhost:9090")) == "Prometheus http://localhost:9090"
    with pytest.raises(ReportError) as caught:
        check_source(None, "ftp://report:s3cret@localhost")
    assert "s3cret" not in str(caught.value)
