"""Decodes values in Avro with a schema registry: a magic byte, the id of the writer's schema, and the value in Avro's encoding.

`reader_schema` and `column_type` run in the driver, `AvroDecoder` in Spark's Python workers. Values are resolved to one reader
schema, so that the column has one type. Registry's failures end the task; everything that is wrong with a value or with the
schema that it names is the value's error.
"""

import io
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import fastavro
import pyarrow as pa

from odradek.jobs.load.avro_depth import DEEPEST_SCHEMA, Walk, is_too_deep, walker
from odradek.jobs.load.errors import LoadError
from odradek.jobs.load.registry import NotInRegistryError, RegisteredSchema, Registry, UnusableSchemaError

Schema = Any
"""A schema as JSON has it: a name, a list of alternatives, or an object."""

_PRIMITIVE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(), "enum": pa.string(), "fixed": pa.binary(),
}  # fmt: skip
#: The logical types that have an Arrow type; other logical types become columns of their underlying type.
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_PREFIX_BYTES = 5
_MOST_DIGITS = 38
_MOST_TYPES = 10_000
_LONGEST_REASON = 300


class UndecodableError(Exception):
    """A value cannot be decoded; the message says why."""


def standalone(found: RegisteredSchema) -> Schema:
    """The schema without references to others: full names, definitions where a name is first used, no documentation.

    :raises LoadError: it is not a schema in Avro
    """
    if found.kind != "AVRO":
        raise LoadError(f"the schema is of type {found.kind}; expected AVRO")
    named: dict[str, Any] = {}
    try:
        documents = [json.loads(text) for text in (*found.references, found.text)]
        parsed = [fastavro.parse_schema(document, named) for document in documents if not is_too_deep(document)]
        whole = _inlined(parsed[-1], named, set()) if len(parsed) == len(documents) else None
    except Exception as error:  # the library raises what it comes upon, and the message tells it
        raise LoadError(f"the schema is not a valid Avro schema: {_reason(error)}") from None
    if whole is None or is_too_deep(whole):
        raise LoadError(f"the schema is nested more deeply than {DEEPEST_SCHEMA} levels")
    return whole


def _inlined(schema: Schema, named: Mapping[str, Any], defined: set[str]) -> Schema:
    if isinstance(schema, list):
        return [_inlined(branch, named, defined) for branch in schema]
    if isinstance(schema, str):
        if schema in defined or schema not in named:
            return schema
        return _inlined(named[schema], named, defined)
    result = {key: value for key, value in schema.items() if not key.startswith("__") and key != "doc"}
    kind = result["type"]
    if kind in ("record", "error", "enum", "fixed"):
        defined.add(result["name"])
    if kind in ("record", "error"):
        result["fields"] = [
            {
                **{key: value for key, value in part.items() if key != "doc"},
                "type": _inlined(part["type"], named, defined),
            }
            for part in result["fields"]
        ]
    elif kind in ("array", "map"):
        name = "items" if kind == "array" else "values"
        result[name] = _inlined(result[name], named, defined)
    elif isinstance(kind, (dict, list)):
        return _inlined(kind, named, defined)
    return result


def reader_schema(text: str) -> Schema:
    """Parse the text of a reader schema without references. Raises LoadError, also if it is no type of a column."""
    schema = standalone(RegisteredSchema("AVRO", text))
    column_type(schema)
    return schema


def _definitions(schema: Schema) -> dict[str, Any]:
    return {part["name"]: part for part in _parts(schema) if isinstance(part, dict) and "name" in part}


def _parts(schema: Schema) -> Iterator[Schema]:
    """The schema and all schemas in it."""
    yield schema
    if isinstance(schema, list):
        inner = schema
    elif isinstance(schema, dict):
        inner = [part["type"] for part in schema.get("fields", ())] + [
            schema[key] for key in ("items", "values") if key in schema
        ]
    else:
        inner = []
    for part in inner:
        yield from _parts(part)


