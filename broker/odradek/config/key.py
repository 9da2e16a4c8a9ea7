"""A configuration key: its row in the table, type, allowed values, parser and formatter.

Constants and pure functions without state. The numbers of types are those of the DescribeConfigs response (KIP-133, KIP-226,
KIP-569).
"""

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from odradek.config.errors import ConfigError

BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = range(1, 10)
TYPE_NAMES = {
    BOOLEAN: "boolean",
    STRING: "string",
    INT: "int",
    SHORT: "short",
    LONG: "long",
    DOUBLE: "double",
    LIST: "list",
    CLASS: "class",
    PASSWORD: "password",
}

HIGH, MEDIUM, LOW = "high", "medium", "low"
READ_ONLY, PER_BROKER, CLUSTER_WIDE = "read-only", "per-broker", "cluster-wide"

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
MAX_DOUBLE = 1.7976931348623157e308
_BOUNDS = {SHORT: (-(2**15), 2**15 - 1), INT: (-(2**31), MAX_INT), LONG: (-(2**63), MAX_LONG)}
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?\Z")
_COMMA = re.compile(r"\s*,\s*")

Value = bool | int | float | str | tuple[str, ...] | None


class Range(NamedTuple):
    """Numbers from ``low`` to ``high``, both included, and additionally ``or_else``."""

    low: float | None = None
    high: float | None = None
    or_else: int | None = None

    def accepts(self, value: Value) -> bool:
        if not isinstance(value, int | float):
            return False
        if value == self.or_else:
            return True
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        if self.low is not None and self.high is not None:
            text = f"from {self.low} to {self.high}"
        elif self.low is not None:
            text = f"of at least {self.low}"
        else:
            text = "" if self.high is None else f"of at most {self.high}"
        return text if self.or_else is None else f"{text} or {self.or_else}".strip()


class OneOf(NamedTuple):
    """One of several words; for a list, each element is one. Parsing returns the word as the table spells it."""

    words: tuple[str, ...]
    any_case: bool = False

    def canonical(self, word: str) -> str | None:
        if word in self.words:
            return word
        if self.any_case:
            return next((known for known in self.words if known.lower() == word.lower()), None)
        return None

    def accepts(self, value: Value) -> bool:
        return all(self.canonical(word) is not None for word in (value if isinstance(value, tuple) else (str(value),)))

    def __str__(self) -> str:
        return ", ".join(word or "(empty)" for word in self.words)


class NonEmpty(NamedTuple):
    """A text or list that is not empty."""

    def accepts(self, value: Value) -> bool:
        return bool(value)

    def __str__(self) -> str:
        return "not empty"


class OnlyDefault(NamedTuple):
    """Only this value: for a feature that is not implemented yet and whose silent absence would be dangerous."""

    value: Value

    def accepts(self, value: Value) -> bool:
        return value == self.value or (not value and not self.value)

    def __str__(self) -> str:
        return str(show(self.value)) if self.value or self.value is False else "left unset"


class Pattern(NamedTuple):
    """A text, or each element of a list, that matches a regular expression; ``meaning`` describes it in messages. ``alone`` is
    also allowed, but as the only element."""

    expression: str
    meaning: str
    alone: str | None = None

    def accepts(self, value: Value) -> bool:
        items = value if isinstance(value, tuple) else (str(value),)
        return items == (self.alone,) or all(re.fullmatch(self.expression, item) for item in items)

    def __str__(self) -> str:
        return self.meaning


VERSION = Pattern(r"[0-9]+\.[0-9]+(\.[0-9]+)*(-IV[0-9]+)?", "a version such as 2.8 or 3.9-IV0")

Allowed = Range | OneOf | NonEmpty | OnlyDefault | Pattern | None


class Synonym(NamedTuple):
    """A broker key whose value, times ``factor``, applies if another key is not set."""

    name: str
    factor: int = 1


class NoEffect(NamedTuple):
    """Why the broker parses and checks a key, but does not use it. ``warns``: a start logs a warning if the key is set, because
    an operator may rely on it; else only a line at INFO."""

    reason: str
    warns: bool


