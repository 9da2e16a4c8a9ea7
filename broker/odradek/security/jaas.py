"""Parser of the JAAS lines in ``sasl.jaas.config``: a login module, a control flag, and options.

Pure functions. The grammar is that of Kafka's `JaasConfig`, which reads the line with Java's StreamTokenizer. No error and no
`repr` contains an option's value, because values are secrets.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

FLAGS = ("required", "requisite", "sufficient", "optional")
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-$.")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL = "01234567"


class JaasError(ValueError):
    """A JAAS line that cannot be read. The message names the place, and no value of an option."""


class LoginModule(NamedTuple):
    """A login module: its Java class, its control flag in lower case, and its options."""

    name: str
    flag: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<LoginModule {self.name}, options: {', '.join(self.options)}>"

    @property
    def simple_name(self) -> str:
        """The class name without its package."""
        return self.name.rpartition(".")[2]


class _Token(NamedTuple):
    text: str
    kind: str  # "word", "quoted" or "sign"
    position: int  # of its first character, from 1


def parse(text: str) -> LoginModule:
    """Parse a line with exactly one login module. Raises JaasError."""
    modules = list(_modules(list(_tokens(text))))
    if len(modules) != 1:
        raise JaasError(f"must contain exactly one login module that ends with ';', not {len(modules)}")
    return modules[0]


def _modules(tokens: list[_Token]) -> Iterator[LoginModule]:
    position = 0

    def take(meaning: str, kinds: tuple[str, ...] = ("word", "quoted")) -> _Token:
        nonlocal position
        if position == len(tokens):
            raise JaasError(f"ends where {meaning} must follow; the line must end with ';'")
        token = tokens[position]
        position += 1
        if token.kind not in kinds:
            raise JaasError(f"must have {meaning} at character {token.position}")
        return token

    while position < len(tokens):
        name = take("the class name of a login module").text
        flag = take("a control flag").text.lower()
        if flag not in FLAGS:
            raise JaasError(f"must have a control flag ({', '.join(FLAGS)}) after the class name of the login module")
        options: dict[str, str] = {}
        while True:
            key = take("an option or ';'", ("word", "quoted", "sign"))
            if key.kind == "sign":
                if key.text != ";":
                    raise JaasError(f"must have an option or ';' at character {key.position}")
                break
            sign = take(f"'=' after the option {key.text}", ("sign",))
            if sign.text != "=":
                raise JaasError(f"must have '=' after the option {key.text}, at character {sign.position}")
            options[key.text] = take(f"the value of the option {key.text}").text
        yield LoginModule(name, flag, options)


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        start, char = position, text[position]
        if char.isspace():
            position += 1
        elif text.startswith("//", position):
            position = _end_of(text, position, "\n")
        elif text.startswith("/*", position):
            position = _end_of(text, position + 2, "*/")
        elif char in "\"'":
            value, position = _quoted(text, position)
            yield _Token(value, "quoted", start + 1)
        elif char in "=;":
            position += 1
            yield _Token(char, "sign", start + 1)
        elif char in _WORD:
            while position < len(text) and text[position] in _WORD:
                position += 1
            yield _Token(text[start:position], "word", start + 1)
        else:
            raise JaasError(
                f"must have values with other characters than letters and digits in quotes (character {start + 1})"
            )


def _end_of(text: str, position: int, end: str) -> int:
    found = text.find(end, position)
    return len(text) if found < 0 else found + len(end)


def _quoted(text: str, start: int) -> tuple[str, int]:
    """The value of a quoted text that begins at `start`, and the position after it."""
    quote, position = text[start], start + 1
    out: list[str] = []
    while position < len(text) and text[position] not in (quote, "\n", "\r"):
        char = text[position]
        position += 1
        if char == "\\" and position < len(text):
            char = text[position]
            position += 1
            if char in _OCTAL:
                most = 3 if char <= "3" else 2
                end = position
                while end < len(text) and end - position < most - 1 and text[end] in _OCTAL:
                    end += 1
                char, position = chr(int(text[position - 1 : end], 8)), end
            else:
                char = _ESCAPES.get(char, char)
        out.append(char)
    if position == len(text) or text[position] != quote:
        raise JaasError(f"has a quote at character {start + 1} without its end")
    return "".join(out), position + 1
