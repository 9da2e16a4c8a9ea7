"""Registries that answer what no registry should: they cost a bounded time and memory, and one line says what was wrong."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest

from odradek.jobs.load import registry as module
from odradek.jobs.load.avro import AvroDecoder, reader_schema
from odradek.jobs.load.decoding import decoding_of
from odradek.jobs.load.errors import LoadError
from odradek.jobs.load.registry import Registry
from tests.jobs.schema_registry import SchemaRegistry

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int", "default": 1}]})
VALUE = struct.pack(">bI", 0, 1) + b"\x02"


@contextmanager
def serving(answer: Callable[[Any], None]) -> Iterator[Registry]:
    """A server that answers each request with a function of the handler."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                answer(self)
            except (BrokenPipeError, ConnectionResetError):  # the client has read enough
                self.close_connection = True

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield Registry(f"http://127.0.0.1:{server.server_port}", (("basic.auth.user.info", "me:secret"),))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def said_about(registry: Registry) -> str:
    """The message of the error with which a task ends."""
    with pytest.raises(LoadError) as failed:
        AvroDecoder(registry, ORDER).opened().decode(pa.array([VALUE], pa.binary()))
    said = str(failed.value)
    assert "secret" not in said and said.isprintable() and len(said) < 500
    return said


def plain(status: int, body: bytes, *headers: tuple[str, str], length: int | None = None) -> Callable[[Any], None]:
    def answer(handler: Any) -> None:
        handler.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body) if length is None else length))):
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"\xff\xfe", b"[" * 200_000, b'{"schema_": 1}'])
def test_an_answer_that_is_no_schema_is_told(body: bytes) -> None:
    with serving(plain(200, body)) as registry:
        assert "the response to GET /schemas/ids/1 is not that of a schema registry" in said_about(registry)


def test_an_endless_answer_is_not_read_to_its_end() -> None:
    def endless(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(bytes(1 << 20))

    with serving(endless) as registry:
        assert "GET /schemas/ids/1 has more than 16 MiB" in said_about(registry)


def test_an_answer_that_comes_byte_by_byte_is_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LIMIT_S", 0.2)
    ended = Event()

    def slow(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not ended.wait(0.02):
            handler.wfile.write(b" ")

    with serving(slow) as registry:
        try:
            assert re.search(
                r"did not respond to GET /schemas/ids/1: 127.0.0.1:\d+ did not respond within 0.2 s",
                said_about(registry),
            )
        finally:
            ended.set()


def test_a_registry_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LIMIT_S", 0.2)
    ended = Event()
    with serving(lambda handler: ended.wait(60) and None) as registry:
        try:
            assert "did not respond within 0.2 s" in said_about(registry)
        finally:
            ended.set()


def test_a_redirection_does_not_get_the_login() -> None:
    asked: list[str] = []

    def other(handler: Any) -> None:
        asked.append(handler.path)
        plain(200, b"{}")(handler)

    with serving(other) as second, serving(plain(302, b"", ("Location", f"{second.url}/x"))) as registry:
        assert "answered 302 Found" in said_about(registry)
    assert asked == []


def test_messages_of_a_registry_are_one_short_line() -> None:
    message = "\x1b[2J\n\r\u202e" + "x" * 100_000
    with serving(plain(500, json.dumps({"message": message}).encode())) as registry:
        assert "answered 500 Internal Server Error to GET /schemas/ids/1:  [2J   xxx" in said_about(registry)
    with serving(plain(500, json.dumps({"message": {"a": 1}}).encode())) as registry:
        assert "answered 500" in said_about(registry)
    with serving(plain(500, b"short", length=99)) as registry:
        assert "answered 500" in said_about(registry)
    with serving(plain(200, b"short", length=99)) as registry:
        assert "closed the connection before the end of its response" in said_about(registry)


def refused(registry: SchemaRegistry, number: int) -> str:
    """The error of a value with a schema; the task does not fail."""
    columns = AvroDecoder(registry.client, ORDER).opened()
    decoded, errors = columns.decode(pa.array([struct.pack(">bI", 0, number) + b"\x02"], pa.binary()))
    assert decoded.to_pylist() == [None]
    return errors.to_pylist()[0] or ""


def refers_to(*subjects: str, version: Any = 1) -> list[dict[str, Any]]:
    return [{"name": "x", "subject": subject, "version": version} for subject in subjects]


def test_references_in_a_circle_and_many_of_them_are_asked_for_once() -> None:
    with SchemaRegistry().serving() as registry:
        registry.register("a", "int", references=refers_to("b"))
        circle = registry.register("b", "int", references=refers_to("a"))
        registry.register_text("s0", "1")
        for level in range(1, 30):  # two paths from each to the next: 2^29 ways
            top = registry.register_text(f"s{level}", "1", references=refers_to(f"s{level - 1}", f"s{level - 1}", "s0"))
        registry.asked.clear()
        assert "is not a valid Avro schema" in refused(registry, top) and len(registry.asked) == 30
        registry.asked.clear()
        refused(registry, circle)
        assert len(registry.asked) <= 3
        for level in range(300):
            last = registry.register(f"t{level}", "int", references=refers_to(f"t{level - 1}") if level else ())
        assert f"schema {last}: the schema refers to more than 200 others" == refused(registry, last)
        for wrong in ("x", [1], [{}], refers_to("a", version="latest"), refers_to("a", version=None)):
            number = registry.register("wrong", "int", references=wrong)
            assert "is not one of subjects and versions" in refused(registry, number)
        with pytest.raises(LoadError, match=r"--schema wrong: the registry's list of references"):
            decoding_of("avro", "wrong", registry.client)


def test_a_reader_schema_with_too_many_fields_is_refused_at_once() -> None:
    schema: Any = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int"}]}
    for number in range(1, 40):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{number - 1}"}]
        schema = {"type": "record", "name": f"R{number}", "fields": fields}
    with pytest.raises(LoadError, match="more than 10000 fields"):
        reader_schema(json.dumps(schema))
