"""The coordinator's groups, joined to the rest: the loop's clock, the partitions of `__consumer_offsets`, requests.

Used in the coordinator's event loop alone, but for the reading of logs at a load, which a thread of its own does and hands over
in pieces. Which partitions are led, and in which epoch, is in the slots; a change of these is seen with the metadata
version or a wake-up, and at the latest by the append that is refused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import cast

import odradek._ext.partition.slots as slots
from odradek._ext.net.arrivals import Arrival
from odradek._ext.partition.flusher import Flusher
from odradek._ext.shm.layout import Role, SlotState
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.shm.topics import TopicDirectory
from odradek.api.dispatch import frame_response
from odradek.api.group_call import GroupCall, GroupView, OffsetTree, host_of
from odradek.api.stepwise import Stepwise
from odradek.api.table import BY_KEY, Handlers, Where, handlers_of, limits_of
from odradek.config.broker_config import BrokerConfig
from odradek.config.dynamic import group_values
from odradek.controller.topic_names import CONSUMER_OFFSETS
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.environment import Timer
from odradek.groups.settings import ConsumerSettings, GroupSettings
from odradek.net.forward_frames import ForwardReply, Kind, Status
from odradek.processes.group_report import report
from odradek.processes.metering import count_errors_of_response, uncounted_errors
from odradek.processes.offsets_log import AppendTurn, LogMoved, OffsetsLog, read_records
from odradek.processes.slices import LoopSlices
from odradek.protocol import ProtocolError, decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas.header import decode_request_header

log = logging.getLogger("odradek.groups")

MINUTE_MS = 60_000
LOAD_RETRY_S = 1.0
KAFKA = int(Kind.KAFKA)
OF_LOG = ("offsets.topic.compression.codec", "message.max.bytes", "offsets.commit.timeout.ms")
OF_GROUP = ("session.timeout", "heartbeat.interval", "assignment.interval")


StoredTopics = Callable[[], frozenset[str] | None]


class LoopTimers:
    """The clock of an event loop, for groups."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """Monotonic; rounded so that a timer that fired finds its time reached."""
        return round(self._loop.time() * 1000)

    def wall_ms(self) -> int:
        """Since 1970."""
        return time.time_ns() // 1_000_000

    def call_at(self, when_ms: int, action: Callable[[], None]) -> Timer:
        """As `Timers` says."""
        return self._loop.call_at(when_ms / 1000, action)


def settings_of(config: BrokerConfig) -> GroupSettings:
    """The keys that groups go by."""
    return GroupSettings(
        initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
        min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
        max_size=config.integer("group.max.size"),
        max_member_bytes=config.integer("message.max.bytes"),
        offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=config.integer("offsets.retention.minutes") * MINUTE_MS,
    )


def consumer_settings_of(config: BrokerConfig) -> ConsumerSettings:
    """The keys that groups of KIP-848 go by."""
    policy = str(config["group.consumer.migration.policy"]).lower()
    return ConsumerSettings(
        session_timeout_ms=config.integer("group.consumer.session.timeout.ms"),
        heartbeat_interval_ms=config.integer("group.consumer.heartbeat.interval.ms"),
        max_size=config.integer("group.consumer.max.size"),
        upgrade=policy in ("bidirectional", "upgrade"),
        downgrade=policy in ("bidirectional", "downgrade"),
        assignors=tuple(str(name) for name in config["group.consumer.assignors"]),  # type: ignore[union-attr]
        assignment_interval_ms=config.integer("group.consumer.assignment.interval.ms"),
    )


class LiveConsumerSettings:
    """Settings of groups of KIP-848 as they are at each moment: the broker's, and those that a group has of its own.

    The controller thread replaces both as a whole when they change, so what was made of them holds while they are the same.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._seen: tuple[object, object] | None = None
        self._of_broker = ConsumerSettings()
        self._of_group: dict[str, ConsumerSettings] = {}

    def of(self, group_id: str) -> ConsumerSettings:
        """As `SettingsSource` says."""
        settings, groups = self._config.settings, self._config.groups
        if self._seen is None or self._seen[0] is not settings or self._seen[1] is not groups:
            self._seen = settings, groups
            self._of_broker, self._of_group = consumer_settings_of(self._config), {}
        own = groups.get(group_id)
        if own is None:
            return self._of_broker
        found = self._of_group.get(group_id)
        if found is None:
            values = group_values(self._config, own)
            session, beat, assignment = (cast(int, values[f"consumer.{name}.ms"]) for name in OF_GROUP)
            found = self._of_group[group_id] = replace(
                self._of_broker,
                session_timeout_ms=session,
                heartbeat_interval_ms=beat,
                assignment_interval_ms=assignment,
            )
        return found


