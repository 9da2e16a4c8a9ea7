"""The command line of the programs that write files from the command tree when a package is built: ``python -m MODULE DIR``."""

from collections.abc import Callable, Sequence
from pathlib import Path

from odradek.cli.framework.failure import fail
from odradek.cli.framework.lazy import WRONG_USAGE


def write_below(module: str, arguments: Sequence[str], write: Callable[[Path], list[Path]]) -> list[Path]:
    """Call `write` with the directory that the only argument names, and return its files.

    Ends the process with a message if there is not one argument, or a file cannot be written.
    """
    if len(arguments) != 1 or arguments[0].startswith("-"):
        fail(f"usage: python -m {module} DIR", WRONG_USAGE)
    try:
        return write(Path(arguments[0]))
    except OSError as error:
        fail(f"cannot write {error.filename}: {error.strerror}")
