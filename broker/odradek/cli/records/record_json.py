"""A record as a line of JSON, which `consume --format json` writes and `produce --format json` reads. Pure functions.

`{"topic", "partition", "offset", "timestamp", "key", "value", "headers": [[name, value], ...]}`. Keys and values are text,
null, or `{"base64": "..."}` if the bytes are not UTF-8.
"""

import binascii
import json
from base64 import b64decode
from typing import Any

Headers = list[tuple[str, bytes | None]]


class InvalidRecordError(ValueError):
    """A line is not a record; the message is the reason."""


def value_bytes(value: Any) -> bytes | None:
    """The bytes of a JSON value. Numbers, lists and objects other than `{"base64"}` become their JSON text."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise InvalidRecordError(f"{value['base64']!r} is not base64") from None
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def parse(line: str | bytes) -> dict[str, Any]:
    """The record of a line: key and value as bytes, headers as a list, partition and timestamp, or None where missing.

    Raises InvalidRecordError.
    """
    try:
        document = json.loads(line)
    except ValueError as error:
        raise InvalidRecordError(f"the line is not JSON: {error}") from None
    if not isinstance(document, dict) or "value" not in document:
        raise InvalidRecordError(
            'the line is not a JSON object with "value", as `odradek consume --format json` writes'
        )
    headers = document.get("headers") or []
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        raise InvalidRecordError('"headers" is neither an object nor a list of [name, value]')
    return {
        "key": value_bytes(document.get("key")),
        "value": value_bytes(document["value"]),
        "headers": [(name, value_bytes(value)) for name, value in pairs],
        "partition": document.get("partition"),
        "timestamp": document.get("timestamp"),
    }
