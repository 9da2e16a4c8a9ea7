"""The reader with confluent-kafka: records whose headers or timestamps it cannot have as they are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from odradek.jobs.load.python_source import _batch

LAST_MS = 9_223_372_036_854_775


class Message:
    """A record as confluent-kafka has it."""

    def __init__(self, at_ms: int = 1) -> None:
        self._at_ms = at_ms

    def timestamp(self) -> tuple[int, int]:
        return 1, self._at_ms

    def headers(self) -> Any:
        return [("a", None), ("a", b"")]

    def key(self) -> None:
        return None

    value = key

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 17


def undecodable() -> Any:
    return b"\xff".decode()


def broken() -> Any:
    raise SystemError("<method 'headers'> returned a result with an exception set")


@pytest.mark.parametrize("headers", [undecodable, broken])
def test_a_header_whose_name_is_not_utf_8_is_told_with_its_record(headers: Any) -> None:
    message = Message()
    message.headers = headers  # type: ignore[method-assign]
    with pytest.raises(RuntimeError) as failed:
        _batch([message])  # type: ignore[list-item]
    said = (
        "orders-3: the name of a header of the record at offset 17 is not UTF-8, which confluent-kafka cannot read: use"
    )
    assert str(failed.value).startswith(said)


@pytest.mark.parametrize(
    ("at_ms", "loaded_ms"),
    [
        (0, 0),
        (-1, -1),
        (LAST_MS, LAST_MS),
        (LAST_MS + 1, LAST_MS),
        ((1 << 63) - 1, LAST_MS),
        (-(1 << 63), -LAST_MS),
        (-62_135_596_800_001, -62_135_596_800_001),
    ],
)
def test_a_timestamp_that_the_column_cannot_have_is_the_last_one_that_it_can(at_ms: int, loaded_ms: int) -> None:
    batch = _batch([Message(at_ms)])  # type: ignore[list-item]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [loaded_ms * 1000]
    assert batch.column("headers").to_pylist() == [[{"key": "a", "value": None}, {"key": "a", "value": b""}]]
