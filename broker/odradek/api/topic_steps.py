"""Topic changes of one request in steps, so that other requests have their turn in the controller thread."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

PARTITIONS_AT_A_STEP = 200


class Named(Protocol):
    """What a request wants done with a topic."""

    @property
    def name(self) -> str:
        """Of the topic."""


Wish = TypeVar("Wish", bound=Named)


def in_steps(wishes: Sequence[Wish], cost: Callable[[Wish], int]) -> Iterator[list[Wish]]:
    """The wishes in parts, of about PARTITIONS_AT_A_STEP partitions each. Those of one name stay together, because the
    controller refuses topics that are named more than once.

    :param cost: of a wish, in partitions.
    """
    of_name: dict[str, list[Wish]] = {}
    for wish in wishes:
        of_name.setdefault(wish.name, []).append(wish)
    part: list[Wish] = []
    size = 0
    for same in of_name.values():
        more = sum(cost(wish) for wish in same)
        if part and size + more > PARTITIONS_AT_A_STEP:
            yield part
            part, size = [], 0
        part += same
        size += more
    if part:
        yield part
