"""Requests that workers forward to the coordinator: decodes them, and lets tasks serve those that usually need none.

Each thread of the coordinator decodes; only the loop uses `AwaitedRequest`.
"""

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, Protocol

from odradek._ext.net.arrivals import Arrival
from odradek.api.row import ApiRow
from odradek.net.forward_frames import ForwardContext, ForwardReply, Status
from odradek.protocol import LARGE_BYTES, ProtocolError, decode, decode_in_steps
from odradek.protocol.registry import by_key
from odradek.protocol.schemas.header import decode_request_header
from odradek.stepwise import Stepwise


class ServedRequest(Protocol):
    """A request for code that answers it at once or later, without a task: an `Arrival`, or an `AwaitedRequest`."""

    @property
    def kind(self) -> int: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def context(self) -> ForwardContext: ...
    @property
    def api_key(self) -> int: ...
    @property
    def answered(self) -> bool: ...
    def answer(self, payload: bytes, metadata_version: int = 0, status: int = 0) -> None: ...
    def when_gone(self, callback: Callable[[], None]) -> None: ...


class AwaitedRequest:
    """A request that a task serves with code that otherwise answers requests without a task.

    A task serves it because an earlier request of its connection has an unfinished task (see `ForwardServer`).

    :ivar reply: the answer. If the task is cancelled, the answer is ignored.
    """

    def __init__(self, request: Arrival) -> None:
        self.kind = request.kind
        self.payload = request.payload
        self.context: ForwardContext = request.context
        self.api_key = request.api_key
        self.reply: asyncio.Future[ForwardReply] = asyncio.get_running_loop().create_future()

    @property
    def answered(self) -> bool:
        """Whether the request was answered, or its task was cancelled."""
        return self.reply.done()

    def answer(self, payload: bytes, metadata_version: int = 0, status: int = 0) -> None:
        """Answer the request, unless it was answered before."""
        if not self.reply.done():
            self.reply.set_result(ForwardReply(Status(status), metadata_version, payload))

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Call `callback` if the client's connection ends before the request is answered: then the task is cancelled."""
        self.reply.add_done_callback(lambda reply: callback() if reply.cancelled() else None)

    def park(self) -> None:
        """Release `payload`."""
        self.payload = b""


UNSUPPORTED = ForwardReply(Status.UNSUPPORTED, 0)


class Forwarded(NamedTuple):
    """A decoded request."""

    row: ApiRow
    version: int
    correlation_id: int
    message: Any


def decode_forwarded(
    request: Arrival | ServedRequest, rows: Mapping[int, ApiRow], limits: Mapping[int, int], log: logging.Logger
) -> Forwarded | ForwardReply:
    """Decode a request; or return the reply that refuses it, whose reason is logged. Other threads are served while a large one
    is decoded.

    :param rows: the APIs that the caller executes, by key. :param limits: see `limits_of`.
    """
    decoded: Forwarded | ForwardReply = Stepwise(decode_forwarded_in_steps(request, rows, limits, log)).finish()
    return decoded


def decode_at_once(
    request: Arrival | ServedRequest, rows: Mapping[int, ApiRow], limits: Mapping[int, int], log: logging.Logger
) -> Forwarded | ForwardReply:
    """As `decode_forwarded`, for a request that is not large."""
    try:
        row, header, body = _head(request, rows)
        if row is None:
            return UNSUPPORTED
        version = header.request_api_version
        message, _ = decode(by_key(row.key).request, version, request.payload, body, limits[row.key])
    except ProtocolError as error:
        return _refused(request, error, log)
    return Forwarded(row, version, header.correlation_id, message)


def decode_forwarded_in_steps(
    request: Arrival | ServedRequest, rows: Mapping[int, ApiRow], limits: Mapping[int, int], log: logging.Logger
) -> Generator[None, None, Forwarded | ForwardReply]:
    """As `decode_forwarded`, in steps if the request is large."""
    if not is_large(request):
        return decode_at_once(request, rows, limits, log)
    try:
        row, header, body = _head(request, rows)
        if row is None:
            return UNSUPPORTED
        version = header.request_api_version
        message = yield from decode_in_steps(by_key(row.key).request, version, request.payload, body, limits[row.key])
    except ProtocolError as error:
        return _refused(request, error, log)
    return Forwarded(row, version, header.correlation_id, message)


def is_large(request: Arrival | ServedRequest) -> bool:
    """Whether a request is decoded, executed and answered in steps."""
    return len(request.payload) > LARGE_BYTES


def _head(request: Arrival | ServedRequest, rows: Mapping[int, ApiRow]) -> tuple[ApiRow | None, Any, int]:
    """The API of a request (None if the caller does not execute this version of it), its header, and where its body begins.
    Raises ProtocolError."""
    header, body = decode_request_header(request.payload)
    row = rows.get(header.request_api_key)
    if row is not None and not row.min_version <= header.request_api_version <= row.max_version:
        row = None
    return row, header, body


def _refused(request: Arrival | ServedRequest, error: ProtocolError, log: logging.Logger) -> ForwardReply:
    log.warning(
        "cannot decode a request of %s: %s; its connection is closed",
        request.context.client, error, extra=request.context.log_fields,
    )  # fmt: skip
    return ForwardReply(Status.MALFORMED, 0)