def _whole(schema: Schema, named: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that is no union as an object."""
    if isinstance(schema, str):
        return named.get(schema) or {"type": schema}
    return dict(schema)


def _alternatives(schema: Schema) -> list[Schema]:
    """What a value can be that is not null."""
    branches = schema if isinstance(schema, list) else [schema]
    return [branch for branch in branches if branch not in ("null", {"type": "null"})]


def column_type(schema: Schema) -> pa.DataType:
    """The type of the column for a reader schema. Raises LoadError for one that has none."""
    return _type(schema, _definitions(schema), "", (), iter(range(_MOST_TYPES)))


def _type(
    schema: Schema, named: Mapping[str, Any], path: str, within: tuple[str, ...], left: Iterator[int]
) -> pa.DataType:
    """:param left: gives a number for each type that the column may still have; records that are used twice count twice"""
    if next(left, None) is None:
        raise LoadError(f"the column would have more than {_MOST_TYPES} fields")
    alternatives = _alternatives(schema)
    where = f"'{path}'" if path else "the value"
    if len(alternatives) != 1:
        raise LoadError(
            f"{where} is {'null' if not alternatives else 'a union of several types'}, which cannot be a column"
        )
    whole = _whole(alternatives[0], named)
    kind = whole["type"]
    if kind in ("record", "error"):
        if whole["name"] in within or not whole["fields"]:
            problem = "has no fields" if not whole["fields"] else "contains itself"
            raise LoadError(f"{where} is a record that {problem} ({whole['name']}), which cannot be a column")
        inner = (*within, whole["name"])
        prefix = f"{path}." if path else ""
        return pa.struct([
            (part["name"], _type(part["type"], named, prefix + part["name"], inner, left)) for part in whole["fields"]
        ])  # fmt: skip
    if kind == "array":
        return pa.list_(_type(whole["items"], named, f"{path}[]", within, left))
    if kind == "map":
        return pa.map_(pa.string(), _type(whole["values"], named, f"{path}{{}}", within, left))
    if _is_decimal(whole):
        return pa.decimal128(whole["precision"], whole.get("scale", 0))
    return _LOGICAL.get((kind, str(whole.get("logicalType"))), _PRIMITIVE[kind])


def _is_decimal(whole: Mapping[str, Any]) -> bool:
    return (
        whole.get("logicalType") == "decimal"
        and whole["type"] in ("bytes", "fixed")
        and isinstance(whole.get("precision"), int)
        and 0 < whole["precision"] <= _MOST_DIGITS
        and 0 <= whole.get("scale", 0) <= whole["precision"]
    )


Convert = Callable[[Any], Any]


def _converter(schema: Schema, named: Mapping[str, Any]) -> Convert | None:
    """What makes of a value that fastavro returns one that Arrow takes; None: nothing is to be done."""
    whole = _whole(_alternatives(schema)[0], named)
    kind = whole["type"]
    if kind in ("record", "error"):
        found = {part["name"]: _converter(part["type"], named) for part in whole["fields"]}
        converters = {name: convert for name, convert in found.items() if convert is not None}
        return _record_converter(converters) if converters else None
    if kind in ("array", "map"):
        convert = _converter(whole["items" if kind == "array" else "values"], named) or _unchanged
        if kind == "map":
            return lambda value: [(key, None if item is None else convert(item)) for key, item in value.items()]
        return (
            None if convert is _unchanged else lambda value: [None if item is None else convert(item) for item in value]
        )
    if _is_decimal(whole):
        scale = whole.get("scale", 0)
        return lambda value: _decimal(_bytes(value), scale)
    return _bytes if kind in ("bytes", "fixed") else None


def _unchanged(value: Any) -> Any:
    return value


def _record_converter(converters: Mapping[str, Convert]) -> Convert:
    """What converts some fields of a record."""

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        changed = {name: None if value[name] is None else make(value[name]) for name, make in converters.items()}
        return {**value, **changed}

    return convert


def _bytes(value: bytes | str) -> bytes:
    return value.encode("latin-1") if isinstance(value, str) else value  # a default is a string in JSON


def _decimal(value: bytes, scale: int) -> Decimal:
    number = int.from_bytes(value, "big", signed=True)
    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))


def _conflict(
    writer: Schema, reader: Schema, names: tuple[Mapping[str, Any], Mapping[str, Any]], path: str = ""
) -> str:
    """Where a number would get another meaning, because the writer had another unit or scale; empty: nowhere.

    :param names: the definitions of the writer's schema, and of the reader's, which does not contain itself
    """
    right = _whole(_alternatives(reader)[0], names[1])
    branches = _alternatives(writer)
    for branch in branches:
        left = _whole(branch, names[0])
        if left["type"] != right["type"]:
            continue
        if right["type"] in ("record", "error"):
            by_name = {part["name"]: part["type"] for part in left["fields"]}
            for part in right["fields"]:
                name = next((name for name in (part["name"], *part.get("aliases", ())) if name in by_name), None)
                inner = f"{path}.{part['name']}" if path else part["name"]
                found = "" if name is None else _conflict(by_name[name], part["type"], names, inner)
                if found:
                    return found
        elif right["type"] in ("array", "map"):
            key, mark = ("items", "[]") if right["type"] == "array" else ("values", "{}")
            found = _conflict(left[key], right[key], names, path + mark)
            if found:
                return found
        elif all("logicalType" in part for part in (left, right)) and _unit(left) != _unit(right):
            where = f"'{path}'" if path else "the value"
            return f"{where} was written as {_unit(left)}, and --schema has {_unit(right)}"
    return ""


def _unit(whole: Mapping[str, Any]) -> str:
    logical = str(whole["logicalType"])
    return f"{logical} with scale {whole.get('scale', 0)}" if logical == "decimal" else logical.removeprefix("local-")


def _without_logical(schema: Schema) -> Schema:
    """The schema for reading numbers and bytes as they are."""
    if isinstance(schema, list):
        return [_without_logical(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: value for key, value in schema.items() if key != "logicalType"}
    if "fields" in result:
        result["fields"] = [{**part, "type": _without_logical(part["type"])} for part in result["fields"]]
    for key in ("items", "values"):
        if key in result:
            result[key] = _without_logical(result[key])
    return result


def _contains_itself(schema: Schema, named: Mapping[str, Any], open_names: dict[str, bool] | None = None) -> bool:
    """Whether a record has fields of its own type at any depth. :param open_names: whether a record is being looked at."""
    open_names = {} if open_names is None else open_names
    if isinstance(schema, list):
        return any(_contains_itself(branch, named, open_names) for branch in schema)
    whole = _whole(schema, named)
    if whole["type"] not in ("record", "error"):
        return any(_contains_itself(whole[key], named, open_names) for key in ("items", "values") if key in whole)
    if whole["name"] in open_names:
        return open_names[whole["name"]]
    open_names[whole["name"]] = True
    found = any(_contains_itself(part["type"], named, open_names) for part in whole["fields"])
    open_names[whole["name"]] = False
    return found


def _is_empty(schema: Schema, named: Mapping[str, Any], known: dict[str, bool] | None = None) -> bool:
    """Whether values have no bytes, so that a few bytes can say that there are any number of them."""
    known = {} if known is None else known
    if isinstance(schema, list):
        return False  # the number of the alternative is a byte
    whole = _whole(schema, named)
    if whole["type"] not in ("record", "error"):
        return whole["type"] == "null" or (whole["type"] == "fixed" and not whole["size"])
    if whole["name"] not in known:
        known[whole["name"]] = False
        known[whole["name"]] = all(_is_empty(part["type"], named, known) for part in whole["fields"])
    return known[whole["name"]]


@dataclass(frozen=True)
class _Writer:
    """The schema that a value was written with. :param walk: sees how deeply a value is nested; None: no deeper than it."""

    schema: Schema
    parsed: Schema
    walk: Walk | None


@lru_cache(maxsize=1000)
def _writer(registry: Registry, number: int) -> _Writer:
    """Ask the registry for a schema, once in each process. Raises UndecodableError, LoadError."""
    try:
        found = registry.schema(number)
    except NotInRegistryError:
        raise UndecodableError(f"the schema registry has no schema {number}") from None
    except UnusableSchemaError as error:
        raise UndecodableError(f"schema {number}: {error}") from None
    try:
        schema = standalone(found)
    except LoadError as error:
        raise UndecodableError(f"schema {number}: {error}") from None
    named = _definitions(schema)
    for part in _parts(schema):
        if isinstance(part, dict) and part["type"] == "array" and _is_empty(part["items"], named):
            raise UndecodableError(f"schema {number} has an array of values without bytes, which is not decoded")
    walk = walker(schema, named) if _contains_itself(schema, named) else None
    return _Writer(schema, fastavro.parse_schema(_without_logical(schema)), walk)


@dataclass(frozen=True)
class AvroDecoder:
    """How values are decoded. :param schema: the reader schema, as `reader_schema` takes it."""

    registry: Registry
    schema: str

    def opened(self) -> "Columns":
        """What decodes in one task."""
        return Columns(self)


class Columns:
    """Decodes the values of a task; owned by its thread."""

    def __init__(self, decoder: AvroDecoder) -> None:
        schema = reader_schema(decoder.schema)
        self.type = column_type(schema)
        self._registry = decoder.registry
        self._schema = schema
        self._named = _definitions(schema)
        self._parsed = fastavro.parse_schema(_without_logical(schema))
        self._convert = _converter(schema, self._named) or _unchanged
        self._refused: dict[int, str] = {}
        self._accepted: dict[int, _Writer] = {}

    def decode(self, values: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Decode values.

        :param values: binary, or null
        :returns: as many of the type of the column, null where there is no value or an error; and the errors, or null
        :raises LoadError: the registry does not answer
        """
        decoded: list[Any] = []
        errors: list[str | None] = []
        for value in values.to_pylist():
            try:
                decoded.append(None if value is None else self._decoded(value))
                errors.append(None)
            except UndecodableError as error:
                decoded.append(None)
                errors.append(str(error)[:_LONGEST_REASON])
        try:
            column = pa.array(decoded, self.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            column = self._one_by_one(decoded, errors)
        return column, pa.array(errors, pa.string())

    def _one_by_one(self, decoded: list[Any], errors: list[str | None]) -> pa.Array:
        """The column without those values that do not fit into it; their errors are added to `errors`."""
        for index, value in enumerate(decoded):
            try:
                pa.array([value], self.type)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                decoded[index] = None
                errors[index] = f"the value does not fit into the column: {_reason(error)}"[:_LONGEST_REASON]
        return pa.array(decoded, self.type)

    def _decoded(self, value: bytes) -> Any:
        if len(value) < _PREFIX_BYTES or value[0] != 0:
            raise UndecodableError("the value does not begin with a zero byte and the id of a schema")
        (number,) = struct.unpack_from(">I", value, 1)
        writer = self._accepted.get(number) or self._accept(number)
        stream = io.BytesIO(value)
        stream.seek(_PREFIX_BYTES)
        try:
            if writer.walk is not None:
                writer.walk(value, _PREFIX_BYTES, 0)
            found = fastavro.schemaless_reader(stream, writer.parsed, self._parsed)
            converted = None if found is None else self._convert(found)
        except Exception as error:  # the library raises what it comes upon, and the record keeps it
            raise UndecodableError(f"schema {number}: {_reason(error)}") from None
        if stream.tell() != len(value):
            raise UndecodableError(f"schema {number}: {len(value) - stream.tell()} bytes follow the value")
        return converted

    def _accept(self, number: int) -> _Writer:
        if number not in self._refused:
            try:
                writer = _writer(self._registry, number)
                conflict = _conflict(writer.schema, self._schema, (_definitions(writer.schema), self._named))
                if not conflict:
                    self._accepted[number] = writer
                    return writer
                self._refused[number] = f"schema {number}: {conflict}"
            except UndecodableError as error:
                self._refused[number] = str(error)
        raise UndecodableError(self._refused[number])


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
