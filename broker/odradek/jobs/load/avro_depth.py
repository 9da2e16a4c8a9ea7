"""Walks over a value in Avro's encoding to see how deeply it is nested. Runs in Spark's Python workers.

fastavro's compiled reader calls itself for each level and does not count them: a value of a record that contains itself can
overflow the stack and end the process. Only values of such schemas are walked over, before they are decoded.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: How many records, arrays, maps and unions may be in each other: below Python's limit of nested calls, one for each.
DEEPEST_VALUE = 500
#: How many objects and lists of JSON a schema may have in each other.
DEEPEST_SCHEMA = 200

#: Takes the bytes, the position and the depth of a value; returns the position behind it.
Walk = Callable[[bytes, int, int], int]


class MalformedError(Exception):
    """The bytes are no value of the schema, or one that is nested too deeply."""


def is_too_deep(document: Any) -> bool:
    """Whether a schema, as JSON has it, is nested more deeply than `DEEPEST_SCHEMA`."""
    level = [document]
    for _ in range(DEEPEST_SCHEMA):
        parts: list[Any] = []
        for part in level:
            if isinstance(part, dict):
                parts += part.values()
            elif isinstance(part, list):
                parts += part
        if not parts:
            return False
        level = parts
    return True


def walker(schema: Any, named: Mapping[str, Any]) -> Walk:
    """What walks over values of a schema; it raises MalformedError. :param named: the definitions of names."""
    return _Walkers(named).of(schema)


class _Walkers:
    """Makes a function for each part of a schema, and one for each name."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._records: dict[str, Walk] = {}

    def of(self, schema: Any) -> Walk:
        if isinstance(schema, list):
            return _union([self.of(branch) for branch in schema])
        whole = schema if isinstance(schema, dict) else self._named.get(schema, {"type": schema})
        kind = whole["type"]
        if kind in ("record", "error"):
            return self._record(whole)
        if kind in ("array", "map"):
            return _blocks(self.of(whole["items" if kind == "array" else "values"]), kind == "map")
        if kind == "fixed":
            return _fixed(whole["size"])
        return _PLAIN[kind]

    def _record(self, whole: Mapping[str, Any]) -> Walk:
        name = whole["name"]
        if name in self._records:
            return self._records[name]
        fields: list[Walk] = []

        def walk(data: bytes, at: int, depth: int) -> int:
            if depth > DEEPEST_VALUE:
                raise MalformedError(f"the value is nested more deeply than {DEEPEST_VALUE} levels")
            for field in fields:
                at = field(data, at, depth + 1)
            return at

        self._records[name] = walk  # before its fields, which may be of its own type
        fields += [self.of(part["type"]) for part in whole["fields"]]
        return walk


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and the position behind it."""
    result = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise MalformedError("the value ends too early" if at >= len(data) else "a number has more than ten bytes")
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at
        shift += 7


def _long(data: bytes, at: int, _: int) -> int:
    return _number(data, at)[1]


def _bytes(data: bytes, at: int, _: int) -> int:
    size, at = _number(data, at)
    if size < 0 or at + size > len(data):
        raise MalformedError(f"the value has a length of {size}, and {len(data) - at} bytes are left")
    return at + size


def _fixed(size: int) -> Walk:
    def walk(data: bytes, at: int, _: int) -> int:
        if at + size > len(data):
            raise MalformedError("the value ends too early")
        return at + size

    return walk


def _union(branches: Sequence[Walk]) -> Walk:
    def walk(data: bytes, at: int, depth: int) -> int:
        index, at = _number(data, at)
        if not 0 <= index < len(branches):
            raise MalformedError(f"the value has alternative {index} of a union of {len(branches)}")
        return branches[index](data, at, depth + 1)

    return walk


def _blocks(item: Walk, has_keys: bool) -> Walk:
    """What walks over an array or a map."""

    def walk(data: bytes, at: int, depth: int) -> int:
        while True:
            count, at = _number(data, at)
            if not count:
                return at
            if count < 0:
                _, at = _number(data, at)
            for _ in range(abs(count)):
                if has_keys:
                    at = _bytes(data, at, depth)
                at = item(data, at, depth + 1)

    return walk


_PLAIN: Mapping[str, Walk] = {
    "null": _fixed(0), "boolean": _fixed(1), "float": _fixed(4), "double": _fixed(8), "int": _long, "long": _long,
    "enum": _long, "bytes": _bytes, "string": _bytes,
}  # fmt: skip