class KnownTopics:
    """The coordinator's mirror of the topics, as groups look at it. :param stored: see `GroupService`."""

    def __init__(self, directory: TopicDirectory, stored: StoredTopics) -> None:
        self._directory = directory
        self._stored = stored

    def in_store(self) -> frozenset[str] | None:
        """As `Topics` says."""
        return self._stored()

    @property
    def version(self) -> int:
        """Of the metadata that was taken over: another one after every change."""
        return int(self._directory.version)

    def names(self) -> list[str]:
        """All topics."""
        return [topic.name for topic in self._directory.by_name.values()]

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Id and number of partitions."""
        topic = self._directory.get(name)
        return None if topic is None else (bytes(topic.topic_id), topic.count)

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic by its id."""
        topic = self._directory.by_id.get(topic_id)
        return None if topic is None else topic.name


class GroupService:
    """One a coordinator process.

    :param tree: where offsets of version 0 are kept.
    :param stored: names of the topics in the metadata store, None while they are not known. A mirror of the slots has not all:
        a topic without a place, or a log directory, or with replicas elsewhere, is there all the same.
    """

    def __init__(
        self, config: BrokerConfig, shm: SharedMemory, log_dirs: Sequence[Path], tree: OffsetTree, stored: StoredTopics
    ) -> None:
        self._limits = limits_of(config)
        self._config = config
        self._shm = shm
        self._log_dirs = log_dirs
        self._loop = asyncio.get_running_loop()
        self._topics = TopicDirectory()
        self._timers = LoopTimers(self._loop)
        self._reader = ThreadPoolExecutor(1, "group-load")
        self._led: dict[int, tuple[OffsetsLog, asyncio.Task[None]]] = {}
        self._flusher = Flusher()
        self._known: dict[str, bytes] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self.groups: GroupCoordinator | None = None
        self._view: GroupView | None = None
        self._tree = tree
        self._stored = stored
        self._turn = AppendTurn(self._loop)
        self._handlers = handlers_of(Where.GROUPS)
        self._at_once = Handlers((row.key, row.at_once) for row in BY_KEY.values() if row.at_once)

    def start(self) -> None:
        """Begin with the partitions that are led now."""
        self.follow()
        self._expire_later()

    def import_handlers(self) -> None:
        """What requests will need; not before, since nobody need wait for it."""
        self._handlers.import_all()
        self._at_once.import_all()

    def close(self) -> None:
        """Stop serving. What was appended is written, and where flush.messages is set also synced and acknowledged."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._turn.run()
        self._flusher.close()
        for partition, (group_log, _) in list(self._led.items()):
            group_log.look()
            self._resign(partition)
        self._reader.shutdown(wait=False, cancel_futures=True)

    # -- which partitions -----------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Look at the topics and at the slots of `__consumer_offsets`: begin, end, and note what was deleted."""
        self._refresh()
        topic = self._topics.get(CONSUMER_OFFSETS)
        led: dict[int, tuple[int, int, int]] = {}
        for partition, slot in topic.partitions() if topic is not None else ():
            state = slots.describe(slot)
            if state["state"] == SlotState.SLOT_ONLINE and state["role"] == Role.ROLE_LEADER:
                led[partition] = slot, state["incarnation"], state["leader_epoch"]
        if led and topic is not None:
            self._ready(topic.count)
        for partition, (one, _) in list(self._led.items()):
            if led.get(partition) != one.place:
                self._resign(partition)
        for partition, place in led.items():
            if partition not in self._led:
                self._begin(partition, place)
        for one, _ in self._led.values():
            one.look()

    def look(self, moved: Collection[int]) -> None:
        """Slots moved: acknowledge what was appended to those of `__consumer_offsets`."""
        for one, _ in list(self._led.values()):
            if one.place[0] in moved:
                one.look()

    def _ready(self, partitions: int) -> None:
        """The number of partitions is known with the topic, and must not change: groups would be looked for elsewhere."""
        if self.groups is None:
            self.groups = self._make(partitions)
            self._view = GroupView(self._config, self.groups, self._topics, self._tree, self._limits)

    def _refresh(self) -> None:
        """Take over what changed in the topics: the offsets of one that was deleted must not serve one made anew."""
        if not self._topics.refresh():
            return
        known = {topic.name: bytes(topic.topic_id) for topic in self._topics.by_name.values()}
        gone = [name for name, topic_id in self._known.items() if known.get(name) != topic_id]
        self._known = known
        if gone and self.groups is not None:
            self.groups.topics_deleted(gone)

    def _begin(self, partition: int, place: tuple[int, int, int]) -> None:
        assert self.groups is not None
        codec, most, patience_ms = (self._config.integer(key) for key in OF_LOG)
        group_log = OffsetsLog(self._loop, self._turn, place, codec, most, patience_ms, self._flusher)
        self.groups.begin(partition, group_log)
        task = self._loop.create_task(self._load(partition, group_log))
        task.add_done_callback(lambda task: self._load_ended(partition, task))
        self._led[partition] = group_log, task

    def _load_ended(self, partition: int, task: asyncio.Task[None]) -> None:
        """A load that fell over, by an error of this program, is told and done again: its groups must not wait for ever."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error(
            "cannot load %s-%d: internal error; retrying in %g s",
            CONSUMER_OFFSETS, partition, LOAD_RETRY_S, exc_info=error,
        )  # fmt: skip
        self._loop.call_later(LOAD_RETRY_S, self._load_again, partition, task)

    def _load_again(self, partition: int, failed: asyncio.Task[None]) -> None:
        if partition in self._led and self._led[partition][1] is failed:
            self._reload(partition, self._led[partition][0])

    def _resign(self, partition: int) -> None:
        assert self.groups is not None
        group_log, task = self._led.pop(partition)
        task.cancel()
        group_log.close()
        self.groups.resign(partition)

    async def _load(self, partition: int, group_log: OffsetsLog) -> None:
        """Read the partition's log and take it over; again from the start if the log's files changed under the reader.

        Its groups are served once the high watermark has reached the end of what was read. Records that a predecessor appended
        and did not acknowledge may not be on the device yet: members must not learn of what a loss of power could take back.
        """
        assert self.groups is not None
        began, records = self._timers.now_ms(), 0
        while True:
            try:
                end = slots.describe(group_log.place[0])["log_end_offset"]
                pieces = read_records(group_log.place[0], self._log_dirs)
                records = 0
                while (piece := await self._loop.run_in_executor(self._reader, next, pieces, None)) is not None:
                    self.groups.replay_batches(partition, piece)
                    records += sum(len(batch.records) for batch in piece)
                break
            except LogMoved as error:
                log.info("reading %s-%d again from its start: %s", CONSUMER_OFFSETS, partition, error)
            except OSError as error:
                log.error("cannot read %s-%d: %s; retrying in %g s", CONSUMER_OFFSETS, partition, error, LOAD_RETRY_S)
                await asyncio.sleep(LOAD_RETRY_S)
            self.groups.begin(partition, group_log)
        committed: asyncio.Future[ErrorCode] = self._loop.create_future()
        group_log.when_committed(end, lambda error: None if committed.done() else committed.set_result(error))
        if await committed is not ErrorCode.NONE:
            return  # the log was closed: this is not the coordinator any more
        self.groups.loaded(partition)
        if records:
            took = self._timers.now_ms() - began
            log.info("loaded %d records of %s-%d in %d ms", records, CONSUMER_OFFSETS, partition, took)

    # -- requests -------------------------------------------------------------------------------------------------

    def serves(self, request: Arrival) -> bool:
        """Whether a forwarded Kafka request is one of groups."""
        return request.api_key in self._handlers

    def at_once(self, request: Arrival) -> bool:
        """Serve a request without a task, if its API can; whether that was done. What it appends waits for `end_of_read`."""
        serve = self._at_once.get(request.api_key)
        if serve is None or self._view is None or request.kind != KAFKA:
            return False
        if not self._turn.held:  # the first of its read
            self._refresh()
            self._turn.held = True
        done: bool = serve(request, self._view)
        return done

    def end_of_read(self) -> None:
        """The requests that came together were handed over: append what they append."""
        if self._turn.held:
            self._turn.run()

    async def execute(self, request: Arrival) -> ForwardReply:
        """One request, from its bytes to those of the answer. What handlers raise goes through."""
        try:
            header, body = decode_request_header(request.payload)
            row = BY_KEY[header.request_api_key]
            version = header.request_api_version
            if not row.min_version <= version <= row.max_version:
                return ForwardReply(Status.UNSUPPORTED, 0)
            message = [decode(by_key(row.key).request, version, request.payload, body, self._limits[row.key])[0]]
        except ProtocolError as error:
            log.warning("cannot decode a request of %s: %s; its connection is closed", request.context.client, error)
            return ForwardReply(Status.MALFORMED, 0)
        self._refresh()
        # Popped, so that the handler alone keeps it: one that waits for other members lets it go.
        response = await self._handlers[row.key](message.pop(), self._call(version, request))
        errors = Stepwise(uncounted_errors(row.key, response))
        while errors.step():
            await asyncio.sleep(0)
        count_errors_of_response(errors.result, request.context)
        return ForwardReply(Status.OK, 0, frame_response(row, version, header.correlation_id, response))

    async def tell(self) -> ForwardReply:
        """All groups, for the reporter; FAILED while some are still being read, for a part of them would be taken for all."""
        if self.groups is None:
            return ForwardReply(Status.OK, 0)
        if self.groups.loading:
            return ForwardReply(Status.FAILED, 0)
        return ForwardReply(Status.OK, 0, await report(self.groups))

    def _call(self, version: int, request: Arrival) -> GroupCall:
        context = request.context
        return GroupCall(
            version=version,
            client_id=context.client_id,
            host=host_of(context.peer),
            principal=context.principal,
            view=self._view or self._view_without_topic(),
            park=request.park,
        )

    def _view_without_topic(self) -> GroupView:
        """While there is no `__consumer_offsets`: every group is NOT_COORDINATOR, and offsets in the tree are served."""
        return GroupView(self._config, self._make(1), self._topics, self._tree, self._limits)

    def _make(self, partitions: int) -> GroupCoordinator:
        return GroupCoordinator(
            self._timers,
            settings_of(self._config),
            partitions,
            KnownTopics(self._topics, self._stored),
            LiveConsumerSettings(self._config),
            self._diverged,
            LoopSlices(self._loop),
        )

    def _diverged(self, partition: int) -> None:
        """Forget the partition's groups; they are taken from the log again, once however many appends failed."""
        if partition not in self._led:
            return
        group_log, _ = self._led[partition]
        if group_log.closed:  # also by this: whoever waits is told, and comes here
            return
        log.warning("an append to %s-%d failed; loading its groups from the log again", CONSUMER_OFFSETS, partition)
        group_log.look()
        group_log.close()  # nothing that builds on what is lost may follow it
        self._loop.call_soon(self._reload, partition, group_log)

    def _reload(self, partition: int, group_log: OffsetsLog) -> None:
        """Load anew, unless it is led with another log by now, or not any more."""
        self.follow()
        if partition in self._led and self._led[partition][0] is group_log:
            _, task = self._led[partition]
            task.cancel()
            group_log.close()
            self._begin(partition, group_log.place)  # in the groups' place, whose topics to be forgotten it takes over

    # -- expiry ---------------------------------------------------------------------------------------------------

    def _expire_later(self) -> None:
        interval_s = self._config.integer("offsets.retention.check.interval.ms") / 1000
        self._expiry = self._loop.call_later(interval_s, self._expire)

    def _expire(self) -> None:
        if self.groups is not None:
            count = self.groups.expire()
            if count:
                log.info("deleting %d expired committed offsets", count)
        self._expire_later()
