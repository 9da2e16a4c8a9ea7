"""SHA256SUMS: the file that `sha256sum --check` reads."""

from __future__ import annotations

import hashlib
from pathlib import Path

NAME = "SHA256SUMS"


def write_checksums(directory: Path) -> Path:
    """Write the checksums of all files in `directory`, and return the path of the list."""
    lines = []
    for path in sorted(directory.iterdir()):
        if path.name != NAME and path.is_file():
            with path.open("rb") as file:
                lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    (directory / NAME).write_text("".join(lines))
    return directory / NAME
