"""A record as a line of JSON: what `consume --format json` writes and `produce --format json` reads. Pure functions.

`{"topic", "partition", "offset", "timestamp", "key", "value", "headers": [[name, value], ...]}`; keys and values are text, null
for none, and `{"base64": "..."}` where the bytes are no UTF-8.
"""

import binascii
import json
from base64 import b64decode, b64encode
from typing import Any

Headers = list[tuple[str, bytes | None]]


class NotARecord(ValueError):
    """A line that is none; says why."""


def told(data: bytes | None) -> Any:
    """Bytes as JSON has them."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def meant(value: Any) -> bytes | None:
    """The bytes of a JSON value; objects and numbers other than `{"base64"}` are taken as their JSON text."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return b64decode(value["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise NotARecord(f"{value['base64']!r} is not base64") from None
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def parse(line: str | bytes) -> dict[str, Any]:
    """The record of a line: key and value as bytes, headers as a list; partition and timestamp where they are there.

    Raises NotARecord.
    """
    try:
        found = json.loads(line)
    except ValueError as error:
        raise NotARecord(f"it is not JSON: {error}") from None
    if not isinstance(found, dict) or "value" not in found:
        raise NotARecord('it is not an object with "value", as `odradek consume --format json` writes it')
    headers = found.get("headers") or []
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs):
        raise NotARecord("its headers are neither an object nor a list of [name, value]")
    return {
        "key": meant(found.get("key")),
        "value": meant(found["value"]),
        "headers": [(name, meant(value)) for name, value in pairs],
        "partition": found.get("partition"),
        "timestamp": found.get("timestamp"),
    }
