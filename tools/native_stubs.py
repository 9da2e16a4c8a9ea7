"""Writes the type stubs of the native modules, with which mypy checks their callers: ``python tools/native_stubs.py``.

stubgen-pyx reads the Cython sources. The stubs, ``_ext/*/*.pyi``, are beside the sources and part of the package. With
``--check`` the tool writes nothing, prints each stub that differs from its source and each function without a return type,
and then exits with 1. So a change of a native function's arguments is a change of its stub, which mypy compares with the
callers.

A `def` function has its return type as an annotation in the source: ``def slot(self, int partition) -> int:``. The types of the
arguments are C types, which Cython checks and converts. Cython neither checks, evaluates nor stores annotations, because
`setup.py` sets `annotation_typing` and `binding` to False. With `annotation_typing`, ``-> bytes`` would check the type of each
returned object. With `binding`, each annotated function would have a dict of its annotations. An annotation may use the names
that `ANNOTATION_NAMES` imports, without an import in the source.
"""

import ast
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NATIVE = ROOT / "_ext"
SOURCES = ("*/*.pyx", "*/*.pxd", "*.pxd", "*/__init__.py", "__init__.py")
ANNOTATION_NAMES = """\
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any
"""
"""What precedes each source when stubgen-pyx reads it. It leaves out of a stub what that stub does not use."""


def generate(directory: Path) -> dict[Path, str]:
    """Return the text of each stub by its path below `_ext`. Raises CalledProcessError for a source that cannot be read.

    stubgen-pyx takes the name of a module from its path, and so reads a copy of the sources. Its warnings are about
    declarations that Cython accepts, such as a second declaration of a function in its own module.

    :param directory: an empty directory for the copy.
    """
    package = directory / "odradek"
    for pattern in SOURCES:
        for source in NATIVE.glob(pattern):
            copy = package / "_ext" / source.relative_to(NATIVE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text((ANNOTATION_NAMES if source.suffix == ".pyx" else "") + source.read_text())
    (package / "__init__.py").touch()
    command = ["stubgen_pyx", "odradek", "--include-dir", ".", "--exclude-attribution", "--exclude-docstrings"]
    subprocess.run([sys.executable, "-m", *command], cwd=directory, check=True, stderr=subprocess.DEVNULL)
    stubs = sorted((package / "_ext").glob("*/*.pyi"))
    return {path.relative_to(package / "_ext"): finish(path.read_text()) for path in stubs}


def finish(stub: str) -> str:
    """Return the stub as mypy needs it.

    An attribute of type `object` in Cython can have any type. `__init__` returns None. Python cannot call `__dealloc__`.
    """
    finished = re.sub(r"\bobject\b", "Any", stub)
    finished = re.sub(r"^( +def __init__\(.*\)): \.\.\.$", r"\1 -> None: ...", finished, flags=re.M)
    finished = re.sub(r"^( +)def __dealloc__\(self\): \.\.\.$", r"\1...", finished, flags=re.M)
    if finished != stub and not re.search(r"^from typing import .*\bAny\b", finished, re.M):
        finished = f"from typing import Any\n{finished}"
    return finished


def without_return_type(stub: str) -> list[str]:
    """Return the names of the functions of a stub that have no return type, or one whose name the stub does not know.

    stubgen-pyx replaces such a name by Incomplete.
    """
    functions = [node for node in ast.walk(ast.parse(stub)) if isinstance(node, ast.FunctionDef)]
    return [node.name for node in functions if node.returns is None or "Incomplete" in ast.unparse(node.returns)]


def main(arguments: list[str]) -> int:
    """Return the exit code. :param arguments: ``--check`` or nothing."""
    with tempfile.TemporaryDirectory() as directory:
        stubs = generate(Path(directory))
    present = {path.relative_to(NATIVE): path.read_text() for path in NATIVE.glob("*/*.pyi")}
    if arguments == ["--check"]:
        stale = sorted(str(path) for path in {*stubs, *present} if stubs.get(path) != present.get(path))
        for path in stale:
            print(f"_ext/{path} does not fit its source: run `make tables`")
        untyped = [f"_ext/{path}: {name}" for path, stub in stubs.items() for name in without_return_type(stub)]
        for function in untyped:
            print(f"{function} has no return type: annotate it in the source, see tools/native_stubs.py")
        return 1 if stale or untyped else 0
    for path in present.keys() - stubs.keys():
        (NATIVE / path).unlink()
    for path, text in stubs.items():
        (NATIVE / path).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
