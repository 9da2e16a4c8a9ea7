"""Executes the requests of a worker that are neither native (Produce and Fetch) nor forwarded: in its loop, or on a thread.

Each worker has one dispatcher, in its loop. A request that cannot be decoded, or has more elements than its API allows,
closes its connection, and the reason is logged. An exception of a handler does the same, with a traceback. A handler may be a
generator that yields after each step of its work: between two steps the loop, or the thread, serves other requests
(docs/decisions/0022-what-one-request-may-cost.md).
"""

import logging
import struct
import time
from collections.abc import Callable, Generator
from typing import Any

from odradek._ext.net.connection import with_throttle_time
from odradek._ext.shm import brokers as broker_table
from odradek._ext.shm.metering import count_request_errors
from odradek.api.answer_errors import errors_in_steps, errors_of
from odradek.api.api import Place
from odradek.api.call import Call, EncodedResponse, WorkerView
from odradek.api.cluster.api_versions import supported
from odradek.api.guarding import Asked, Merge, Refused, Verdict, judge, merged
from odradek.api.permits import Permits, PermitsOf, unrestricted
from odradek.api.row import ApiRow
from odradek.api.table import API_VERSIONS, handlers_of, in_cluster, limits_of, served_rows
from odradek.protocol import LARGE_BYTES, ProtocolError, decode, decode_in_steps, encode, encode_in_steps
from odradek.protocol.errors import ErrorCode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas.header import decode_request_header, response_header_version
from odradek.stepwise import Steps, Stepwise

log = logging.getLogger("odradek.requests")

_CORRELATION = struct.Struct(">i")
_NO_TAGS = b"\0"


def frame_response(row: ApiRow, version: int, correlation_id: int, response: Any) -> bytes:
    """An encoded response with its header, without its length. :param response: a message, or an EncodedResponse."""
    head = _response_head(row, version, correlation_id)
    return head + (response.body if isinstance(response, EncodedResponse) else encode(response, version))


def frame_in_steps(row: ApiRow, version: int, correlation_id: int, response: Any) -> Generator[None, None, bytes]:
    """As `frame_response`, in steps: a response may have as many elements as its request."""
    head = _response_head(row, version, correlation_id)
    if isinstance(response, EncodedResponse):
        return head + response.body
    framed: bytes = yield from encode_in_steps(head, response, version)
    return framed


def _response_head(row: ApiRow, version: int, correlation_id: int) -> bytes:
    head = _CORRELATION.pack(correlation_id)
    return head + _NO_TAGS if response_header_version(row.key, version) == 1 else head


