"""Rules for topic names: allowed characters, and names that collide. Pure functions."""

import re

MAX_LENGTH = 249
CONSUMER_OFFSETS, TRANSACTION_STATE = "__consumer_offsets", "__transaction_state"
CLUSTER_METADATA = "__cluster_metadata"
INTERNAL = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
"""Topics of the broker itself, which responses mark as internal."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def why_illegal(name: str) -> str | None:
    """Why a topic name is invalid and what is allowed; None if it is valid."""
    if not name:
        return "a topic name must not be empty"
    if name in (".", ".."):
        return f"topic name {name!r} must not be . or .."
    if len(name) > MAX_LENGTH:
        return f"topic name {name[:32]}... has {len(name)} characters; the maximum is {MAX_LENGTH}"
    if not _LEGAL.fullmatch(name):
        return f"topic name {name!r} must contain only ASCII letters, digits, . _ and -"
    return None


def folded(name: str) -> str:
    """The form of a topic name in metrics. Two topics with the same form cannot both exist."""
    return name.replace(".", "_")
