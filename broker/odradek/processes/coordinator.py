"""The coordinator: the broker's membership in the cluster, the controller if elected, the group coordinator, and the admin
APIs.

What it does: opens the metadata store, begins or resumes the broker's session, registers the broker, becomes controller,
makes the slots agree with the store, and then executes the requests that workers forward. One controller thread executes
them; only this thread uses the store and writes the partition table. Requests with many steps take turns, one step at a time.
The event loop only moves frames and serves groups, and never waits for a disk.

What it must not do: serve clients directly, or take part in Produce and Fetch.

How it ends: on SIGTERM, after the requests under way are answered.

What its death causes: Produce and Fetch are not disturbed. Forwarded requests that were not sent yet wait for its successor;
requests that were already sent get a retriable error. The successor takes its whole state from the store and the slots.
"""

import asyncio
import errno
import logging
import signal
import sqlite3
import time
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import uvloop

import odradek._ext.partition.slot_upkeep as slot_upkeep
from odradek._ext.net.arrivals import Arrival
from odradek._ext.partition.append_files import sweep_append_files
from odradek._ext.shm.layout import ProcessState
from odradek._ext.shm.locks import Lane, enter_lane
from odradek._ext.shm.metering import count_loop_delay
from odradek._ext.storage.log_dirs import note_error
from odradek.api.coordinator_call import CoordinatorCall, CoordinatorView
from odradek.api.dispatch import frame_response
from odradek.api.group_call import OffsetTree
from odradek.api.not_controller import refusal
from odradek.api.stepwise import Steps, Stepwise
from odradek.api.table import Where, handlers_of, in_cluster, limits_of, served_rows
from odradek.clock import now_ms
from odradek.controller.broker_settings import BrokerSettings
from odradek.controller.controller import Controller, NotController, Outcome
from odradek.controller.partitions import LocalPartitions
from odradek.controller.producer_ids import ProducerIds
from odradek.metadata import group_offsets, sqlite
from odradek.metadata.cluster import BrokerIdTaken, WrongCluster, ensure_cluster_id, register_broker
from odradek.metadata.group_offsets import Place
from odradek.metadata.offset_sweep import OffsetSweep
from odradek.metadata.sqlite import SqliteStore
from odradek.metadata.store import Session, StoreError
from odradek.metadata.znodes import BrokerRegistration
from odradek.net.forward_frames import (
    ForwardReply,
    Kind,
    MalformedFrame,
    Status,
    decode_names,
    encode_auto_created,
)
from odradek.net.forward_server import ForwardServer
from odradek.processes import logs
from odradek.processes.context import ProcessContext
from odradek.processes.group_service import GroupService
from odradek.processes.metering import BusyTime, UncountedErrors, count_errors_of_response, uncounted_errors
from odradek.processes.turns import Turns
from odradek.protocol import ProtocolError, decode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas.header import decode_request_header
from odradek.shm.partition_table import PartitionTable
from odradek.shm.removed_files import RemovedFiles

log = logging.getLogger("odradek.controller")

TICK_S = 0.5
STOP_LIMIT_S = 10.0
SWEEP_RETRY_S = 60.0
TOPICS_PER_STEP = 50
"""The number of topics that one step of an automatic creation creates."""


def session_of(boot_id: int) -> Session:
    """The session of a broker from its start to its end; all coordinators of this start use it."""
    return Session(boot_id or 1, boot_id.to_bytes(8, "big"))


