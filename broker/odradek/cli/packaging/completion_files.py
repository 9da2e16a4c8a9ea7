"""Writes the completion scripts where the shells look for them: ``python -m odradek.cli.packaging.completion_files DIR``.

DIR stands for /usr/share: the files are `PLACES` below it. Runs when a package is built.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from odradek.cli.framework.echo import echo
from odradek.cli.machine.completion import script
from odradek.cli.main import main
from odradek.cli.packaging.file_writer import write_below

PLACES = {
    "bash": "bash-completion/completions/odradek",
    "zsh": "zsh/vendor-completions/_odradek",
    "fish": "fish/vendor_completions.d/odradek.fish",
}


def write(directory: Path) -> list[Path]:
    """Write the scripts of all shells below a directory. Returns the files. Raises OSError."""
    paths = []
    for shell, place in PLACES.items():
        path = directory / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script(shell, main), encoding="utf-8")
        paths.append(path)
    return paths


def run(arguments: Sequence[str]) -> None:
    """The program: write the scripts below the directory that the only argument names."""
    for path in write_below("odradek.cli.packaging.completion_files", arguments, write):
        echo(path)


if __name__ == "__main__":
    run(sys.argv[1:])
