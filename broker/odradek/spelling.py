"""Hints on misspelled names in errors and warnings: the closest known name. Stateless; used by the command and by processes."""

from collections.abc import Iterable

CUTOFF = 0.6
"""How similar a known name must be: 0 for any name, 1 for an equal name."""


def did_you_mean(name: str, known: Iterable[str], cutoff: float = CUTOFF) -> str:
    """A hint with the known name closest to `name`, ignoring case: "did you mean 'orders'?"; empty if none is similar."""
    from difflib import get_close_matches  # imported here because most commands need no hint

    by_lower_case = {word.lower(): word for word in known}
    return question(by_lower_case[word] for word in get_close_matches(name.lower(), list(by_lower_case), 1, cutoff))


def question(close: Iterable[str]) -> str:
    """The question for these names; empty if there are none."""
    names = " or ".join(f"'{name}'" for name in close)
    return f"did you mean {names}?" if names else ""
