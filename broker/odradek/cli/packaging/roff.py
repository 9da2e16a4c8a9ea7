"""Writes text as roff with the macros of man(7). Holds no knowledge of commands.

Every line of text that these functions return is shorter than `WIDTH`, starts with no control character and contains only
ASCII, so that groff and mandoc accept it without a warning, with any locale.
"""

from collections.abc import Iterable, Iterator, Sequence

WIDTH = 80
BREAK = "\\:"
"""Where the formatter may break a word, without a hyphen."""
_ESCAPES = {
    "|": f"|{BREAK}",
    "\\": "\\e",
    "-": "\\-",
    "'": "\\(aq",
    "`": "\\(ga",
    "^": "\\(ha",
    "~": "\\(ti",
    '"': "\\(dq",
}


def escaped(text: str) -> str:
    """The text with every special character escaped, as an argument or as part of a line."""
    return "".join(
        _ESCAPES.get(character, character if " " <= character <= "\x7e" else f"\\[u{ord(character):04X}]")
        for character in text
    )


def bold(text: str) -> str:
    """The text in bold."""
    return f"\\fB{escaped(text)}\\fP"


def italic(text: str) -> str:
    """The text in italics: a value that the reader replaces."""
    return f"\\fI{escaped(text)}\\fP"


def filled(text: str) -> list[str]:
    """Lines of running text, which the formatter fills."""
    return joined(escaped(word) for word in text.split())


def joined(words: Iterable[str]) -> list[str]:
    """Words that are roff already, joined to lines that are shorter than `WIDTH`; a longer word has a line for itself."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) < WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(f"\\&{word}" if word.startswith((".", "'")) else word)
    return lines


def unfilled(lines: Iterable[str]) -> list[str]:
    """Lines that keep their breaks and indentation."""
    shown = (escaped(line) for line in lines)
    return [".nf", *(f"\\&{line}" if line.startswith((".", "'", " ")) else line for line in shown), ".fi"]


def tagged(tag: str, body: Sequence[str]) -> list[str]:
    """A paragraph with a hanging tag. :param tag: roff. :param body: lines of roff."""
    return [".TP", tag, *body]


def section(title: str) -> str:
    """The heading of a section."""
    return f".SH {title.upper()}"


def subsection(title: str) -> str:
    """The heading of a subsection. :param title: plain text."""
    return f".SS {escaped(title)}"


def paragraphs(text: str) -> Iterator[list[str]]:
    """Each paragraph of a click help text as lines of roff; a paragraph after a line with \\b keeps its line breaks."""
    for paragraph in text.replace("\f", "").split("\n\n"):
        lines = paragraph.strip("\n").split("\n")
        if lines[0].strip() == "\b":
            yield unfilled(lines[1:])
        elif paragraph.strip():
            yield filled(paragraph)
