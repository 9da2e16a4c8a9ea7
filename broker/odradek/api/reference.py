"""Writes what derives from the declarations of the APIs: ``python -m odradek.api.reference FILE...``, or ``make tables``.

A file is `served.py` (the rows), or a document with the table of what each API needs.
"""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from odradek.api.api import FORWARDED, LONG_PATIENCE_S, Api, Guarded, Place
from odradek.api.row import ApiRow
from odradek.protocol.schema import structure_of
from odradek.protocol.schemas.header import response_header_version
from odradek.security.needs import text_of

FAMILIES = ("records", "topics", "groups", "transactions", "cluster", "settings", "security")
API_VERSIONS = 18
CORRELATION_BYTES, THROTTLE_BYTES, TAGS_BYTES = 4, 4, 1
DEFAULTS = ApiRow._field_defaults
THROTTLE, ERROR, TIMEOUT = "throttle_time_ms", "error_code", "timeout_ms"
FIXED_BYTES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
BEGIN = "<!-- The table is made by `make tables` from the declarations in odradek/api/. -->\n"
END = "<!-- end of the table -->\n"
ROWS_HEAD = '''"""Made by `make tables` from the declarations of the APIs (`reference.py`); do not edit. See `ApiRow` for the
columns."""

from odradek.api.api import Guarded, Place
from odradek.api.row import ApiRow
from odradek.security.needs import ways_of

# fmt: off
ROWS = (
'''


def modules() -> Iterator[ModuleType]:
    """The files of all APIs, in the order of the keys."""
    found = []
    for family in FAMILIES:
        package = import_module(f"odradek.api.{family}")
        names = [entry.name for entry in iter_modules(package.__path__)]
        found += [import_module(f"{package.__name__}.{name}") for name in names]
    yield from sorted((one for one in found if isinstance(getattr(one, "API", None), Api)), key=lambda one: one.API.key)


def throttle_position(api: Api, version: int) -> int:
    """See `ApiRow.throttle`."""
    fields = _fields(api, version)
    names = [field.attribute for field in fields]
    if api.place is Place.NATIVE or api.key == API_VERSIONS or THROTTLE not in names:  # native code finds it
        return 0
    before = _bytes_before(fields, names.index(THROTTLE))
    if before is not None:
        return _head_bytes(api, version) + before
    if names[-1] == THROTTLE:
        return -THROTTLE_BYTES - (TAGS_BYTES if version >= api.schema.flexible_since else 0)
    return 0


def error_position(api: Api, version: int) -> int:
    """See `ApiRow.error`."""
    fields = _fields(api, version)
    names = [field.attribute for field in fields]
    before = _bytes_before(fields, names.index(ERROR)) if ERROR in names else None
    return -1 if before is None else _head_bytes(api, version) + before


def _fields(api: Api, version: int) -> list[Any]:
    """The fields of a response that are not tagged, in their order."""
    fields = structure_of(api.schema.response()).fields
    return [field for field in fields if version in field.versions and field.tag < 0]


def _bytes_before(fields: list[Any], number: int) -> int | None:
    """The size of the fields before one; None if it varies."""
    sizes = [FIXED_BYTES.get(field.type) for field in fields[:number]]
    return None if None in sizes else sum(size for size in sizes if size)


def _head_bytes(api: Api, version: int) -> int:
    return CORRELATION_BYTES + (TAGS_BYTES if response_header_version(api.key, version) else 0)


def patience_s(api: Api) -> float:
    """See `Api.patience_s`: a request that says how long its client waits is not given up earlier."""
    timed = TIMEOUT in (field.attribute for field in structure_of(api.schema.request).fields)
    return LONG_PATIENCE_S if timed and api.place in FORWARDED else api.patience_s


def row(module: ModuleType) -> str:
    """The row of an API, as Python text."""
    api: Api = module.API
    if api.guarded is Guarded.BY_GUARD and not hasattr(module, "guard"):
        raise ValueError(f"{module.__name__} has no function `guard`, and does not declare who decides instead")
    first, last = api.versions
    versions = range(first, last + 1)
    ways = " | ".join(
        " & ".join(f"{need.operation.name} {need.resource_type.name}" for need in way) for way in api.rights.ways
    )

    errors = tuple(error_position(api, version) for version in versions)
    facts = api._asdict() | {
        "of_brokers": api.rights.of_brokers,
        "patience_s": patience_s(api),
        **{f"has_{name}": hasattr(module, name) for name in ("at_once", "refuse", "awaited")},
    }

    other = {name: value for name, value in facts.items() if name in DEFAULTS and value != DEFAULTS[name]}
    return (
        f"    ApiRow({api.key}, {api.schema.name!r}, {first}, {last}, {api.place},\n"
        f"        {module.__name__!r},\n"
        f"        ways_of({ways!r}),\n"
        f"        {tuple(throttle_position(api, version) for version in versions)},\n"
        f"        {errors if min(errors) >= 0 else (-1,) * len(errors)}"
        + "".join(f",\n        {name}={value}" for name, value in other.items())
        + "),\n"
    )


def served() -> str:
    """The text of `served.py`."""
    return ROWS_HEAD + "".join(map(row, modules())).replace("'", '"') + ")\n# fmt: on\n"


def table() -> str:
    """The table of what each API needs, in Markdown."""
    lines = ["| API | needs | a client without the right receives | remarks |", "| --- | --- | --- | --- |"]
    for module in modules():
        api, rights = module.API, module.API.rights
        lines.append(f"| {api.schema.name} ({api.key}) | {text_of(rights.ways)} | {rights.refused} | {rights.note} |")
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """The document with the table in place of its present one. Raises ValueError without the marks."""
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:begin]}\n{table()}\n{text[end:]}"


def main(arguments: list[str]) -> int:
    """Write the files."""
    for path in map(Path, arguments):
        path.write_text(served() if path.suffix == ".py" else with_table(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
