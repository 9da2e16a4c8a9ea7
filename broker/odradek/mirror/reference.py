"""Makes the table of keys in docs/operate/mirror.md: ``python -m odradek.mirror.reference FILE``, or ``make tables``.

Run by developers and by the test that checks the committed page. Only the table, which ends the
page, is replaced.
"""

import sys
from pathlib import Path

from odradek.mirror.keys import BOOL, INT, KEYS, PATTERNS, MirrorKey

_HEAD = "| key | default | meaning |\n| --- | --- | --- |\n"


def table() -> str:
    """The table, as Markdown."""
    return _HEAD + "".join(f"| `{row.name}` | {_default(row)} | {_meaning(row)} |\n" for row in KEYS.values())


def _default(row: MirrorKey) -> str:
    if row.kind == BOOL:
        return str(row.default).lower()
    if row.kind == PATTERNS:
        assert isinstance(row.default, tuple)
        return f"`{', '.join(row.default)}`"
    return f"`{row.default}`" if row.default != "" else "empty"


def _meaning(row: MirrorKey) -> str:
    limits = f" From {row.low} to {row.high}." if row.kind == INT else ""
    return row.text + limits + ("" if row.per_flow else " Not for a single flow.")


def rewritten(page: str) -> str:
    """The page with the current table. Raises ValueError if it has no table."""
    before, found, _ = page.partition(_HEAD)
    if not found:
        raise ValueError("the page has no table of keys")
    return before + table()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(rewritten(path.read_text()))
