"""What a guard returns. A guard is called before the handler of an API, if the broker has an authorizer.

It decides what the client may do, takes from the request what the client may not do, and says how the response changes: so the
handlers know nothing of access control, as in Kafka, where denied parts of a request are taken out before it is executed.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from odradek._ext.protocol.arrays import new_array
from odradek.api.permits import NAMES_A_STEP, Permits
from odradek.security.acl import Operation, ResourceType
from odradek.stepwise import Pace

TopicExists = Callable[[str], bool]
Merge = Callable[[Any], Any]
"""Makes the response from the handler's, or the steps that return it."""
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
    """A request for a guard. ``name_of``: see `TopicName`; ``exists``: whether there is a topic of that name. Services whose
    requests name no topics need neither."""

    request: Any
    version: int
    permits: Permits
    name_of: TopicName = lambda _: None
    exists: TopicExists = lambda _: False


Verdict = Refused | Merged | None
"""None: nothing changes."""
VerdictInSteps = Generator[None, None, Verdict]
Guard = Callable[[Asked], Verdict | VerdictInSteps]
"""The guard of an API whose requests may name very many resources works in steps (`odradek.stepwise`), so that a denied
client does not stop the loop. The guard has not changed the request before the last step."""
RESULTS_A_STEP = 1000
WITH_PARTS = 4
"""The work for an element with parts, in results."""


def same(element: Any) -> Generator[None, None, Any]:
    """The element itself."""
    return element
    yield


def appended(field: str, refused: list[Any]) -> Merge:
    """A merge that appends the results of what was refused to a list of the response."""

    def merge(response: Any) -> Any:
        getattr(response, field).extend(refused)
        return response

    return merge


def merged(merge: Merge, response: Any) -> Generator[None, None, Any]:
    """The response that a guard makes from the handler's, in steps."""
    result = merge(response)
    return (yield from result) if isinstance(result, Generator) else result


def made_in_steps(elements: Iterable[Any], make: Callable[[Any], Any]) -> Generator[None, None, list[Any]]:
    """`make(element)` of each element, with a pause after each `RESULTS_A_STEP` of them."""
    made = new_array()
    pace = Pace(RESULTS_A_STEP)
    for element in elements:
        made.append(make(element))
        if pace.over():
            yield
    return made


def shown_in_steps(elements: Iterable[Any], shows: Callable[[Any], bool]) -> Generator[None, None, list[Any]]:
    """The elements that `shows(element)`, one or two decisions, lets the client see; with a pause after each `NAMES_A_STEP`."""
    shown = new_array()
    pace = Pace(NAMES_A_STEP)
    for element in elements:
        if shows(element):
            shown.append(element)
        if pace.over():
            yield
    return shown


def each_in_steps(
    elements: Iterable[Any], steps_of: Callable[[Any], Generator[None, None, Any]]
) -> Generator[None, None, list[Any]]:
    """What `steps_of(element)` returns for each element, in steps: for elements that may have very many parts."""
    made = new_array()
    pace = Pace(RESULTS_A_STEP)
    for element in elements:
        made.append((yield from steps_of(element)))
        if pace.over(WITH_PARTS):
            yield
    return made


def taken_out(
    asked: Asked,
    operation: Operation,
    refuse: Callable[[Any], Generator[None, None, Any]],
    name_of: Callable[[Any], str | None] = attrgetter("name"),
    decides: Callable[[str], bool] = lambda _: True,
    nameless: Callable[[Any], Generator[None, None, Any]] = same,
) -> Generator[None, None, list[Any]]:
    """Take the topics that the client may not use from `request.topics`. Returns what `refuse(topic)`, which works in steps,
    returns for each, in their order.

    A topic without a name, because no topic has its id, is also taken out: nobody decided about a topic that the handler finds
    later.

    :param name_of: returns the name of a topic of the request; None: no topic has its id.
    :param decides: whether a name needs the right; others stay in the request.
    :param nameless: as `refuse`, for a topic without a name.
    """
    topics = asked.request.topics
    names = yield from made_in_steps(topics, name_of)
    complete = True

    def decided() -> Iterator[str]:
        nonlocal complete
        for name in names:
            if name is None:
                complete = False
            elif decides(name):
                yield name

    denied = yield from asked.permits.denied_in_steps(operation, ResourceType.TOPIC, decided())
    if not denied and complete:
        return []
    kept, refused = new_array(), new_array()
    pace = Pace(RESULTS_A_STEP)
    for topic, name in zip(topics, names, strict=True):
        if name is None:
            refused.append((yield from nameless(topic)))
        elif name in denied:
            refused.append((yield from refuse(topic)))
        else:
            kept.append(topic)
        if pace.over():
            yield
    asked.request.topics = kept
    return refused
