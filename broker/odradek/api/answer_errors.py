"""The error codes of a response, for metrics. Pure functions.

The process that executes a request counts the errors of its parts (topics, groups, resources ...) in its meter page. For a
forwarded request, the worker counts the error code at the beginning of the response, if it is at a fixed position
(`ApiRow.error`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from odradek.api.elements import CODES
from odradek.protocol.registry import by_key
from odradek.stepwise import Pace, Steps

METADATA = 3
STEP = 2000


class _ErrorFields(NamedTuple):
    """The fields of a structure that contain error codes: its own field, and those of the structures in its arrays."""

    own: Callable[[Any], int] | None
    leaves: tuple[tuple[Callable[[Any], Any], Callable[[Any], int]], ...]
    """Arrays of structures that have an error code, and no arrays with further codes; and the code of such a structure."""
    trees: tuple[tuple[Callable[[Any], Any], _ErrorFields], ...]


def _where(structure: Any) -> _ErrorFields:
    leaves, trees = [], []
    own: Callable[[Any], int] | None = None
    for field in structure.fields:
        if field.structure is None:
            if field.attribute in CODES:
                own = attrgetter(field.attribute)
        elif field.is_array:
            inner = _where(field.structure)
            if inner.leaves or inner.trees:
                trees.append((attrgetter(field.attribute), inner))
            elif inner.own is not None:
                leaves.append((attrgetter(field.attribute), inner.own))
    return _ErrorFields(own, tuple(leaves), tuple(trees))


@cache
def _of_api(api_key: int) -> _ErrorFields:
    where = _where(by_key(api_key).response._structure)
    if (
        api_key == METADATA
    ):  # without partitions: clients request all of them, so counting would cost as much as the response
        topics = tuple((tree, inner.own) for tree, inner in where.trees if inner.own is not None)
        return where._replace(leaves=topics, trees=())
    return where


def _collect(message: Any, fields: _ErrorFields, codes: list[int]) -> None:
    if fields.own is not None and (code := fields.own(message)):
        codes.append(int(code))
    for leaf, code_of in fields.leaves:
        codes.extend(int(code) for part in leaf(message) or () if (code := code_of(part)))
    for tree, inner in fields.trees:
        for part in tree(message) or ():
            _collect(part, inner, codes)


def errors_of(api_key: int, response: Any) -> list[int]:
    """All error codes of a decoded response that are not 0: its own code first, then those of its parts in order.

    The codes of partitions in Metadata responses are omitted.
    """
    codes: list[int] = []
    _collect(response, _of_api(api_key), codes)
    return codes


def errors_in_steps(api_key: int, response: Any) -> Steps:
    """Like `errors_of`, in steps, for a response that may be large."""
    codes: list[int] = []
    yield from _collect_in_steps(response, _of_api(api_key), codes, Pace(STEP))
    return codes


def _collect_in_steps(message: Any, fields: _ErrorFields, codes: list[int], pace: Pace) -> Steps:
    if fields.own is not None and (code := fields.own(message)):
        codes.append(int(code))
    for leaf, code_of in fields.leaves:
        parts = leaf(message) or ()
        for first in range(0, len(parts), STEP):
            some = parts[first : first + STEP]
            codes.extend(int(code) for part in some if (code := code_of(part)))
            if pace.over(len(some)):
                yield
    for tree, inner in fields.trees:
        for part in tree(message) or ():
            yield from _collect_in_steps(part, inner, codes, pace)
            if pace.over():
                yield
