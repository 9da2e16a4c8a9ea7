"""Divides the topic changes of one request into steps, so that other requests have their turn in the store thread."""

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from odradek.stepwise import Pace

PARTITIONS_PER_STEP = 50
READ_PER_STEP = 500


class TopicChange(Protocol):
    """A change of one topic: its creation, its deletion, or new partitions."""

    @property
    def name(self) -> str:
        """The name of the topic."""


AnyChange = TypeVar("AnyChange", bound=TopicChange)


def parts_of(
    elements: Iterable[Any], change_of: Callable[[Any], AnyChange], cost: Callable[[AnyChange], int]
) -> Generator[None, None, Iterator[list[AnyChange]]]:
    """Read the changes of a request in steps. Returns them in parts of about PARTITIONS_PER_STEP partitions; the caller pauses
    between two parts. Changes of one topic stay together, because the controller refuses topics that are named more than once.

    :param elements: of the request. :param change_of: returns the change of an element.
    :param cost: returns the cost of a change, in partitions.
    """
    of_name: dict[str, list[AnyChange]] = {}
    pace = Pace(READ_PER_STEP)
    for element in elements:
        change = change_of(element)
        of_name.setdefault(change.name, []).append(change)
        if pace.over():
            yield
    return _divided(of_name.values(), cost)


def _divided(changes: Iterable[list[AnyChange]], cost: Callable[[AnyChange], int]) -> Iterator[list[AnyChange]]:
    part: list[AnyChange] = []
    size = 0
    for same in changes:
        more = sum(cost(change) for change in same)
        if part and size + more > PARTITIONS_PER_STEP:
            yield part
            part, size = [], 0
        part += same
        size += more
    if part:
        yield part
