"""The verdict of a guard, whether it works in steps or not."""

from collections.abc import Generator

from odradek.api.api import Guarded
from odradek.api.guarding import Asked, Verdict
from odradek.api.table import BY_KEY, function_of
from odradek.stepwise import Stepwise

GUARDED = frozenset(key for key, row in BY_KEY.items() if row.guarded is Guarded.BY_GUARD)
"""The APIs whose guard decides."""


def verdict_of(key: int, asked: Asked) -> Verdict:
    """The verdict of the guard of an API."""
    return verdict_and_pauses(key, asked)[0]


def verdict_and_pauses(key: int, asked: Asked) -> tuple[Verdict, int]:
    """The verdict, and how often the guard paused before it."""
    found = function_of(key, "guard")(asked)
    if not isinstance(found, Generator):
        return found, 0
    steps, pauses = Stepwise(found), 0
    while steps.step():
        pauses += 1
    return steps.result, pauses
