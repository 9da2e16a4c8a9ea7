"""Writes the type stubs of the native modules, with which mypy checks their callers: ``python tools/native_stubs.py``.

stubgen-pyx reads the Cython sources. The stubs, ``_ext/*/*.pyi``, are beside the sources and part of the package. With
``--check`` the tool writes nothing, prints each stub that differs from its source, and then exits with 1. So a change of a
native function's arguments is a change of its stub, which mypy compares with the callers.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NATIVE = ROOT / "_ext"
SOURCES = ("*/*.pyx", "*/*.pxd", "*.pxd", "*/__init__.py", "__init__.py")


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
            copy.write_bytes(source.read_bytes())
    (package / "__init__.py").touch()
    command = ["stubgen_pyx", "odradek", "--include-dir", ".", "--exclude-attribution", "--exclude-docstrings"]
    subprocess.run([sys.executable, "-m", *command], cwd=directory, check=True, stderr=subprocess.DEVNULL)
    stubs = sorted((package / "_ext").glob("*/*.pyi"))
    return {path.relative_to(package / "_ext"): finish(path.read_text()) for path in stubs}


def finish(stub: str) -> str:
    """Return the stub as mypy needs it: an attribute of type `object` in Cython can have any type."""
    finished = re.sub(r"\bobject\b", "Any", stub)
    if finished != stub and not re.search(r"^from typing import .*\bAny\b", finished, re.M):
        finished = f"from typing import Any\n{finished}"
    return finished


def main(arguments: list[str]) -> int:
    """Return the exit code. :param arguments: ``--check`` or nothing."""
    with tempfile.TemporaryDirectory() as directory:
        stubs = generate(Path(directory))
    present = {path.relative_to(NATIVE): path.read_text() for path in NATIVE.glob("*/*.pyi")}
    if arguments == ["--check"]:
        stale = sorted(str(path) for path in {*stubs, *present} if stubs.get(path) != present.get(path))
        for path in stale:
            print(f"_ext/{path} does not fit its source: run `make tables`")
        return 1 if stale else 0
    for path in present.keys() - stubs.keys():
        (NATIVE / path).unlink()
    for path, text in stubs.items():
        (NATIVE / path).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
