"""Refuses a request as a whole: the response with one error in each of its elements, or in itself.

An API declares where its responses have the error (`Api.refused`), or has a function `refuse`. A request is refused because the
client may not do it, because this broker is not the controller (as in a Kafka cluster with ZooKeeper, it is not forwarded: the
client looks up the controller and sends it there), or because the metadata store does not respond. Pure functions.
"""

from collections.abc import Generator
from typing import Any

from odradek.api.elements import CODES, Elements, with_error
from odradek.api.table import BY_KEY, declared, function_of
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import structure_of
from odradek.security.resource_types import RESOURCE_TYPES
from odradek.stepwise import Steps

MESSAGES = {
    row.denied_as: f"{row.words.title()} authorization failed."
    for row in RESOURCE_TYPES.values()
    if row.denied_as is not None
} | {ErrorCode.NOT_CONTROLLER: "This is not the correct controller for this cluster."}
"""Kafka's messages for errors of whole requests."""


def can_be_refused(api_key: int) -> bool:
    """Whether the responses of an API can contain an error for the request as a whole."""
    api = declared(api_key)
    if api.refused is not None or BY_KEY[api_key].has_refuse:
        return True
    return any(item.attribute in CODES for item in structure_of(api.schema.response()).fields)


def refusal(api_key: int, request: Any, version: int, code: ErrorCode, message: str | None = None) -> Steps:
    """The response that refuses a request, in steps. :param message: for clients; None: that of the error."""
    message = MESSAGES.get(code) if message is None else message
    if BY_KEY[api_key].has_refuse:
        response = function_of(api_key, "refuse")(request, version, code, message)
        return (yield from response) if isinstance(response, Generator) else response
    api = declared(api_key)
    elements = _of_version(api.refused, version)
    if elements is None:
        return with_error(api.schema, version, code, message)
    return (yield from elements.refusal(request, version, code, message))


def _of_version(refused: Any, version: int) -> Elements | None:
    """The form of a version. :param refused: see `Api.refused`."""
    if refused is None or isinstance(refused, Elements):
        return refused
    found: Elements | None = refused[max(first for first in refused if first <= version)]
    return found