class Dispatcher:
    """Decodes requests, calls their handlers, and encodes the responses.

    :param view: the worker's view of the broker, for handlers.
    :param auto_create: asks the coordinator to create topics, see `Call`.
    :param off_loop: (step, done): calls `step()` on a thread until it returns False, and then `done(exception or None)` in
        the loop.
    :param slices: (step): calls `step()` in later turns of the loop until it returns False.
    :param settle: called after a response was completed outside of a turn of the data loop.
    :param permits_of: see `PermitsOf`.
    """

    def __init__(
        self,
        view: WorkerView,
        auto_create: Callable[..., None],
        off_loop: Callable[[Callable[[], bool], Callable[[BaseException | None], None]], None],
        slices: Callable[[Callable[[], bool]], None],
        settle: Callable[[], None],
        permits_of: PermitsOf = unrestricted,
    ) -> None:
        self._view = view
        self._permits_of = permits_of
        self._auto_create = auto_create
        self._off_loop = off_loop
        self._slices = slices
        self._limits = limits_of(view.config)
        self._clustered = in_cluster(view.config)
        self._rows = served_rows(self._clustered)
        self._settle = settle
        self._handlers = handlers_of(Place.WORKER, Place.WORKER_THREAD)
        self.unknown_requests = 0

    def __call__(
        self, connection: Any, api_key: int, version: int, correlation_id: int, client_id: bytes | None, frame: bytes
    ) -> bytes | bool | None:
        row = self._rows.get(api_key)
        if row is None or not row.min_version <= version <= row.max_version:
            if api_key == API_VERSIONS:
                connection.failed(api_key, ErrorCode.UNSUPPORTED_VERSION)
                return _CORRELATION.pack(correlation_id) + encode(
                    supported(ErrorCode.UNSUPPORTED_VERSION, clustered=self._clustered), 0
                )
            self.unknown_requests += 1
            known = f"supports versions {row.min_version} to {row.max_version}" if row else "does not support this API"
            connection.close_reason = f"a request of API key {api_key}, version {version}: this broker {known}"
            return False
        if self._clustered and row.needs_published and not broker_table.published():
            # So the client asks another broker. A response without brokers makes librdkafka 2.16 forget all brokers: it does
            # not connect any more. A response without a topic makes it fail all records that wait for it.
            connection.close_reason = (
                f"a {row.name} request before the controller sent the brokers and partitions of the cluster"
            )
            return False
        name = client_id.decode("utf-8", "replace") if client_id is not None else None
        permits = self._permits_of(connection.principal, connection.peer, api_key)
        large = len(frame) > LARGE_BYTES and row.per_partition
        request: Any = None
        verdict: Any = None
        reading: Stepwise | None = None
        try:
            _, body = decode_request_header(frame)
            if large:
                reading = Stepwise(self._read(row, version, frame, body, permits))
            else:
                request, _ = decode(by_key(api_key).request, version, frame, body, self._limits[api_key])
        except ProtocolError as error:
            if api_key == API_VERSIONS:
                connection.failed(api_key, ErrorCode.INVALID_REQUEST)
                return _CORRELATION.pack(correlation_id) + encode(
                    supported(ErrorCode.INVALID_REQUEST, clustered=self._clustered), version
                )
            connection.close_reason = _unreadable(row, version, error)
            return False
        if not large:
            verdict = judge(api_key, Asked(request, version, permits, self._topic_name, self._topic_exists))
        if isinstance(verdict, Generator):
            reading, verdict = Stepwise(_with_verdict(request, verdict)), None
            if not reading.step():
                (_, verdict), reading = reading.result, None
        merge = None if verdict is None or isinstance(verdict, Refused) else verdict.merge
        call = Call(
            version=version,
            client_id=name,
            listener_index=connection.listener_index,
            connection=connection,
            view=self._view,
            auto_create=lambda names, then, *timeout_s: self._auto_create(
                connection, client_id, names, then, *timeout_s
            ),
            answer_later=lambda: self._later(connection, row, version, correlation_id, merge),
            permits=permits,
        )
        if reading is not None:
            self._read_in_slices(reading, row, call, correlation_id)
            return None
        response = verdict.response if isinstance(verdict, Refused) else self._handlers[api_key](request, call)
        if merge is not None and response is not None:
            response = _merged(response, merge)
        if response is None:
            return None
        if isinstance(response, Generator):
            job = Stepwise(_answered(response, row, version, correlation_id), lambda: connection.fd < 0)
            if row.off_loop or job.step():
                self._run(job, row, connection.reserve())
                return None
            data, codes = job.result
        else:
            data = frame_response(row, version, correlation_id, response)
            codes = [] if isinstance(response, EncodedResponse) else errors_of(api_key, response)
        if codes:
            connection.failed(api_key, codes[0])
            count_request_errors(api_key, codes[1:])
        return bytes(data)

    def _read(self, row: ApiRow, version: int, frame: bytes, body: int, permits: Permits) -> Steps:
        """Decode a request, and let its guard judge it: (the request, the verdict). Raises ProtocolError."""
        request = yield from decode_in_steps(by_key(row.key).request, version, frame, body, self._limits[row.key])
        verdict = judge(row.key, Asked(request, version, permits, self._topic_name, self._topic_exists))
        return request, ((yield from verdict) if isinstance(verdict, Generator) else verdict)

    def _read_in_slices(self, reading: Stepwise, row: ApiRow, call: Call, correlation_id: int) -> None:
        """Decode and judge a request in later turns of the loop, whose thread alone uses the rights of clients. Then execute it
        in steps, or by a handler that answers later.

        :param reading: returns (the request, the verdict of its guard).
        """
        pending = call.connection.reserve()
        step = _timed(reading.step, pending)

        def slice_of_loop() -> bool:
            if pending.cancelled:  # the connection is closed: nothing is executed
                return False
            try:
                if step():
                    return True
                request, verdict = reading.result
                steps = self._judged(verdict, row, request, call, pending, correlation_id)
                if steps is None:  # answered later
                    return False
                job = Stepwise(_answered(steps, row, call.version, correlation_id), lambda: pending.cancelled)
            except ProtocolError as error:
                connection, reason = pending.connection, _unreadable(row, call.version, error)
                log.warning("closing %s: %s", connection.name, reason, extra=connection.log_fields)
                connection.data_loop.close(connection, reason)
            except Exception as error:
                self._complete(pending, row, error)
            else:
                self._run(job, row, pending)
            return False

        self._slices(slice_of_loop)

    def _judged(
        self, verdict: Verdict, row: ApiRow, request: Any, call: Call, pending: Any, correlation_id: int
    ) -> Steps | None:
        """The steps of a request after its guard's verdict; None if the handler answers later, in the place `pending`."""
        if isinstance(verdict, Refused):
            return _at_once(verdict.response)
        merge = None if verdict is None else verdict.merge
        call.answer_later = lambda: self._answer_at(pending, row, call.version, correlation_id, merge)
        response = self._handlers[row.key](request, call)
        if response is None:
            return None
        if merge is not None:
            response = _merged(response, merge)
        return response if isinstance(response, Generator) else _at_once(response)

    def _run(self, job: Stepwise, row: ApiRow, pending: Any) -> None:
        """Execute the steps of a job that makes a response, on the thread or in later turns of the loop, and send the
        response in the place `pending`."""
        if row.off_loop:

            def done(error: BaseException | None) -> None:
                self._complete(pending, row, job.result if error is None else error)

            self._off_loop(_timed(job.step, pending), done)
        else:
            self._slices(self._slice_of(job, row, pending))

    def _slice_of(self, job: Stepwise, row: ApiRow, pending: Any) -> Callable[[], bool]:
        """The steps of a job for turns of the loop; the last one sends the response."""
        step = _timed(job.step, pending)

        def slice_of_loop() -> bool:
            try:
                if step():
                    return True
            except Exception as error:
                self._complete(pending, row, error)
            else:
                self._complete(pending, row, job.result)
            return False

        return slice_of_loop

    def _topic_name(self, topic_id: bytes) -> str | None:
        topic = self._view.topics.by_id.get(topic_id)
        return None if topic is None else str(topic.name)

    def _topic_exists(self, name: str) -> bool:
        topic = self._view.topics.get(name)
        return topic is not None and bool(topic.is_published())

    def _later(
        self, connection: Any, row: ApiRow, version: int, correlation_id: int, merge: Merge | None
    ) -> Callable[[Any], None]:
        """Reserve the place of a response. The returned function must be called once, with the response or with steps that
        return it."""
        return self._answer_at(connection.reserve(), row, version, correlation_id, merge)

    def _answer_at(
        self, pending: Any, row: ApiRow, version: int, correlation_id: int, merge: Merge | None
    ) -> Callable[[Any], None]:
        """See `_later`. :param pending: the place of the response."""

        def answer(response: Any) -> None:
            if merge is not None:
                response = _merged(response, merge)
            steps = response if isinstance(response, Generator) else _at_once(response)
            job = Stepwise(_answered(steps, row, version, correlation_id), lambda: pending.cancelled)
            slice_of_loop = self._slice_of(job, row, pending)
            if slice_of_loop():
                self._slices(slice_of_loop)

        return answer

    def _complete(self, pending: Any, row: ApiRow, outcome: tuple[bytes, list[int]] | BaseException) -> None:
        """Send a response from (bytes, error codes). An exception closes the connection, like that of a handler in the loop."""
        if pending.cancelled:
            return
        connection = pending.connection
        if isinstance(outcome, BaseException):
            log.error(
                "a %s request of %s failed; closing its connection",
                row.name, connection.name, exc_info=outcome, extra=connection.log_fields,
            )  # fmt: skip
            connection.data_loop.close(connection, f"a {row.name} request failed")
            return
        data, codes = outcome
        wait_ms = pending.charge()
        if wait_ms:
            data = with_throttle_time(bytes(data), row.key, pending.version, wait_ms)
        if codes:
            pending.failed(codes[0])
            count_request_errors(row.key, codes[1:])
        pending.complete((len(data).to_bytes(4, "big"), data))
        self._settle()


