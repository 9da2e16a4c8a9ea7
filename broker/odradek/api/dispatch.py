"""Executes the requests of a worker that are neither native (Produce and Fetch) nor forwarded: in its loop, or on a thread.

Each worker has one dispatcher, in its loop. A request that cannot be decoded, or has more elements than its API allows, closes
its connection, and the reason is logged. An exception of a handler does the same, with a traceback. The first step of a request
is executed at once; if there are more, the loop, or the thread, serves other requests between two of them
(docs/decisions/0022-what-one-request-may-cost.md).
"""

import logging
import struct
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from odradek._ext.net.connection import with_throttle_time
from odradek._ext.shm import brokers as broker_table
from odradek._ext.shm.metering import count_request_errors
from odradek.api.api import Place
from odradek.api.call import Call, WorkerView
from odradek.api.cluster.api_versions import RepeatedRequests, supported
from odradek.api.permits import Permits, PermitsOf, unrestricted
from odradek.api.pipeline import Host, NotServed, Outcome, Pipeline, executed
from odradek.api.row import ApiRow
from odradek.api.table import API_VERSIONS, served_rows
from odradek.protocol import encode
from odradek.protocol.errors import ErrorCode
from odradek.stepwise import OFF_LOOP, Steps, Stepwise

log = logging.getLogger("odradek.requests")

_CORRELATION = struct.Struct(">i")
Executed = Outcome | NotServed


class _Request:
    """A request of a worker's client. :ivar context: its connection. :ivar payload: until it is decoded."""

    __slots__ = ("client_id", "context", "payload")

    def __init__(self, payload: bytes, context: Any, client_id: bytes | None) -> None:
        self.payload = payload
        self.context = context
        self.client_id = client_id


class _WorkerHost(Host):
    """See `Host`. :param auto_create: see `Dispatcher`."""

    def __init__(self, view: WorkerView, auto_create: Callable[..., None], permits_of: PermitsOf) -> None:
        super().__init__(view.config, permits_of, Place.WORKER, Place.WORKER_THREAD)
        self._view = view
        self._auto_create = auto_create

    def decoded(self, request: _Request) -> None:
        """See `Host`. A request may wait while others of many connections wait, too."""
        request.payload = b""

    def call(self, request: _Request, row: ApiRow, version: int, permits: Permits) -> Call:
        """See `Host`."""
        connection, client_id = request.context, request.client_id
        return Call(
            version=version,
            client_id=None if client_id is None else client_id.decode("utf-8", "replace"),
            listener_index=connection.listener_index,
            connection=connection,
            view=self._view,
            auto_create=partial(self._auto_create, connection, client_id),
            permits=permits,
        )

    def topic_name(self, topic_id: bytes) -> str | None:
        """See `Host`."""
        topic = self._view.topics.by_id.get(topic_id)
        return None if topic is None else str(topic.name)

    def topic_exists(self, name: str) -> bool:
        """See `Host`."""
        topic = self._view.topics.get(name)
        return topic is not None and bool(topic.is_published())

    def handled(self, row: ApiRow, holder: list[Any], call: Any) -> Steps:
        """See `Host`. The rights of clients are used in the loop alone; what follows may be done by the thread."""
        response = self.handlers[row.key](holder[0], call)
        if not isinstance(response, Generator):
            return response
        if row.off_loop:
            yield OFF_LOOP
        return (yield from executed(response))


