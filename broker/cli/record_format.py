"""How `odradek consume` writes a record. Pure functions of a message of confluent-kafka."""

import json
import string
from collections.abc import Callable
from typing import Any

import click

from broker.cli.output import when
from broker.cli.record_json import told

Writer = Callable[[Any], bytes]
FIELDS = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers")


def formatter(form: str) -> Writer:
    """The function for `--format`. Raises UsageError for a template with a field that there is not."""
    if form in _BY_NAME:
        return _BY_NAME[form]
    template = form.encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "replace")
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise click.UsageError(f"--format '{form}' cannot be read: {error}") from None
    strange = [name for name in names if name not in FIELDS]
    if strange or not names:
        wrong = f"has no field {{{strange[0]}}}" if strange else "is none and names no field"
        raise click.UsageError(
            f"--format '{form}' {wrong}: write {', '.join(_BY_NAME)}, or fields {', '.join(f'{{{one}}}' for one in FIELDS)}"
        )
    parts = [(text.encode(), name) for text, name, _, _ in string.Formatter().parse(template)]

    def write(message: Any) -> bytes:
        return b"".join(text + (_FIELD[name](message) if name is not None else b"") for text, name in parts)

    return write


def _json(message: Any) -> bytes:
    record = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": told(message.key()),
        "value": told(message.value()),
        "headers": [[name, told(value)] for name, value in message.headers() or ()],
    }
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _headers(message: Any) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in message.headers() or ())


_BY_NAME: dict[str, Writer] = {
    "value": lambda message: (message.value() or b"") + b"\n",
    "key-value": lambda message: (message.key() or b"") + b"\t" + (message.value() or b"") + b"\n",
    "json": _json,
    "raw": lambda message: message.value() or b"",
}
_FIELD: dict[str, Writer] = {
    "topic": lambda message: message.topic().encode(),
    "partition": lambda message: str(message.partition()).encode(),
    "offset": lambda message: str(message.offset()).encode(),
    "timestamp": lambda message: str(message.timestamp()[1]).encode(),
    "time": lambda message: when(message.timestamp()[1]).encode(),
    "key": lambda message: message.key() or b"",
    "value": lambda message: message.value() or b"",
    "headers": _headers,
}
