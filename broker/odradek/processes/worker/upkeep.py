"""The periodic work of a worker: progress, idle connections, kept memory, removed files, refused producers, metrics.

A worker owns one `WorkerUpkeep` and uses it only in its loop.
"""

import asyncio
import logging
from collections.abc import Callable

from odradek._ext.api.fetch import FetchHandler
from odradek._ext.api.produce import ProduceHandler
from odradek._ext.net.data_loop import DataLoop
from odradek._ext.net.kept_memory import KeptMemory
from odradek._ext.net.late_senders import LateSenders
from odradek._ext.partition.append_files import sweep_append_files
from odradek._ext.protocol.arrays import free_waiting
from odradek._ext.shm import client_quotas
from odradek._ext.shm.metering import count_loop_delay, gauge
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.net.forward import ForwardClient
from odradek.processes import logs
from odradek.processes.metering import BusyTime
from odradek.shm.removed_files import RemovedFiles

log = logging.getLogger("odradek.requests")

TICK_S = 0.5
SWEEP_EVERY_TICKS = 10
REFUSALS_EVERY_TICKS = 120


class WorkerUpkeep:
    """Does the worker's periodic work, twice a second from the first `tick` on.

    :param kept_bytes: the memory that this worker may keep for idle connections.
    :param take_over_settings: applies the settings that changed at run time.
    :param report_closed: reports the connections that were closed to the acceptor.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shm: SharedMemory,
        data_loop: DataLoop,
        produce_handler: ProduceHandler,
        fetch_handler: FetchHandler,
        forward: ForwardClient,
        kept_bytes: int,
        take_over_settings: Callable[[], None],
        report_closed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._shm = shm
        self._data_loop = data_loop
        self._produce_handler = produce_handler
        self._fetch_handler = fetch_handler
        self._forward = forward
        self._take_over_settings = take_over_settings
        self._report_closed = report_closed
        self._kept_memory = KeptMemory(data_loop.connections, kept_bytes)
        self._removed_files = RemovedFiles(fetch_handler.sweep, sweep_append_files)
        self._late_senders = LateSenders(data_loop.connections)
        self._late = 0
        self._busy = BusyTime()
        self._ticks = self._next_refusal_tick = 0
        self._tick_due = 0.0

    def tick(self) -> None:
        """Report progress, do the periodic work, and set the timer of the next tick. A failure does not stop the ticks: without
        them the supervisor would kill the worker."""
        self._shm.beat()
        self._data_loop.tick()
        try:
            self._work()
        except Exception:
            log.exception("the worker's periodic work failed; retrying in %g s", TICK_S)
        finally:
            self._tick_due = self._loop.time() + TICK_S
            self._loop.call_at(self._tick_due, self.tick)

    def _work(self) -> None:
        self._ticks += 1
        self._take_over_settings()
        if self._ticks % SWEEP_EVERY_TICKS == 0:
            self._fetch_handler.sweep()
            sweep_append_files()
        self.release_removed_files()
        now_ms = int(self._loop.time() * 1000)
        self._data_loop.connections.sweep_idle(now_ms)
        self._data_loop.connections.sweep_unauthenticated(now_ms)
        self._shm.set_kept_bytes(self._kept_memory.look(now_ms))
        self._report_closed()
        logs.report_failures()
        self._report_refusals()
        self._report_full_table()
        self._count()
        free_waiting()

    def release_removed_files(self) -> None:
        """Close the descriptors of removed files, and the connections whose clients do not read a response that is sent from
        such a file."""
        if self._removed_files.look() or self._late:
            self._late = self._late_senders.look(int(self._loop.time() * 1000))
            self._report_closed()

    def _report_refusals(self) -> None:
        """Log the producers that were refused for lack of memory, at most once a minute."""
        if self._ticks < self._next_refusal_tick:
            return
        refusals = self._produce_handler.responses.take_refusals()
        if refusals is None:
            return
        self._next_refusal_tick = self._ticks + REFUSALS_EVERY_TICKS
        count, reason, connection_id, client_id = refusals
        connection = self._data_loop.connections.by_id.get(connection_id)
        log.warning(
            "refused %d batches of new idempotent producers, the last one from %s (client id %r): %s",
            count, "a closed connection" if connection is None else connection.peer, client_id, reason,
            extra={} if connection is None else connection.log_fields,
        )  # fmt: skip

    def _report_full_table(self) -> None:
        if client_quotas.first_overflow():
            log.warning(
                "the table of client quotas is full: more clients than it has room for sent requests within the windows of a "
                "rate. Clients without room share a bucket with others of their address; odradek_quota_overflows_total "
                "counts them"
            )

    def _count(self) -> None:
        if self._tick_due:
            count_loop_delay(max(0, int((self._loop.time() - self._tick_due) * 1e6)))
        self._busy.tick()
        gauge("parked_forwards", self._forward.waiting)
        self._data_loop.connections.count_connections()
