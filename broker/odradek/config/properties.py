"""Parser of Java's ``.properties`` files: comments, continuation lines, escapes and the three separators.

Pure functions. The grammar is that of ``java.util.Properties.load``. A file is decoded as UTF-8, or as Latin-1 if it is not
valid UTF-8, as for Java's resource bundles.
"""

from collections.abc import Iterator
from typing import NamedTuple

from odradek.config.errors import ConfigError

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """A key, its value, and the number (from 1) of the line with the key."""

    name: str
    value: str
    line: int


def decode(data: bytes) -> str:
    """Decode the bytes of a file."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse(text: str, file: str = "") -> list[Property]:
    """All settings in the order of the file, with repeated ones.

    Raises ConfigError for a malformed ``\\uXXXX``, the only error in this syntax. :param file: the file name, for errors.
    """
    return [_split(line, number, file) for number, line in _logical_lines(text)]


def _natural_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines: without comments and blank lines, with continuations joined; each with the number of its first line."""
    pending, start = None, 0
    for number, natural in enumerate(_natural_lines(text), 1):
        line = natural.lstrip(_BLANK)
        if pending is None:
            if not line or line[0] in "#!":
                continue
            pending, start = "", number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending += line[:-1]
            continue
        yield start, pending + line
        pending = None
    if pending:
        yield start, pending


def _split(line: str, number: int, file: str) -> Property:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return Property(_unescape(line[:end], number, file), _unescape(rest, number, file), number)


def _unescape(text: str, number: int, file: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\":
            out.append(char)
            continue
        char = text[position : position + 1]
        position += 1
        if char == "u":
            digits = text[position : position + 4]
            position += 4
            if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise ConfigError(
                    "", None, f"\\u must be followed by four hexadecimal digits, not {digits!r}", f"{file}:{number}"
                )
            out.append(chr(int(digits, 16)))
        else:
            out.append(_ESCAPES.get(char, char))
    joined = "".join(out).encode("utf-16-le", "surrogatepass")
    try:
        return joined.decode("utf-16-le")
    except UnicodeDecodeError:
        raise ConfigError("", None, "a \\u escape is half of a surrogate pair", f"{file}:{number}") from None
