"""Writes the table of what each API needs into ``docs/reference/acls.md``: ``python -m odradek.api.access_reference FILE``, or
``make tables``."""

import sys
from pathlib import Path

from odradek.api.table import BY_KEY
from odradek.security.required import REQUIRED

BEGIN = "<!-- The table is made by `make tables` from odradek/security/required.py. -->\n"
END = "<!-- end of the table -->\n"


def table() -> str:
    """The table in Markdown."""
    lines = ["| API | needs | a client without the right receives | remarks |", "| --- | --- | --- | --- |"]
    for key, required in REQUIRED.items():
        if key not in BY_KEY:
            continue
        lines.append(f"| {BY_KEY[key].name} ({key}) | {required} | {required.refused} | {required.note} |")
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """The document with the table in place of its present one. Raises ValueError without the marks."""
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:begin]}\n{table()}\n{text[end:]}"


def main(arguments: list[str]) -> int:
    """Update the document."""
    (path,) = map(Path, arguments)
    path.write_text(with_table(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
