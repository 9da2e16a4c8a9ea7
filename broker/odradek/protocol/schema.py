"""The schema language: one text describes all versions of a message, and is compiled into a class and a plan per version.

Schemas are parsed once, when the module of an API is imported, and immutable afterwards; all threads can use them.

A schema has one line per field::

    Topics                  []CreatableTopic    0+
      Name                  string              0+
      NumPartitions         int32               0+      default=-1
      Rack                  string              1+      null=2+ default=null ignorable tag=0

* The name is Kafka's (`NumPartitions`); the attribute is its snake_case (`num_partitions`).
* The type is one of Kafka's: bool, int8, int16, uint16, int32, uint32, int64, float64, uuid, string, bytes, records,
  the name of a structure, or one of these after `[]`. The fields of a structure are indented below the field or,
  if several fields share the structure, below a line `struct Name 0+` at the end of the text.
* Versions are `0+`, `0-3`, `2` or `none`.
* `null` allows null in all versions of the field, `null=2+` in some. `default=` is the value of an unset field; without it,
  the value is zero, false, "", empty, a structure of defaults, or null for records and for an ErrorMessage that may be null:
  clients show any other text as an error, also without an error code. `tag=N` makes it a tagged field in all
  flexible versions that have it. `ignorable`: the encoder silently drops the value in versions without the field;
  otherwise a value other than the default is an error there. `flexible=none`: never compact, in any version.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from odradek._ext.protocol.messages import Layout, Message
from odradek.protocol.plans import compiler_of
from odradek.protocol.structure import NEWEST, NO_VERSIONS, Field, Structure, Versions, snake_case

ZERO_UUID = bytes(16)
INTEGERS = frozenset({"int8", "int16", "uint16", "int32", "uint32", "int64"})
SCALARS = INTEGERS | {"bool", "float64", "uuid", "string", "bytes", "records"}
SHARED, NEW_LIST, NEW_STRUCTURE = 0, 1, 2


class SchemaError(ValueError):
    """The text of a schema violates the rules above: an error in this package."""


class ApiSchema(NamedTuple):
    """An API: the versions of its schemas (the broker may serve fewer), and the classes of its messages."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_since: int
    """The first flexible version; above `max_version` if there is none."""
    request: Any
    response: Any


class Ask(NamedTuple):
    """A request that a client sends: in the newest version that both sides know, from `oldest` to `newest` (None: any)."""

    api: ApiSchema
    request: Any
    oldest: int = 0
    newest: int | None = None


def parse(name: str, text: str) -> tuple[Structure, dict[str, Structure]]:
    """Parse a schema: the message `name`, and its structures by name. Raises SchemaError."""
    message = Structure(name, Versions(0, NEWEST))
    structures: dict[str, Structure] = {}
    open_at: list[tuple[int, Structure]] = [(-1, message)]
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        indent = len(line) - len(line.lstrip())
        if words[0] == "struct":
            del open_at[1:]
            structure = structures.setdefault(words[1], Structure(words[1], NO_VERSIONS))
            structure.versions = Versions.parse(words[2])
            open_at.append((indent, structure))
            continue
        while open_at[-1][0] >= indent:
            open_at.pop()
        try:
            parsed = parse_field(words)
        except (ValueError, IndexError) as error:
            raise SchemaError(f"{name}: cannot parse the line {line.strip()!r}: {error}") from error
        open_at[-1][1].fields.append(parsed)
        if parsed.element not in SCALARS:
            parsed.structure = structures.setdefault(parsed.element, Structure(parsed.element, parsed.versions))
            open_at.append((indent, parsed.structure))
    for structure in structures.values():
        if not structure.fields:
            raise SchemaError(f"{name}: structure {structure.name} has no fields")
    return message, structures


def parse_field(words: list[str]) -> Field:
    versions = Versions.parse(words[2])
    parsed = Field(words[0], words[1], versions)
    for word in words[3:]:
        option, _, value = word.partition("=")
        match option:
            case "null":
                parsed.nullable = Versions.parse(value) if value else versions
            case "default":
                parsed.default = value
            case "tag":
                parsed.tag = int(value)
            case "ignorable":
                parsed.ignorable = True
            case "flexible" if value == "none":
                parsed.flexible = False
            case _:
                raise SchemaError(f"unknown option {word!r}")
    return parsed


def default_of(item: Field) -> tuple[Any, int]:
    """The default of a field, and how a new object gets it: SHARED, NEW_LIST or NEW_STRUCTURE."""
    text = item.default
    if text == "null" or (item.type == "records" and text is None) or is_error_text(item):
        return None, SHARED
    if item.is_array:
        return [], NEW_LIST
    if item.structure is not None:
        return item.structure.cls(), NEW_STRUCTURE
    if item.type in INTEGERS:
        return int(text or "0", 0), SHARED
    if item.type == "bool":
        return text == "true", SHARED
    if item.type == "float64":
        return float(text or "0"), SHARED
    if item.type == "uuid":
        return ZERO_UUID, SHARED
    if item.type == "bytes":
        return b"", SHARED
    return text or "", SHARED


def is_error_text(item: Field) -> bool:
    """Whether a field is the text of an error, and may be null wherever it exists. Kafka's definitions leave "" in some."""
    return item.name == "ErrorMessage" and item.nullable == item.versions and item.default is None


def build(structure: Structure, versions: Versions, flexible: Versions, module: str) -> Any:
    """Create the class of a structure and its layout. The classes of its inner structures must exist."""
    attributes = tuple(item.attribute for item in structure.fields)
    structure.cls = type(
        structure.name,
        (Message,),
        {"__slots__": attributes, "__module__": module, "_structure": structure, "__hash__": None},
    )
    defaults = [default_of(item) for item in structure.fields]
    structure.cls._layout = Layout(
        structure.cls,
        structure.name,
        attributes,
        tuple(default for default, _ in defaults),
        tuple(kind for _, kind in defaults),
        versions.first,
        versions.last,
        compiler_of(structure, flexible),
    )
    return structure.cls


def structure_of(message: Any) -> Structure:
    """The structure of a message object, or of an object in a message."""
    structure: Structure = message._structure
    return structure


def message(name: str, text: str, versions: str, flexible: str, module: str) -> Any:
    """Create the class of a message; its structures are attributes with Kafka's names. Raises SchemaError.

    :param versions: the versions of the schema. :param flexible: the versions with compact lengths and tagged fields.
    """
    root, structures = parse(name, text)
    known = Versions.parse(versions)
    flexible_versions = Versions.parse(flexible)
    built: set[str] = set()

    def build_inner(structure: Structure) -> None:
        for item in structure.fields:
            if item.structure is not None and item.structure.name not in built:
                built.add(item.structure.name)
                build_inner(item.structure)
                build(item.structure, known, flexible_versions, module)

    build_inner(root)
    cls = build(root, known, flexible_versions, module)
    for structure in structures.values():
        if structure.cls is None:
            raise SchemaError(f"{name}: no field uses the structure {structure.name}")
        setattr(cls, structure.name, structure.cls)
    return cls


def api(key: int, name: str, versions: str, *, flexible: str, request: str, response: str) -> ApiSchema:
    """Create an API from the schemas of its two messages. Raises SchemaError. :param name: Kafka's, without "Request"."""
    known = Versions.parse(versions)
    since = known.last + 1 if flexible == "none" else Versions.parse(flexible).first
    module = f"odradek.protocol.schemas.{snake_case(name)}"
    return ApiSchema(
        key,
        name,
        known.first,
        known.last,
        since,
        message(f"{name}Request", request, versions, flexible, module),
        message(f"{name}Response", response, versions, flexible, module),
    )
