"""Guards: the function `guard` in the file of an API, which is called before its handler if the broker has an authorizer.

A guard decides what the client may do, takes from the request what the client may not do, and says how the response changes: so
the handlers know nothing of access control, as in Kafka, where denied parts of a request are taken out before it is executed.
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from odradek._ext.protocol.arrays import new_array
from odradek.api.api import Api, Guarded
from odradek.api.elements import Elements
from odradek.api.permits import DENIED_AS, NAMES_A_STEP, Permits
from odradek.api.refusing import refusal
from odradek.api.table import BY_KEY, function_of
from odradek.protocol.errors import ErrorCode
from odradek.security.acl import CLUSTER_NAME, Operation, ResourceType
from odradek.security.needs import CLUSTER
from odradek.stepwise import Pace, Steps

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
NAMED_BY = {ResourceType.GROUP: "group_id", ResourceType.TRANSACTIONAL_ID: "transactional_id"}
"""The fields of requests that name one resource."""
Name = TypeVar("Name", bound=Hashable)
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


def repeated_in(names: Sequence[Name]) -> frozenset[Name]:
    """The names that a request repeats: it is refused for that, whatever the client may do."""
    seen: set[Name] = set()
    return frozenset(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]


class NoGuard(Exception):
    """An API that nobody protects: it is not served while the broker has an authorizer."""


def judge(api_key: int, asked: Asked) -> Verdict | VerdictInSteps:
    """The verdict of an API's guard, or the steps that return it. Raises NoGuard."""
    if not asked.permits.restricted:
        return None
    row = BY_KEY.get(api_key)
    if row is None:
        raise NoGuard(f"API {api_key} has no guard, so it is not served while authorizer.class.name is set")
    if row.guarded is not Guarded.BY_GUARD:
        return None
    found: Verdict | VerdictInSteps = function_of(api_key, "guard")(asked)
    return found


def refused_whole(api_key: int, asked: Asked, code: ErrorCode) -> VerdictInSteps:
    """The verdict with this error for the whole request."""
    return Refused((yield from refusal(api_key, asked.request, asked.version, code)))


def of_whole(api: Api) -> Guard:
    """The guard of an API whose rights concern the cluster, or the one group or transactional id that the request names. One of
    its ways is enough; each has one need."""
    needs = [need for (need,) in api.rights.ways]

    def guard(asked: Asked) -> Verdict | VerdictInSteps:
        for number, (operation, resource_type) in enumerate(needs, 1):
            name = CLUSTER_NAME if resource_type == CLUSTER else getattr(asked.request, NAMED_BY[resource_type])
            if asked.permits.allows(operation, resource_type, name, quiet=number < len(needs)):
                return None
        return refused_whole(api.key, asked, DENIED_AS[needs[-1].resource_type])

    return guard


def refused_elements(elements: Elements, code: ErrorCode) -> Callable[[Any], Steps]:
    """For `taken_out`: makes the result of a topic with an error in each of its partitions."""
    return lambda element: elements.of_element(element, code)