def _answered(steps: Steps, row: ApiRow, version: int, correlation_id: int) -> Steps:
    """Make an encoded response: (its bytes, its error codes); in one step if the response takes only one."""
    long = False
    while True:
        try:
            next(steps)
        except StopIteration as end:
            response = end.value
            break
        long = True
        yield
    if long:
        codes = yield from errors_in_steps(row.key, response)
        yield
    else:
        codes = errors_of(row.key, response)
    return (yield from frame_in_steps(row, version, correlation_id, response)), codes


def _with_verdict(request: Any, guard: Steps) -> Steps:
    return request, (yield from guard)


def _unreadable(row: ApiRow, version: int, error: ProtocolError) -> str:
    return f"a {row.name} request of version {version} cannot be read: {error}"


def _timed(step: Callable[[], bool], pending: Any) -> Callable[[], bool]:
    """A step whose time counts for the quota of the client, if it has one for request time."""
    if not pending.timed:
        return step

    def timed_step() -> bool:
        began = time.perf_counter_ns()
        try:
            return step()
        finally:
            pending.spent((time.perf_counter_ns() - began) // 1000)

    return timed_step


def _merged(response: Any, merge: Merge) -> Any:
    """The response, or the steps that return it, after a guard's `merge`."""
    return _merge_at_end(response, merge) if isinstance(response, Generator) else merge(response)


def _merge_at_end(steps: Steps, merge: Merge) -> Steps:
    return (yield from merged(merge, (yield from steps)))


def _at_once(response: Any) -> Steps:
    """Steps that return an existing response."""
    return response
    yield
