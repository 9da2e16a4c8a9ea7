"""Executes requests, in the same steps in all places: `Pipeline.steps`.

    deadline, decode, limit of elements, permits, controller, guard, handler, merge, end, errors, frame

A place (`odradek.api.api.Place`) contributes a `Host`: the call that handlers receive, its view of topics, and what it does
before and after a handler. The place also schedules the steps: after each step it may do other work, and if a step yields a
`Later`, the place continues when that is set (docs/decisions/0022-what-one-request-may-cost.md, 0045-one-request-one-way.md).
"""

import struct
import time
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Protocol

from odradek.api.answer_errors import errors_in_steps, errors_of
from odradek.api.api import Place
from odradek.api.call import EncodedResponse
from odradek.api.guarding import Asked, Refused, judge, merged
from odradek.api.permits import Permits, PermitsOf
from odradek.api.row import ApiRow
from odradek.api.table import handlers_of, limits_of, served_rows
from odradek.config.broker_config import BrokerConfig
from odradek.protocol import LARGE_BYTES, ProtocolError, decode, decode_in_steps, encode, encode_in_steps
from odradek.protocol.registry import by_key
from odradek.protocol.schemas.header import decode_request_header, response_header_version
from odradek.stepwise import Later, Steps

_CORRELATION = struct.Struct(">i")
_NO_TAGS = b"\0"


class Received(Protocol):
    """A request as it arrived: the encoded request, and the connection of its client."""

    @property
    def payload(self) -> bytes: ...
    @property
    def context(self) -> "Client": ...


class Client(Protocol):
    """The connection of a request's client: the properties that all places need."""

    @property
    def peer(self) -> str: ...
    @property
    def principal(self) -> str | None: ...


class Outcome(NamedTuple):
    """An executed request.

    :ivar data: the encoded response with its header, without its length. :ivar errors: the error codes in the
        response that are not 0, that of the whole request first. :ivar of_request: whether the whole request has one.
    """

    row: ApiRow
    version: int
    data: bytes
    errors: Sequence[int]
    of_request: bool


class NotServed(NamedTuple):
    """A request that is not executed: its connection is closed.

    :ivar row: its API; None: not known, or not served. :ivar reason: None: its deadline has passed.
    :ivar malformed: whether it cannot be decoded; otherwise this place does not execute the API in this version.
    """

    row: ApiRow | None
    reason: str | None
    malformed: bool = False


