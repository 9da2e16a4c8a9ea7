"""The appends that a worker does not execute while it reads: on the append thread, or again after a lock was taken.

A worker owns one `DelayedAppends` and uses it only in its loop, except for the jobs on its two threads.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from odradek._ext.api.purgatory import Purgatory
from odradek._ext.shm.locks import Lane
from odradek.processes.worker.job_thread import JobThread

log = logging.getLogger("odradek.requests")

RETRY_S = 0.0005
QUICK_RETRIES = 3


class DelayedAppends:
    """Executes `DelayedProduce` requests; `offload` and `retry` are callables of `ProduceHandler`.

    :param purgatory: the worker's purgatory: appends complete requests that wait in it.
    :param settle: sends the responses that were completed.
    :param close_connection: (connection, reason): closes a client's connection.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        purgatory: Purgatory,
        settle: Callable[[], None],
        close_connection: Callable[[Any, str], None],
    ) -> None:
        self._loop = loop
        self._purgatory = purgatory
        self._settle = settle
        self._close_connection = close_connection
        self._retries: list[Any] = []
        self._appends = JobThread(loop, "appends", Lane.LANE_SECOND)
        self._large_batches = JobThread(loop, "large-batches")

    def offload(self, pending: Any) -> None:
        """Execute the steps of a request on the append thread, and those with large batches on a thread of their own."""
        self._appends(pending.step, lambda error: self._offloaded(pending, error))

    def _offloaded(self, pending: Any, error: BaseException | None) -> None:
        try:
            if error is not None:
                raise error
            if pending.large_next:
                self._large_batches(pending.open_large, lambda error: self._opened_large(pending, error))
            else:
                pending.worked()
        except Exception as failure:
            self.failed(pending, failure)
        finally:
            self._purgatory.serve()
        self._settle()

    def _opened_large(self, pending: Any, error: BaseException | None) -> None:
        if error is None:
            self.offload(pending)
        else:
            self._offloaded(pending, error)

    def failed(self, pending: Any, error: BaseException) -> None:
        """Close the connection, because it is unknown whether the records are in the log."""
        connection = pending.connection
        log.error(
            "a Produce request of %s failed; its connection is closed",
            connection.name, exc_info=error, extra=connection.log_fields,
        )  # fmt: skip
        if not pending.cancelled:
            self._close_connection(connection, "a Produce request failed, as logged above")

    def retry(self, pending: Any) -> None:
        """Retry an append whose slot was locked: the first times in the next turn, because most holders have released the
        lock by then, and after `QUICK_RETRIES` tries with a delay of `RETRY_S`."""
        if not self._retries:
            if pending.tries < QUICK_RETRIES:
                self._loop.call_soon(self.handle_retries)
            else:
                self._loop.call_later(RETRY_S, self.handle_retries)
        self._retries.append(pending)

    def handle_retries(self) -> None:
        """Retry the requests. Later requests of their connections wait for them, and are not executed if they fail."""
        retries, self._retries = self._retries, []
        for pending in retries:
            try:
                pending.again()
            except Exception as error:
                self.failed(pending, error)
        if retries:
            self._purgatory.serve()
            self._settle()

    def close(self) -> None:
        """Finish the jobs, and end the threads."""
        self._large_batches.close()
        self._appends.close()
