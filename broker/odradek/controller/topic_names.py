"""Which topic names are allowed, and which two may not both exist. Pure functions."""

import re

MAX_LENGTH = 249
CONSUMER_OFFSETS, TRANSACTION_STATE = "__consumer_offsets", "__transaction_state"
CLUSTER_METADATA = "__cluster_metadata"
INTERNAL = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
"""Topics of the broker itself; clients see them marked as internal."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def why_illegal(name: str) -> str | None:
    """What is wrong with a topic's name and what would be right; None if nothing is."""
    if not name:
        return "a topic name must not be empty"
    if name in (".", ".."):
        return f"topic name {name!r} must not be . or .."
    if len(name) > MAX_LENGTH:
        return f"topic name {name[:32]}... has {len(name)} characters, at most {MAX_LENGTH} are allowed"
    if not _LEGAL.fullmatch(name):
        return f"topic name {name!r} must consist of ASCII letters and digits, . _ and - only"
    return None


def folded(name: str) -> str:
    """What metrics make of a topic's name: two topics whose names become the same may not both exist."""
    return name.replace(".", "_")
