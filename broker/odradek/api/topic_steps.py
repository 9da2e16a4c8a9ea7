"""Divides the topic changes of one request into steps, so that other requests have their turn in the controller thread."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

PARTITIONS_PER_STEP = 50


class TopicChange(Protocol):
    """A change of one topic: its creation, its deletion, or new partitions."""

    @property
    def name(self) -> str:
        """The name of the topic."""


AnyChange = TypeVar("AnyChange", bound=TopicChange)


def in_steps(changes: Sequence[AnyChange], cost: Callable[[AnyChange], int]) -> Iterator[list[AnyChange]]:
    """The changes in parts of about PARTITIONS_PER_STEP partitions each. Changes of one topic stay together, because the
    controller refuses topics that are named more than once.

    :param cost: returns the cost of a change, in partitions.
    """
    of_name: dict[str, list[AnyChange]] = {}
    for change in changes:
        of_name.setdefault(change.name, []).append(change)
    part: list[AnyChange] = []
    size = 0
    for same in of_name.values():
        more = sum(cost(change) for change in same)
        if part and size + more > PARTITIONS_PER_STEP:
            yield part
            part, size = [], 0
        part += same
        size += more
    if part:
        yield part
