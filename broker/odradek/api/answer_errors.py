"""The error codes of a response, for counting: of its objects where they are made, of its bytes what stands in front.

Pure functions. Who executes a request counts what is wrong with its parts (topics, groups, resources ...) in its own meter
page; of a forwarded one the worker counts the code that the response begins with, if that is simply found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from odradek.api.stepwise import Pace, Steps
from odradek.protocol.registry import by_key
from odradek.protocol.schemas.header import response_header_version

METADATA = 3
STEP = 2000
_THROTTLED_FROM = {  # API key: first version in which the throttle time stands before the error code
    11: 2,  # JoinGroup
    12: 1,  # Heartbeat
    13: 1,  # LeaveGroup
    14: 1,  # SyncGroup
    16: 1,  # ListGroups
    22: 0,  # InitProducerId
    47: None,  # OffsetDelete: the error code comes first
    68: 0,  # ConsumerGroupHeartbeat
}


class _Where(NamedTuple):
    """Which fields of a structure hold error codes: its own one, and those of the structures in these arrays."""

    own: bool
    leaves: tuple[Callable[[Any], Any], ...]
    """Arrays whose structures have a code of their own and no more below them."""
    trees: tuple[tuple[Callable[[Any], Any], _Where], ...]


def _where(structure: Any) -> _Where:
    leaves, trees = [], []
    own = False
    for field in structure.fields:
        if field.structure is None:
            own = own or field.attribute == "error_code"
        elif field.is_array:
            inner = _where(field.structure)
            if inner.leaves or inner.trees:
                trees.append((attrgetter(field.attribute), inner))
            elif inner.own:
                leaves.append(attrgetter(field.attribute))
    return _Where(own, tuple(leaves), tuple(trees))


@cache
def _of_api(api_key: int) -> _Where:
    where = _where(by_key(api_key).response._structure)
    if api_key == METADATA:  # every client asks for all partitions: their codes would cost as much as the answer
        return where._replace(leaves=tuple(tree for tree, _ in where.trees), trees=())
    return where


def _collect(message: Any, where: _Where, found: list[int]) -> None:
    if where.own and message.error_code:
        found.append(int(message.error_code))
    for leaf in where.leaves:
        found.extend(int(one.error_code) for one in leaf(message) or () if one.error_code)
    for tree, inner in where.trees:
        for one in tree(message) or ():
            _collect(one, inner, found)


def errors_of(api_key: int, response: Any) -> list[int]:
    """All error codes of a response, as objects, that are not 0: its own first, then those of its parts in their order.

    Of Metadata those of partitions are left out.
    """
    found: list[int] = []
    _collect(response, _of_api(api_key), found)
    return found


def errors_in_steps(api_key: int, response: Any) -> Steps:
    """As `errors_of`, for a response that may be large."""
    found: list[int] = []
    where = _of_api(api_key)
    pace = Pace(STEP)
    _collect(response, where._replace(trees=()), found)
    for tree, inner in where.trees:
        for one in tree(response) or ():
            before = len(found)
            _collect(one, inner, found)
            if pace.over(1 + len(found) - before):
                yield
    return found


def leads_with_error(api_key: int) -> bool:
    """Whether `error_position` finds the code of the API's responses."""
    return api_key in _THROTTLED_FROM


def error_position(api_key: int, version: int) -> int:
    """Where a response, from its header on, states its error code; -1 if it has none, or none that is simply found.

    It is found in responses that have one before anything of variable length.
    """
    if api_key not in _THROTTLED_FROM:
        return -1
    throttled_from = _THROTTLED_FROM[api_key]
    position = 4 + response_header_version(api_key, version)  # correlation id, no tagged fields
    if throttled_from is not None and version >= throttled_from:
        position += 4
    return position
