"""What the doctor found."""

from collections.abc import Iterable
from typing import NamedTuple

SHOWN = 5


class Finding(NamedTuple):
    """:param severity: "error" or "warning". :param subject: what it is about. :param what: what is seen. :param reason: why it
    matters. :param remedy: what to do."""

    severity: str
    subject: str
    what: str
    reason: str
    remedy: str


def some(names: Iterable[str]) -> str:
    """The first few of them, and how many more there are."""
    words = list(names)
    return ", ".join(words[:SHOWN]) + (f" and {len(words) - SHOWN} more" if len(words) > SHOWN else "")