class ConfigKey(NamedTuple):
    """A row of the table. ``default`` is typed; None means that the key is unset (a synonym may then provide the value)."""

    name: str
    type: int
    default: Value
    allowed: Allowed
    importance: str
    update_mode: str
    doc: str
    scope: str = "broker"
    synonyms: tuple[Synonym, ...] = ()
    no_effect: NoEffect | None = None

    @property
    def sensitive(self) -> bool:
        """True if the value is a secret and must not be shown."""
        return self.type == PASSWORD

    @property
    def read_only(self) -> bool:
        """True if the key cannot be changed at run time."""
        return self.update_mode == READ_ONLY

    @property
    def type_name(self) -> str:
        """The name of the type in the documentation, such as ``int``."""
        return TYPE_NAMES[self.type]

    def allows(self) -> str:
        """The allowed values as text that completes "must be ..."."""
        rule = self.allowed
        if isinstance(rule, OnlyDefault):
            return f"{rule}, anything else is not supported yet"
        if self.type == BOOLEAN:
            return "true or false"
        if isinstance(rule, OneOf):
            return f"{'a list of these:' if self.type == LIST else 'one of'} {rule}"
        if isinstance(rule, Pattern):
            return str(rule)
        if self.type in _BOUNDS:
            low, high = _BOUNDS[self.type]
            bounds = rule if isinstance(rule, Range) else Range()
            low = low if bounds.low is None else int(bounds.low)
            high = high if bounds.high is None else int(bounds.high)
            return f"an integer {Range(low, high, bounds.or_else)}"
        noun = {DOUBLE: "a number", LIST: "a comma-separated list", CLASS: "a class name"}.get(self.type, "a text")
        return f"{noun} {rule}" if rule is not None else noun

    def parse(self, text: str) -> Value:
        """The typed value of a text from a file or a request.

        Surrounding spaces are ignored. Raises ConfigError with the key, the value and the allowed values.
        """
        try:
            value: Any = _PARSERS[self.type](text.strip())
        except ValueError:
            raise self.error(text) from None
        if isinstance(value, float) and not math.isfinite(value):
            raise self.error(text, f"must be {self.allows()}, and its absolute value at most {show(MAX_DOUBLE)}")
        if self.type in _BOUNDS and not _BOUNDS[self.type][0] <= value <= _BOUNDS[self.type][1]:
            raise self.error(text)
        if self.allowed is not None and not self.allowed.accepts(value):
            raise self.error(text)
        if isinstance(self.allowed, OneOf) and self.allowed.any_case:
            return self.allowed.canonical(value)
        parsed: Value = value
        return parsed

    def error(self, text: str, reason: str = "") -> ConfigError:
        """The error for a value that this key does not allow."""
        return ConfigError(self.name, "[hidden]" if self.sensitive else text, reason or f"must be {self.allows()}")


def _boolean(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _integer(text: str) -> int:
    if not _INTEGER.match(text) or len(text) > 20:
        raise ValueError(text)
    return int(text)


def _double(text: str) -> float:
    if not _DOUBLE.match(text):
        raise ValueError(text)
    return float(text.rstrip("dDfF"))


def _list(text: str) -> tuple[str, ...]:
    return tuple(_COMMA.split(text)) if text else ()


_PARSERS: dict[int, Callable[[str], Any]] = {
    BOOLEAN: _boolean,
    STRING: str,
    INT: _integer,
    SHORT: _integer,
    LONG: _integer,
    DOUBLE: _double,
    LIST: _list,
    CLASS: str,
    PASSWORD: str,
}


def show(value: Value) -> str | None:
    """The text of a typed value as in DescribeConfigs and Kafka's tools; None for None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _java_double(value)
    return str(value)


def _java_double(value: float) -> str:
    """Format like Java's Double.toString: decimal from 0.001 to 10,000,000, else with an exponent."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, exponent = f"{value:e}", ""
    shortest = repr(value)
    if "e" in shortest:
        mantissa, exponent = shortest.split("e")
    else:
        mantissa, exponent = digits.split("e")
        mantissa = repr(float(shortest) / 10.0 ** int(exponent))
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