class Host:
    """What a place contributes to the pipeline.

    :param places: those whose APIs it executes.
    :ivar rows: these APIs by key. :ivar handlers: their handlers. :ivar limits: see `limits_of`.
    :cvar short_responses: whether the response to a short request is short, unless its API says otherwise
    (`Api.long_response`).
    """

    short_responses = False

    def __init__(self, config: BrokerConfig, permits_of: PermitsOf, *places: Place) -> None:
        clustered = config.clustered
        self.rows = {key: row for key, row in served_rows(clustered).items() if row.place in places}
        self.handlers = handlers_of(*places, clustered=clustered)
        self.limits = limits_of(config)
        self.permits_of = permits_of

    def deadline(self, request: Any) -> float | None:
        """When the client stops waiting (monotonic); None: never."""
        return None

    def decoded(self, request: Any) -> None:
        """The encoded request is not needed any more: a place that keeps it in memory releases it."""

    def call(self, request: Any, row: ApiRow, version: int, permits: Permits) -> Any:
        """The call that the handler receives."""
        raise NotImplementedError

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with an id; None if no topic has this id."""
        return None

    def topic_exists(self, name: str) -> bool:
        """Whether a topic of that name exists."""
        return False

    def before(self, row: ApiRow, message: Any, version: int) -> Steps:
        """The response if this broker cannot execute the request; None: the guard and the handler follow."""
        return None
        yield

    def handled(self, row: ApiRow, holder: list[Any], call: Any) -> Steps:
        """The response of the handler. :param holder: has the request; a place whose handlers wait for long removes it."""
        response = self.handlers[row.key](holder[0], call)
        if not isinstance(response, Generator):
            return response
        return (yield from (response if self.short_responses else executed(response)))

    def failed(self, error: Exception, row: ApiRow, message: Any, version: int) -> Steps:
        """The response after an exception of `before`, the guard or the handler; raises it if no response can report it."""
        raise error
        yield

    def end(self, request: Any, row: ApiRow, message: Any, call: Any, response: Any) -> Steps:
        """Wait for what must happen before the response is sent, and return the response."""
        return response
        yield


def executed(steps: Steps) -> Steps:
    """The steps of a handler; if one of them did more than wait, another step begins before the response is encoded.

    When this generator is closed, it closes the steps of the handler at once, so that their errors reach the request.
    """
    much = False
    try:
        while True:
            try:
                pause = next(steps)
            except StopIteration as end:
                response = end.value
                break
            much = much or not isinstance(pause, Later)
            yield pause
    finally:
        steps.close()
    if much:
        yield
    return response


class Pipeline:
    """Executes the requests of one place. :param host: see `Host`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def steps(self, request: Received) -> Steps:
        """Execute a request. Returns an Outcome, or NotServed; None if the handler has closed the connection.

        Raises the exceptions of `Host.failed`.
        """
        host = self._host
        deadline = host.deadline(request)
        if deadline is not None and deadline <= time.monotonic():
            return NotServed(None, None)
        row: ApiRow | None = None
        try:
            header, body = decode_request_header(request.payload)
            row, version = host.rows.get(header.request_api_key), header.request_api_version
            if row is None or not row.min_version <= version <= row.max_version:
                return NotServed(
                    None, f"it is one of version {version} of API {header.request_api_key}, which is not served here"
                )
            schema, limit = by_key(row.key).request, host.limits[row.key]
            large = len(request.payload) > LARGE_BYTES
            if large:
                message = yield from decode_in_steps(schema, version, request.payload, body, limit)
            else:
                message, _ = decode(schema, version, request.payload, body, limit)
        except ProtocolError as error:
            return NotServed(row, str(error), malformed=True)
        holder, correlation_id = [message], header.correlation_id
        del message, header
        host.decoded(request)
        permits = host.permits_of(request.context.principal, request.context.peer, row.key)
        call = host.call(request, row, version, permits)
        response = yield from self._response(row, version, holder, call, permits)
        if response is None:
            return None
        response = yield from host.end(request, row, holder[0] if holder else None, call, response)
        return (
            yield from outcome_of(
                row, version, correlation_id, response, large or row.long_response or not host.short_responses
            )
        )

    def _response(self, row: ApiRow, version: int, holder: list[Any], call: Any, permits: Permits) -> Steps:
        """The response of the handler, which the guard may change, or the response that refuses the request."""
        host = self._host
        try:
            response = yield from host.before(row, holder[0], version)
            if response is not None:
                return response
            verdict = judge(row.key, Asked(holder[0], version, permits, host.topic_name, host.topic_exists))
            if isinstance(verdict, Generator):
                verdict = yield from verdict
            if isinstance(verdict, Refused):
                return verdict.response
            response = yield from host.handled(row, holder, call)
            if verdict is not None and response is not None:
                response = yield from merged(verdict.merge, response)
            return response
        except Exception as error:
            return (yield from host.failed(error, row, holder[0] if holder else None, version))


def outcome_of(row: ApiRow, version: int, correlation_id: int, response: Any, long: bool) -> Steps:
    """The outcome of a request, from its response. :param long: the response may be long, so it is encoded in steps."""
    if isinstance(response, EncodedResponse):
        return Outcome(row, version, _head(row, version, correlation_id) + response.body, (), False)
    codes = (yield from errors_in_steps(row.key, response)) if long else errors_of(row.key, response)
    of_request = bool(codes) and bool(getattr(response, "error_code", 0))
    if long:
        data = yield from encode_in_steps(_head(row, version, correlation_id), response, version)
    else:
        data = frame_response(row, version, correlation_id, response)
    return Outcome(row, version, data, codes, of_request)


def frame_response(row: ApiRow, version: int, correlation_id: int, response: Any) -> bytes:
    """An encoded response with its header, without its length."""
    return _head(row, version, correlation_id) + encode(response, version)


def _head(row: ApiRow, version: int, correlation_id: int) -> bytes:
    head = _CORRELATION.pack(correlation_id)
    return head + _NO_TAGS if response_header_version(row.key, version) == 1 else head
