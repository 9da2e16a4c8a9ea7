"""Executes a worker's requests other than Produce and Fetch, and those that are forwarded: here, or on an off-loop thread.

One a worker, in its loop. What a client sends wrong costs its connection, with a reason in the log; what a handler does wrong
costs the connection, too, with a traceback.
"""

import logging
import struct
from collections.abc import Callable, Sequence
from typing import Any

from broker._ext.decoder import decode
from broker._ext.encoder import encode
from broker._ext.messages import ProtocolError
from broker._ext.metering import count_request_error
from broker.api.answer_errors import errors_of
from broker.api.api_versions import supported
from broker.api.call import Call, WorkerView
from broker.api.table import API_VERSIONS, BY_KEY, ApiRow, Where, handlers_of
from broker.protocol.errors import ErrorCode
from broker.protocol.header import decode_request_header, response_header_version
from broker.protocol.registry import by_key

log = logging.getLogger("odradek.requests")

_CORRELATION = struct.Struct(">i")
_NO_TAGS = b"\0"


def frame_response(row: ApiRow, version: int, correlation_id: int, response: Any) -> bytes:
    """A response with its header, without its length."""
    head = _CORRELATION.pack(correlation_id)
    if response_header_version(row.key, version) == 1:
        head += _NO_TAGS
    return head + encode(response, version)


def _count_more(api_key: int, codes: Sequence[int]) -> None:
    """Those behind the first one, with which the request was counted as failed."""
    for code in codes[1:]:
        count_request_error(api_key, code)


class Dispatcher:
    """:param view: what handlers see.
    :param auto_create: asks the coordinator for topics, see `Call`.
    :param off_loop: (work, done): calls `work()` on a thread and then `done(result or exception)` in the loop.
    :param settle: called after a response was completed outside of a turn of the loop.
    """

    def __init__(
        self,
        view: WorkerView,
        auto_create: Callable[..., None],
        off_loop: Callable[[Callable[[], Any], Callable[[Any], None]], None],
        settle: Callable[[], None],
    ) -> None:
        self._view = view
        self._auto_create = auto_create
        self._off_loop = off_loop
        self._settle = settle
        self._handlers = handlers_of(Where.WORKER)
        self.unknown_requests = 0

    def __call__(
        self, connection: Any, api_key: int, version: int, correlation_id: int, client_id: bytes | None, frame: bytes
    ) -> bytes | bool | None:
        row = BY_KEY.get(api_key)
        if row is None or not row.min_version <= version <= row.max_version:
            if api_key == API_VERSIONS:
                connection.failed(api_key, ErrorCode.UNSUPPORTED_VERSION)
                return _CORRELATION.pack(correlation_id) + encode(supported(ErrorCode.UNSUPPORTED_VERSION), 0)
            self.unknown_requests += 1
            known = f"versions {row.min_version} to {row.max_version} are" if row else "no such API is"
            connection.close_reason = f"a request of API key {api_key}, version {version}: {known} served here"
            return False
        name = client_id.decode("utf-8", "replace") if client_id is not None else None
        try:
            _, body = decode_request_header(frame)
            request, _ = decode(by_key(api_key).request, version, frame, body)
        except ProtocolError as error:
            if api_key == API_VERSIONS:
                connection.failed(api_key, ErrorCode.INVALID_REQUEST)
                return _CORRELATION.pack(correlation_id) + encode(supported(ErrorCode.INVALID_REQUEST), version)
            connection.close_reason = f"a {row.name} request of version {version} cannot be read: {error}"
            return False
        call = Call(
            version=version,
            client_id=name,
            listener_index=connection.listener_index,
            connection=connection,
            view=self._view,
            auto_create=lambda names, then, *patience_s: self._auto_create(
                connection, client_id, names, then, *patience_s
            ),
            answer_later=lambda: self._later(connection, row, version, correlation_id),
        )
        handler = self._handlers[api_key]
        if row.off_loop:
            answer = self._later(connection, row, version, correlation_id)
            self._off_loop(lambda: handler(request, call), answer)
            return None
        response = handler(request, call)
        if response is None:
            return None
        if codes := errors_of(api_key, response):
            connection.failed(api_key, codes[0])
            _count_more(api_key, codes)
        return frame_response(row, version, correlation_id, response)

    def _later(self, connection: Any, row: ApiRow, version: int, correlation_id: int) -> Callable[[Any], None]:
        """Reserve the place of a response; the function is called with the response, or with an exception."""
        pending = connection.reserve()

        def answer(response: Any) -> None:
            if pending.cancelled:
                return
            try:
                if isinstance(response, BaseException):
                    raise response
                data = frame_response(row, version, correlation_id, response)
            except Exception as error:  # as for a handler in the loop: it costs its connection, never leaves it waiting
                log.error("a %s request of %s failed", row.name, connection.peer, exc_info=error)
                connection.data_loop.close(connection, f"a {row.name} request failed")
                return
            if codes := errors_of(row.key, response):
                pending.failed(codes[0])
                _count_more(row.key, codes)
            pending.complete((len(data).to_bytes(4, "big"), data))
            self._settle()

        return answer
