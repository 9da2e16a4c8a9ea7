"""A schema registry for tests: answers with the schemas that a test gives it, as Confluent's REST API does."""

from __future__ import annotations

import json
import ssl
import struct
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from threading import Thread
from typing import Any

import fastavro

from odradek.jobs.load.registry import Registry


class SchemaRegistry:
    """Schemas by id, and subjects with their versions. :param login: USER:PASSWORD that it asks for.

    `failing` is the status that it answers instead, to requests below `failing_path`.
    """

    def __init__(self, login: str | None = None) -> None:
        self.login = login
        self.url = ""
        self.asked: list[str] = []
        self.failing: int | None = None
        self.failing_path = "/"
        self._answers: dict[str, dict[str, Any]] = {}
        self._ids = 0

    def register(self, subject: str, schema: Any, kind: str = "AVRO", references: Any = ()) -> int:
        """Add a version of a subject; return its id."""
        return self.register_text(subject, json.dumps(schema), kind, references)

    def register_text(self, subject: str, text: str, kind: str = "AVRO", references: Any = ()) -> int:
        """The same with the text of a schema."""
        self._ids += 1
        version = 1 + sum(
            path.startswith(f"/subjects/{subject}/versions/") for path in self._answers if "latest" not in path
        )
        document = {"schema": text, "schemaType": kind, "references": list(references)}
        for path in (
            f"/schemas/ids/{self._ids}",
            f"/subjects/{subject}/versions/{version}",
            f"/subjects/{subject}/versions/latest",
        ):
            self._answers[path] = document
        return self._ids

    def answer(self, path: str, login: str | None) -> tuple[int, bytes]:
        self.asked.append(path)
        wanted = None if self.login is None else "Basic " + b64encode(self.login.encode()).decode()
        if login != wanted:
            return 401, json.dumps({"error_code": 40101, "message": "Unauthorized"}).encode()
        if self.failing is not None and path.startswith(self.failing_path):
            return self.failing, b"<html>"
        if path == "/schemas/types":
            return 200, b'["AVRO"]'
        if path in self._answers:
            return 200, json.dumps(self._answers[path]).encode()
        code = 40403 if path.startswith("/schemas/ids/") else 40401
        return 404, json.dumps({"error_code": code, "message": "not found"}).encode()

    @property
    def client(self) -> Registry:
        """The registry as the load knows it."""
        return Registry(self.url, () if self.login is None else (("basic.auth.user.info", self.login),))

    @contextmanager
    def serving(self, tls: ssl.SSLContext | None = None) -> Iterator[SchemaRegistry]:
        """Answer requests on a free port."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = registry.answer(self.path, self.headers.get("Authorization"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        self.url = f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def encoded(number: int, schema: Any, value: Any) -> bytes:
    """A value in the wire format of registries."""
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, number) + stream.getvalue()
