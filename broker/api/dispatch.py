"""Executes a worker's requests other than Produce and Fetch, and those that are forwarded: in its loop, or on a thread.

One a worker, in its loop. A request that cannot be read, or has more elements than its API allows, closes its connection with a
reason in the log; so does an exception of a handler, with a traceback. A handler may be a generator, which yields after
each step of its work: between two steps the loop, or the thread, serves others
(docs/decisions/0022-what-one-request-may-cost.md).
"""

import logging
import struct
from collections.abc import Callable, Generator, Sequence
from typing import Any

from broker._ext.decoder import decode
from broker._ext.encoder import encode
from broker._ext.messages import ProtocolError
from broker._ext.metering import count_request_error
from broker.api.answer_errors import errors_of
from broker.api.api_versions import supported
from broker.api.call import Call, WorkerView
from broker.api.stepwise import Stepwise
from broker.api.table import API_VERSIONS, BY_KEY, ApiRow, Where, handlers_of, limits_of
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
    :param off_loop: (step, done): calls `step()` on a thread until it returns False, and then in the loop `done(the
        exception that it raised, or None)`.
    :param slices: (step): calls `step()` in later turns of the loop until it returns False.
    :param settle: called after a response was completed outside of a turn of the loop.
    """

    def __init__(
        self,
        view: WorkerView,
        auto_create: Callable[..., None],
        off_loop: Callable[[Callable[[], bool], Callable[[BaseException | None], None]], None],
        slices: Callable[[Callable[[], bool]], None],
        settle: Callable[[], None],
    ) -> None:
        self._view = view
        self._auto_create = auto_create
        self._off_loop = off_loop
        self._slices = slices
        self._limits = limits_of(view.config)
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
            request, _ = decode(by_key(api_key).request, version, frame, body, self._limits[api_key])
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
        response = self._handlers[api_key](request, call)
        if isinstance(response, Generator):
            job = Stepwise(response, lambda: connection.fd < 0)
            if row.off_loop or job.step():
                self._run(job, row.off_loop, self._later(connection, row, version, correlation_id))
                return None
            response = job.result
        if response is None:
            return None
        if codes := errors_of(api_key, response):
            connection.failed(api_key, codes[0])
            _count_more(api_key, codes)
        return frame_response(row, version, correlation_id, response)

    def _run(self, job: Stepwise, off_loop: bool, answer: Callable[[Any], None]) -> None:
        """Do the steps of a job, on the thread or in later turns of the loop, and answer with its result."""
        if off_loop:
            self._off_loop(job.step, lambda error: answer(job.result if error is None else error))
            return

        def slice_of_loop() -> bool:
            try:
                more = job.step()
            except Exception as error:
                answer(error)
                return False
            if not more:
                answer(job.result)
            return more

        self._slices(slice_of_loop)

    def _later(self, connection: Any, row: ApiRow, version: int, correlation_id: int) -> Callable[[Any], None]:
        """Reserve the place of a response; the function is called once: with the response, with steps that return it, or
        with an exception.
        """
        pending = connection.reserve()

        def answer(response: Any) -> None:
            if pending.cancelled:
                return
            if isinstance(response, Generator):
                self._run(Stepwise(response, lambda: pending.cancelled), False, answer)
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
