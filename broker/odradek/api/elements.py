"""Makes responses that have the same error in each of their elements, from the schemas and the paths of the arrays.

Used for requests that are refused as a whole (`refusing.py`), and for elements that a client may not use (guards). Works in
steps, because the response has as many elements as the request.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from odradek._ext.protocol.arrays import new_array
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ApiSchema, structure_of
from odradek.protocol.structure import Structure
from odradek.stepwise import Pace, Steps

ELEMENTS_A_STEP = 500
CODES = ("error_code", "partition_error_code")
"""The names of fields with error codes; the second one in AddPartitionsToTxn."""
MESSAGE = "error_message"
IDENTITY = frozenset(
    ("name", "topic", "topic_id", "partition_index", "partition", "producer_id", "entity_type", "entity_name")
)
"""The fields that an element of a response copies from the element of the request, if both have them."""


class _Level(NamedTuple):
    """An array of the response. :ivar within: the array in its elements, by its attribute in the request and in the
    response."""

    cls: Any
    copied: dict[str, Callable[[Any], Any]]
    coded: tuple[str, ...]
    has_message: bool
    within: tuple[str, str] | None


class Elements:
    """The elements of arrays in the response have the error, and the response itself if it has a field for one.

    An element of the response has the identity (`IDENTITY`) of the request's; if that is a name or a number and no structure,
    it becomes the first field.

    :param request: the arrays of the request from the outer to the inner one, e.g. "topics.partitions". If there are more than
        in `response`, the first ones are joined.
    :param response: those of the response.
    :param named: fields of the response's elements, by the different name of the request's.
    :param values: values of the response's elements that do not depend on the request.
    """

    def __init__(
        self,
        schema: ApiSchema,
        request: str,
        response: str,
        named: Mapping[str, str] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self._schema = schema
        wanted, made = request.split("."), response.split(".")
        self._joined = len(wanted) - len(made)
        self._outer, self._first = wanted[: self._joined + 1], made[0]
        self._values = values or {}
        asked: Structure | None = structure_of(schema.request())
        for name in wanted[: self._joined]:
            asked = _within(asked, name)
        self._levels: list[_Level] = []
        answered: Structure | None = structure_of(schema.response())
        for number, name in enumerate(made):
            asked, answered = _within(asked, wanted[self._joined + number]), _within(answered, name)
            assert answered is not None
            last = number + 1 == len(made)
            within = None if last else (wanted[self._joined + number + 1], made[number + 1])
            self._levels.append(_level(asked, answered, named or {}, within))

    def refusal(self, request: Any, version: int, code: ErrorCode, message: str | None) -> Steps:
        """The response, in steps."""
        response = with_error(self._schema, version, code, message)
        elements = yield from _elements(request, self._outer)
        made = yield from self._made(0, elements, code, message, Pace(ELEMENTS_A_STEP))
        setattr(response, self._first, made)
        return response

    def of_element(self, element: Any, code: ErrorCode, message: str | None = None) -> Steps:
        """The element of the response for one of the request's outer array, in steps."""
        (made,) = yield from self._made(0, (element,), code, message, Pace(ELEMENTS_A_STEP))
        return made

    def _made(self, number: int, elements: Iterable[Any], code: ErrorCode, message: str | None, pace: Pace) -> Steps:
        """The elements of an array of the response, and those of the arrays in them."""
        level = self._levels[number]
        fixed = {name: value for name, value in self._values.items() if name in level.cls.__slots__}
        fixed |= dict.fromkeys(level.coded, code)
        if level.has_message:
            fixed[MESSAGE] = message
        made = new_array()
        for element in elements:
            result = level.cls(**fixed, **{name: copy(element) for name, copy in level.copied.items()})
            if level.within is not None:
                parts = getattr(element, level.within[0]) or ()
                setattr(result, level.within[1], (yield from self._made(number + 1, parts, code, message, pace)))
            made.append(result)
            if pace.over():
                yield
        return made


def _within(structure: Structure | None, name: str) -> Structure | None:
    """The structure of the elements of an array; None if they are no structures."""
    assert structure is not None
    return next(item.structure for item in structure.fields if item.attribute == name)


def _level(
    asked: Structure | None, answered: Structure, named: Mapping[str, str], within: tuple[str, str] | None
) -> _Level:
    fields = [item.attribute for item in answered.fields]
    coded = tuple(name for name in fields if name in CODES)
    copied: dict[str, Callable[[Any], Any]] = {}
    if asked is None:
        copied[next(name for name in fields if name not in coded)] = _itself
    else:
        present = {item.attribute for item in asked.fields}
        for name in fields:
            of_request = named.get(name, name if name in IDENTITY else "")
            if of_request in present:
                copied[name] = attrgetter(of_request)
    return _Level(answered.cls, copied, coded, MESSAGE in fields, within)


def _itself(element: Any) -> Any:
    return element


def _elements(request: Any, path: list[str]) -> Steps:
    """The elements of an array of the request, or (several names) of all arrays that the path leads to, in steps."""
    found = getattr(request, path[0]) or ()
    pace = Pace(ELEMENTS_A_STEP)
    for name in path[1:]:
        inner = new_array()
        for one in found:
            inner.extend(getattr(one, name))
            if pace.over():
                yield
        found = inner
    return found


def with_error(schema: ApiSchema, version: int, code: ErrorCode, message: str | None) -> Any:
    """A response with the error in its own fields. :param message: None: no text.

    Also in a field that the version does not have, if the encoder leaves it out: the error counts in the metrics.
    """
    response = schema.response()
    for item in structure_of(response).fields:
        if version in item.versions or item.ignorable:
            if item.attribute in CODES:
                setattr(response, item.attribute, code)
            elif item.attribute == MESSAGE:
                response.error_message = message
    return response