class Dispatcher:
    """See the module.

    :param view: the worker's view of the broker, for handlers.
    :param auto_create: asks the coordinator to create topics, see `Call`; its first arguments are connection and client id.
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
        self._off_loop = off_loop
        self._slices = slices
        self._settle = settle
        self._clustered = view.config.clustered
        self._rows = served_rows(self._clustered)
        self._repeated = RepeatedRequests(view.config)
        self._pipeline = Pipeline(_WorkerHost(view, auto_create, permits_of))
        self.unknown_requests = 0

    def __call__(
        self, connection: Any, api_key: int, version: int, correlation_id: int, client_id: bytes | None, frame: bytes
    ) -> bytes | bool | None:
        row = self._rows.get(api_key)
        if row is None or not row.min_version <= version <= row.max_version:
            if api_key == API_VERSIONS:
                return self._versions(connection, correlation_id, ErrorCode.UNSUPPORTED_VERSION, 0)
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
        if api_key == API_VERSIONS and (response := self._repeated.response(connection, frame)) is not None:
            return response
        job = Stepwise(self._pipeline.steps(_Request(frame, connection, client_id)), lambda: connection.fd < 0)
        if job.step():
            pending = connection.reserve()
            job.cancelled = lambda: bool(pending.cancelled)
            self._go_on(job, row, pending)
            return None
        outcome: Executed | None = job.result
        if outcome is None:  # the connection is closed
            return None
        if isinstance(outcome, NotServed):
            if api_key == API_VERSIONS:
                return self._versions(connection, correlation_id, ErrorCode.INVALID_REQUEST, version)
            connection.close_reason = _unreadable(row, version, outcome)
            return False
        if outcome.errors:
            connection.failed(api_key, outcome.errors[0])
            count_request_errors(api_key, outcome.errors[1:])
        elif api_key == API_VERSIONS:
            self._repeated.keep(connection, version, frame, outcome.data)
        return bytes(outcome.data)

    def _versions(self, connection: Any, correlation_id: int, code: ErrorCode, version: int) -> bytes:
        """The response to an ApiVersions request that cannot be read: clients need it to choose another version."""
        connection.failed(API_VERSIONS, code)
        return _CORRELATION.pack(correlation_id) + encode(supported(code, clustered=self._clustered), version)

    def _go_on(self, job: Stepwise, row: ApiRow, pending: Any) -> None:
        """Execute the other steps of a request when it has what it waits for, in later turns of the loop or on the thread, and
        send the response in the place `pending`."""
        if job.waits is not None:
            job.waits.then(lambda: self._at_once(job, row, pending))
        elif job.off_loop:

            def done(error: BaseException | None) -> None:
                self._complete(pending, row, job.result if error is None else error)

            self._off_loop(_timed(job.step, pending), done)
        else:
            self._slices(lambda: self._step(job, row, pending))

    def _at_once(self, job: Stepwise, row: ApiRow, pending: Any) -> None:
        if self._step(job, row, pending):
            self._slices(lambda: self._step(job, row, pending))

    def _step(self, job: Stepwise, row: ApiRow, pending: Any) -> bool:
        """Execute a step in the loop; the last one sends the response. Returns whether the next one is to be executed in a
        later turn."""
        try:
            more = _timed(job.step, pending)()
        except Exception as error:
            self._complete(pending, row, error)
            return False
        if not more:
            self._complete(pending, row, job.result)
        elif job.waits is not None or job.off_loop:
            self._go_on(job, row, pending)
        else:
            return True
        return False

    def _complete(self, pending: Any, row: ApiRow, outcome: Executed | BaseException | None) -> None:
        """Send a response. An exception closes the connection, like that of a handler in the loop."""
        if pending.cancelled or outcome is None:
            return
        connection = pending.connection
        if isinstance(outcome, NotServed):
            reason = _unreadable(row, pending.version, outcome)
            log.warning("closing %s: %s", connection.name, reason, extra=connection.log_fields)
            connection.close(reason)
            return
        if isinstance(outcome, BaseException):
            log.error(
                "a %s request of %s failed; closing its connection",
                row.name, connection.name, exc_info=outcome, extra=connection.log_fields,
            )  # fmt: skip
            connection.close(f"a {row.name} request failed")
            return
        data, wait_ms = outcome.data, pending.charge()
        if wait_ms:
            data = with_throttle_time(bytes(data), row.key, pending.version, wait_ms)
        if outcome.errors:
            pending.failed(outcome.errors[0])
            count_request_errors(row.key, outcome.errors[1:])
        pending.complete((len(data).to_bytes(4, "big"), data))
        self._settle()


def _unreadable(row: ApiRow, version: int, outcome: NotServed) -> str:
    return f"a {row.name} request of version {version} cannot be read: {outcome.reason}"


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
