"""Refuses to import modules of another version: a process of the broker imports some modules at their first use, and an
upgrade may have replaced their files by then.

The supervisor installs the finder, and all processes inherit it. Modules of two versions in one process could differ in their
functions and arguments; native packages that are loaded stay those of the old version. The version is that of
`odradek/__init__.py`, so another build of the same version is not noticed. Each import calls `stat` once more.
"""

import logging
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import odradek

log = logging.getLogger("odradek.imports")

PREFIX = "odradek."
_VERSION = re.compile(r'^__version__ = "([^"]*)"$', re.MULTILINE)


class LateImports:
    """A finder that finds nothing, and raises ImportError for a module of this package when another version is installed.

    :param file: the `__init__.py` of the package.
    """

    def __init__(self, file: Path, version: str) -> None:
        self._file = file
        self._version = version
        self._seen = _identity(file)
        self._reported = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name.startswith(PREFIX) and (change := self._change()) is not None:
            text = f"{change} while this broker runs version {self._version}: restart the broker"
            if not self._reported:
                self._reported = True
                log.error("%s; until then, requests that need a module that is not loaded yet fail", text)
            raise ImportError(f"{text}; cannot import {name}", name=name)
        return None

    def _change(self) -> str | None:
        """What happened to the package since the start; None if this version is still installed."""
        try:
            identity = _identity(self._file)
            if identity == self._seen:
                return None
            found = _VERSION.search(self._file.read_text())
        except FileNotFoundError:
            return "odradek was removed"
        if found is None or found[1] != self._version:
            return f"version {found[1] if found is not None else '(unknown)'} of odradek was installed"
        self._seen = identity  # the same version was installed again
        return None


def _identity(file: Path) -> tuple[int, int, int]:
    status = os.stat(file)  # noqa: PTH116 - once for each import
    return status.st_dev, status.st_ino, status.st_mtime_ns


@contextmanager
def refused_after_upgrade() -> Iterator[None]:
    """Until the end of the context, this process and its children import modules only of the version that has started."""
    file = Path(odradek.__file__)
    if not file.is_file():  # imported from an archive, which keeps its content while it is open
        yield
        return
    finder = LateImports(file, odradek.__version__)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