class ControllerService:
    """The metadata store and everything that uses it. The controller thread owns it: unless noted, all methods run there."""

    def __init__(self, context: ProcessContext) -> None:
        self._context = context
        self._clustered = in_cluster(context.config)
        self._rows = served_rows(self._clustered)
        self._handlers = handlers_of(Where.COORDINATOR, Where.CONTROLLER, clustered=self._clustered)
        self._limits = limits_of(context.config)
        self._store: SqliteStore | None = None
        self._view: CoordinatorView | None = None
        self._sweep: OffsetSweep | None = None
        self._swept = 0  # the number of deleted topics when the last pass of the sweep was requested
        self._sweep_after = 0.0

    def open(self) -> None:
        """Join the cluster and become controller.

        Raises StoreError, WrongCluster, BrokerIdTaken, NotController.
        """
        config, shm = self._context.config, self._context.shm
        store = self._store = SqliteStore(Path(self._context.log_dirs[0]) / sqlite.FILE_NAME, keeps_room=True)
        store.begin_session(session_of(shm.boot_id))
        store.expire_other_sessions()
        ensure_cluster_id(store, shm.cluster_id or None)
        rack = config["broker.rack"]
        registration = BrokerRegistration(list(self._context.advertised), None if rack is None else str(rack), now_ms())
        register_broker(store, config.node_id, registration)
        table = PartitionTable(shm, self._context.log_dirs)
        partitions = LocalPartitions(table, config, config.node_id, lambda index: not shm.log_dir_offline(index))
        controller = Controller(store, partitions, config, config.node_id)
        settings = BrokerSettings(store, controller, config, self._context.running, shm)
        settings.load()
        controller.become_controller()
        self._sweep = OffsetSweep(store)
        self._view = CoordinatorView(config, store, controller, ProducerIds(store, config.node_id), table, settings)

    def execute(
        self, request: Arrival, report_errors: Callable[[UncountedErrors | None], None]
    ) -> Generator[None, None, ForwardReply]:
        """Execute one request of a worker and return the encoded response. Works in steps, between which other requests have
        their turn. The handler's exceptions are raised.

        :param report_errors: called with the errors of the response that the loop must count in this process.
        """
        if request.deadline <= time.monotonic():
            return ForwardReply(Status.FAILED, 0)  # no client waits any more, so the request is not executed
        if request.kind == Kind.AUTO_CREATE:
            return (yield from self._auto_create(request.payload))
        assert self._view is not None
        try:
            header, body = decode_request_header(request.payload)
            row = self._rows.get(header.request_api_key)
            if row is None or row.where not in (Where.COORDINATOR, Where.CONTROLLER):
                return ForwardReply(Status.UNSUPPORTED, 0)
            version = header.request_api_version
            if not row.min_version <= version <= row.max_version:
                return ForwardReply(Status.UNSUPPORTED, 0)
            message, _ = decode(by_key(row.key).request, version, request.payload, body, self._limits[row.key])
        except ProtocolError as error:
            log.warning(
                "cannot decode a request of %s: %s; its connection is closed",
                request.context.client, error, extra=request.context.log_fields,
            )  # fmt: skip
            return ForwardReply(Status.MALFORMED, 0)
        call = CoordinatorCall(
            version=version,
            client_id=request.context.client_id,
            peer=request.context.peer,
            principal=request.context.principal,
            listener_index=request.context.listener,
            view=self._view,
        )
        try:
            if row.where is Where.CONTROLLER and not self._view.is_controller():
                response = refusal(row.key, version, message)
            else:
                response = self._handlers[row.key](message, call)
            if isinstance(response, Generator):
                response = yield from response
        except StoreError as error:
            self._note_store_error(error)
            raise
        report_errors((yield from uncounted_errors(row.key, response)))
        payload = frame_response(row, version, header.correlation_id, response)
        return ForwardReply(Status.OK, self._view.controller.metadata_version, payload)

    def _note_store_error(self, error: StoreError) -> None:
        """Report a failure of the store's file as a failure of the log directory that contains it."""
        cause = error.__cause__
        if isinstance(cause, OSError):
            note_error(0, cause.errno or errno.EIO)
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF if isinstance(cause, sqlite3.Error) else 0
        if code == sqlite3.SQLITE_FULL:
            note_error(0, errno.ENOSPC)
        elif code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY):
            note_error(0, errno.EIO)
        log.error("the metadata store failed: %s", error)

    def _auto_create(self, payload: bytes) -> Generator[None, None, ForwardReply]:
        assert self._view is not None
        try:
            names = decode_names(payload)
        except MalformedFrame as error:
            log.error("cannot decode a worker's request to create topics: %s", error)
            return ForwardReply(Status.MALFORMED, 0)
        outcomes: list[Outcome] = []
        for first in range(0, len(names), TOPICS_PER_STEP):
            if first:
                yield
            try:
                outcomes += self._view.controller.auto_create(names[first : first + TOPICS_PER_STEP])
            except StoreError as error:
                self._note_store_error(error)
                raise
        payload = encode_auto_created([(outcome.name, int(outcome.code), outcome.message) for outcome in outcomes])
        return ForwardReply(Status.OK, self._view.controller.metadata_version, payload)

    @property
    def is_open(self) -> bool:
        """Whether the topics of the store are known."""
        return self._view is not None

    def topic_names(self) -> frozenset[str] | None:
        """The names of the topics in the store, including those without a slot; None before `open`. May be called from any
        thread, because it only copies the keys of a dict."""
        return None if self._view is None else frozenset(self._view.controller.image.topics)

    def read_offsets(self, group_id: str, places: list[Place]) -> Generator[None, None, dict[Place, int]]:
        """Read offsets of a group from the metadata tree (OffsetFetch version 0), in steps."""
        assert self._store is not None
        return (yield from group_offsets.read_in_steps(self._store, group_id, places))

    def write_offsets(self, group_id: str, offsets: dict[Place, int]) -> Generator[None, None, set[str]]:
        """Store offsets of a group in the metadata tree (OffsetCommit version 0), in steps. Returns the topics that do not
        exist any more; the offsets of all other topics are durable then. After a failure or a death, the first portions are
        stored.

        Each step checks the topics again: the loop's mirror of the topics may be older than this thread's image, and a topic
        may be deleted and created again between two steps. An offset written after that would belong to the new topic.
        """
        assert self._store is not None and self._view is not None
        missing: set[str] = set()
        ids: dict[str, uuid.UUID | None] = {}
        for number, portion in enumerate(group_offsets.portions(offsets)):
            if number:
                yield
            image = self._view.controller.image
            for topic in dict.fromkeys(topic for topic, _ in portion):
                known = image.topics.get(topic)
                if known is None or topic in image.deleting or ids.setdefault(topic, known.topic_id) != known.topic_id:
                    missing.add(topic)
            kept = {place: offsets[place] for place in portion if place[0] not in missing}
            group_offsets.write(self._store, group_id, kept)
        return missing

    def has_members(self, group_id: str) -> bool:
        """Whether consumers of the group are registered in the metadata tree."""
        assert self._store is not None
        return group_offsets.has_members(self._store, group_id)

    def delete_group(self, group_id: str) -> Generator[None, None, bool]:
        """Delete a group from the metadata tree, in steps. Returns whether the group existed there."""
        assert self._store is not None
        return (yield from group_offsets.delete_group(self._store, group_id))

    def import_handlers(self) -> None:
        """Import the handlers of all APIs; called after the process serves, so that the start does not wait for it."""
        self._handlers.import_all()

    def open_waiting_logs(self) -> None:
        """Open the logs that could not be opened completely for lack of disk space, if the disk has space now."""
        if self._view is not None:
            self._view.controller.open_waiting()

    def sweep_offsets(self) -> None:
        """Do one step of deleting the offsets of deleted topics from the metadata tree."""
        if self._view is None or self._sweep is None or time.monotonic() < self._sweep_after:
            return
        if self._swept != self._view.controller.deleted:
            self._swept = self._view.controller.deleted
            self._sweep.request()
        self._sweep_after = time.monotonic() + SWEEP_RETRY_S  # unless this step succeeds
        try:
            self._sweep.step()
        except StoreError as error:
            self._note_store_error(error)
        else:
            self._sweep_after = 0.0

    def close(self) -> None:
        """Leave the cluster: end the broker's session, and with it its registration."""
        if self._store is None:
            return
        try:
            self._store.end_session()
            self._store.close()
        except StoreError as error:
            log.warning("cannot end the broker's session in the metadata store: %s; the next start ends it", error)


