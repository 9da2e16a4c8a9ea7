"""Writes the types of all messages (``schemas/*.pyi``) and the table of their modules: ``python -m
odradek.protocol.reference``, or ``make tables``.

The classes of messages are made from the text of their schemas when the program runs; type checkers read the stubs.
"""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from odradek.protocol import schemas
from odradek.protocol.schema import INTEGERS, NEW_LIST, ApiSchema, default_of, structure_of
from odradek.protocol.structure import Field, Structure

HEAD = "# Made by `make tables` from the schema; do not edit.\n"
TYPES = dict.fromkeys(INTEGERS, "int") | {
    "bool": "bool",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "bytes",
    "records": "Any",
}
KEYS_HEAD = '''"""Made by `make tables` from the schemas; do not edit: the modules of this package by API key.

A schema is imported at its first use (`odradek.protocol.registry`).
"""

'''


def modules() -> Iterator[ModuleType]:
    """The modules with the schema of an API, in the order of the keys."""
    names = [entry.name for entry in iter_modules(schemas.__path__)]
    found = [import_module(f"{schemas.__name__}.{name}") for name in names]
    yield from sorted(
        (one for one in found if isinstance(getattr(one, "SCHEMA", None), ApiSchema)), key=lambda one: one.API_KEY
    )


def stub(module: ModuleType) -> str:
    """The types of the messages of a schema."""
    classes = [
        line for name in ("Request", "Response") for line in _message(name, structure_of(getattr(module, name)()))
    ]
    body = "\n".join(classes)
    imports = "from typing import Any, Final\n\n" if ": Any" in body else "from typing import Final\n\n"
    return (
        f"{HEAD}{imports}from odradek._ext.protocol.messages import Message\n"
        "from odradek.protocol.schema import ApiSchema\n\n"
        f"API_KEY: Final = {module.API_KEY}\nSCHEMA: Final[ApiSchema]\n\n{body}\n"
    )


def _message(name: str, structure: Structure) -> Iterator[str]:
    """The class of a message, with those of its structures inside, as they are at run time."""
    yield f"class {name}(Message):"
    inner: dict[str, Structure] = {}
    _collect(structure, inner)
    for one in inner.values():
        yield f"    class {one.name}(Message):"
        yield from (f"        {line}" for line in _members(one, name))
    yield from (f"    {line}" for line in _members(structure, name))


def _collect(structure: Structure, found: dict[str, Structure]) -> None:
    for item in structure.fields:
        if item.structure is not None and item.structure.name not in found:
            _collect(item.structure, found)
            found[item.structure.name] = item.structure


def _members(structure: Structure, outer: str) -> Iterator[str]:
    if not structure.fields:
        yield "def __init__(self) -> None: ..."
        return
    typed = [(item.attribute, _type(item, outer)) for item in structure.fields]
    yield from (f"{name}: {kind}" for name, kind in typed)
    parameters = ", ".join(f"{name}: {kind} = ..." for name, kind in typed)
    yield f"def __init__(self, *, {parameters}) -> None: ..."


def _type(item: Field, outer: str) -> str:
    element = TYPES.get(item.element) or f"{outer}.{item.element}"
    kind = f"list[{element}]" if item.is_array else element
    none = item.nullable != (0, -1) or (default_of(item)[0] is None and default_of(item)[1] != NEW_LIST)
    return f"{kind} | None" if none and kind != "Any" else kind


def keys() -> str:
    """The table of the modules by key."""
    rows = "".join(f'    {module.API_KEY}: "{module.__name__.rpartition(".")[2]}",\n' for module in modules())
    return f"{KEYS_HEAD}MODULES: dict[int, str] = {{\n{rows}}}\n"


def files() -> dict[Path, str]:
    """The text of each file."""
    folder = Path(schemas.__path__[0])
    made: dict[Path, str] = {folder / f"{module.__name__.rpartition('.')[2]}.pyi": stub(module) for module in modules()}
    return made | {folder / "keys.py": keys()}


def main(_: list[str]) -> int:
    """Write the files."""
    for path, text in files().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
