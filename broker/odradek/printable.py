"""Texts of clients for people: on one line, without characters that control a terminal, and not too long. Stateless.

The one home of this rule: log lines, tables and messages of commands, and the audit log use it. Every package may import it.
"""

import json
import re
from functools import cache

LONGEST = 300
"""Characters of a client's text in a message: names of topics have 249, other ids up to 32,767."""

_UNSAFE = (
    r"\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f"
)  # controls, what changes the direction of a text, what cannot be seen, and surrogates, which cannot be written
_CONTROL = rf"\x00-\x08\x0b-\x1f{_UNSAFE}"


@cache
def _any_of(characters: str) -> re.Pattern[str]:
    """Compiled when a text first needs it: each takes a millisecond, and most texts are printable (`str.isprintable`)."""
    return re.compile(f"[{characters}]")


def _escaped(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode()


def one_line(text: str) -> str:
    """The text on one line: control characters, also those that change the direction of the text, are escaped. Tabs stay."""
    return text if text.isprintable() else _any_of(f"\n{_CONTROL}").sub(_escaped, text)


def several_lines(text: str) -> str:
    """As `one_line`, for a text of several lines, such as a traceback: line feeds stay."""
    return _any_of(_CONTROL).sub(_escaped, text)


def one_cell(text: str) -> str:
    """The same for a cell of a table, in which tabs are escaped, too."""
    return text if text.isprintable() else _any_of(f"\t\n{_CONTROL}").sub(_escaped, text)


def in_json(text: str) -> str:
    r"""JSON whose strings contain any characters but ASCII's controls, which JSON escapes: the others are written as \uXXXX."""
    return _any_of(_UNSAFE).sub(lambda match: json.dumps(match.group())[1:-1], text)


def cut(text: str, most: int = LONGEST) -> str:
    """The text, or its first characters and "..."."""
    return text if len(text) <= most else f"{text[:most]}..."


def printable(text: str, most: int = LONGEST) -> str:
    """A text of a client without characters that could forge a line of a log, and not too long."""
    return one_cell(cut(text, most))