class Coordinator:
    """The coordinator process. Only the loop's thread uses it, except for `_controller_service`, which the controller thread
    uses."""

    def __init__(self, context: ProcessContext) -> None:
        self._shm = context.shm
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "controller", enter_lane, (Lane.LANE_SECOND,))
        self._controller_service = ControllerService(context)
        self._groups = GroupService(
            context.config, context.shm, context.log_dirs, self._offset_tree(), self._controller_service.topic_names
        )
        self._server = ForwardServer(self._serve, self._groups.at_once, self._groups.end_of_read)
        self._removed_files = RemovedFiles(sweep_append_files)
        self._stopped = asyncio.Event()
        self._busy = BusyTime()
        self._tick_due = 0.0
        self._ticker: asyncio.TimerHandle | None = None
        self._opening: asyncio.Future[None] | None = None
        self._sweeping: asyncio.Future[None] | None = None
        self._followed_version = -1  # the metadata version that the groups have followed

    async def run(self) -> None:
        """Serve until SIGTERM. Raises the exceptions of `ControllerService.open`."""
        self._loop.add_signal_handler(signal.SIGTERM, self._stopped.set)
        self._loop.add_reader(self._shm.event_fd(), self._on_wake)
        await self._in_controller_thread(self._controller_service.open)
        assert self._context.forward_listener is not None
        self._groups.start()  # before the first request, so that it sees the topics before a request creates one
        await self._server.start(self._context.forward_listener)
        self._tick()
        self._shm.set_state(ProcessState.SERVING)
        self._shm.wake(0)
        self._groups.import_handlers()
        await self._in_controller_thread(self._controller_service.import_handlers)
        await self._stopped.wait()
        self._shm.set_state(ProcessState.STOPPING)
        self._groups.close()
        if self._ticker is not None:
            self._ticker.cancel()
        await self._server.stop(STOP_LIMIT_S)
        await self._in_controller_thread(self._controller_service.close)
        self._thread.shutdown()

    async def _in_controller_thread(self, work: Callable[[], None]) -> None:
        await self._loop.run_in_executor(self._thread, work)

    async def _in_steps(self, steps: Steps) -> Any:
        """Execute the steps of a generator in the controller thread, other work between them. Returns what the generator
        returns."""
        job = Stepwise(steps)
        while await self._loop.run_in_executor(self._thread, job.step):
            pass
        return job.result

    def _offset_tree(self) -> OffsetTree:
        """The offsets in the metadata tree, for the loop. Commits to a group and its deletion take turns: a commit whose client
        has disconnected, but which is not cancelled yet, must not write after the commit that the client sends on its next
        connection.
        """
        turns = Turns()

        async def read(group_id: str, places: list[Place]) -> dict[Place, int]:
            offsets: dict[Place, int] = await self._in_steps(self._controller_service.read_offsets(group_id, places))
            return offsets

        async def write(group_id: str, offsets: dict[Place, int]) -> set[str]:
            async with turns.of(group_id):
                missing: set[str] = await self._in_steps(self._controller_service.write_offsets(group_id, offsets))
            return missing

        def has_members(group_id: str) -> asyncio.Future[bool]:
            return self._loop.run_in_executor(self._thread, self._controller_service.has_members, group_id)

        async def delete(group_id: str) -> bool:
            async with turns.of(group_id):
                existed: bool = await self._in_steps(self._controller_service.delete_group(group_id))
            return existed

        return OffsetTree(read, write, has_members, delete)

    async def _serve(self, request: Arrival) -> ForwardReply:
        if request.kind == Kind.METRICS:
            return await self._groups.report()
        if request.kind == Kind.KAFKA and self._groups.serves(request):
            return await self._groups.execute(request)
        errors: list[UncountedErrors | None] = []
        reply: ForwardReply = await self._in_steps(self._controller_service.execute(request, errors.append))
        for uncounted in errors:
            count_errors_of_response(uncounted, request.context)
        return reply

    def _on_wake(self) -> None:
        """The metadata changed, a partition of `__consumer_offsets` changed, or a process died."""
        self._shm.drain_event()
        self._removed_files.look()
        process_died = self._shm.take_full_look()
        if process_died:
            slot_upkeep.recover_dead()
        version, changed_slots = self._shm.metadata_version, self._shm.take_ready()
        # Not before `open`: groups that are loaded earlier would keep the offsets of deleted topics.
        if self._controller_service.is_open:
            if process_died or version != self._followed_version:
                self._followed_version = version
                self._groups.follow()
            else:
                self._groups.look(frozenset(changed_slots))
        self._shm.confirm_version(version)

    def _tick(self) -> None:
        """Twice a second. A part that fails does not stop the ticks: without them the supervisor would kill the coordinator."""
        self._shm.beat()
        self._server.tick()
        try:
            self._upkeep()
        except Exception:
            log.exception("the coordinator's periodic work failed; retrying in %g s", TICK_S)
        finally:
            self._tick_due = self._loop.time() + TICK_S
            self._ticker = self._loop.call_at(self._tick_due, self._tick)

    def _upkeep(self) -> None:
        self._removed_files.look()
        self._groups.follow()
        logs.report_failures()
        if self._tick_due:
            count_loop_delay(max(0, int((self._loop.time() - self._tick_due) * 1e6)))
        self._busy.tick()
        if self._opening is None or self._opening.done():
            self._opening = self._loop.run_in_executor(self._thread, self._controller_service.open_waiting_logs)
            self._opening.add_done_callback(_report_opening)
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = self._loop.run_in_executor(self._thread, self._controller_service.sweep_offsets)
            self._sweeping.add_done_callback(_report_sweep)


def _report_opening(opening: "asyncio.Future[None]") -> None:
    """Log a failure of `ControllerService.open_waiting_logs`."""
    if not opening.cancelled() and (error := opening.exception()) is not None:
        log.error("cannot open the logs that wait for disk space: %r; retrying in %g s", error, TICK_S)


def _report_sweep(sweep: "asyncio.Future[None]") -> None:
    """Log a failure of `ControllerService.sweep_offsets`."""
    if not sweep.cancelled() and (error := sweep.exception()) is not None:
        log.error(
            "cannot delete the offsets of deleted topics from the metadata tree: %r; retrying in %g s",
            error,
            SWEEP_RETRY_S,
        )


async def _run(context: ProcessContext) -> None:
    await Coordinator(context).run()


def main(context: ProcessContext) -> int:
    """Coordinate until SIGTERM. Returns the exit code."""
    try:
        uvloop.run(_run(context))
    except (StoreError, WrongCluster, BrokerIdTaken, NotController) as error:
        log.error("the coordinator cannot start: %s", error)
        return 1
    return 0
