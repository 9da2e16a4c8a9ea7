"""What a guard returns. A guard is called before the handler of an API, if the broker has an authorizer.

It decides what the client may do, takes from the request what the client may not do, and says how the response changes: so the
handlers know nothing of access control, as in Kafka, where denied parts of a request are taken out before it is executed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from odradek.api.permits import Permits

TopicExists = Callable[[str], bool]
Merge = Callable[[Any], Any]
TopicName = Callable[[bytes], str | None]
"""Returns the name of the topic with an id; None if there is none."""


class Refused(NamedTuple):
    """The handler is not called: this is the response."""

    response: Any


class Merged(NamedTuple):
    """The handler is called with the request, which the guard may have changed; `merge` makes the response from the
    handler's."""

    merge: Merge


class Asked(NamedTuple):
    """A request for a guard. ``name_of``: see `TopicName`; ``exists``: whether there is a topic of that name."""

    request: Any
    version: int
    permits: Permits
    name_of: TopicName
    exists: TopicExists


Verdict = Refused | Merged | None
"""None: nothing changes."""
Guard = Callable[[Asked], Verdict]


def appended(field: str, refused: list[Any]) -> Merge:
    """A merge that appends the results of what was refused to a list of the response."""

    def merge(response: Any) -> Any:
        getattr(response, field).extend(refused)
        return response

    return merge
