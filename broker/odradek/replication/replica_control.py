"""Executes the controller's requests on this broker: LeaderAndIsr, StopReplica and UpdateMetadata.

In a cluster, `ReplicaControl` is the only writer of the partition table. It runs in the replicas thread of the coordinator,
which executes the requests one after the other, in the order of their arrival. The lock of each slot protects the slot against
other processes.

The slots are the only result: fetchers, group coordinators and workers derive what they do from the slots. So the coordinator
may die at any point: the controller repeats a request whose connection was closed, and a repeated request completes what its
first execution left. A partition is changed in this order: its log exists, then its slot has the new role, then the change is
announced. A successor announces all slots when it starts.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import odradek._ext.partition.roles as roles
import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slots as slots
import odradek._ext.shm.brokers as brokers
import odradek._ext.shm.views as views
from odradek._ext.partition.lost_tails import lost_tail
from odradek._ext.partition.slots import LogUnsettled, SlotChanged
from odradek._ext.shm.slot import LostTail, SlotState
from odradek.metadata.znodes import NO_LEADER
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas.leader_and_isr import Request as LeaderAndIsrRequest
from odradek.protocol.schemas.stop_replica import Request as StopReplicaRequest
from odradek.protocol.schemas.update_metadata import Request as UpdateMetadataRequest
from odradek.replication.control_requests import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    NO_BROKER_EPOCH,
    NO_EPOCH,
    NO_TOPIC_ID,
    RECOVERING,
    Assigned,
    Published,
    Stopped,
    assigned,
    assigned_response,
    endpoints_of,
    published,
    published_response,
    stopped,
    stopped_response,
)
from odradek.shm.partition_table import PartitionTable
from odradek.storage.checkpoints import CorruptCheckpointError

log = logging.getLogger("odradek.replication")

SettingsReader = Callable[[Collection[str]], Mapping[str, Mapping[str, str]]]
"""Reads the settings of topics from the metadata store, all in one call; topics without settings may be missing. Raises the
errors of the store."""

TopicIdReader = Callable[[Collection[str]], Mapping[str, bytes]]
"""Reads the ids of topics from the metadata store, as they are now and not as they were a moment ago; topics that do not exist
or have no id are missing. Raises the errors of the store."""

UNHOSTED = (SlotState.SLOT_FREE, SlotState.SLOT_DELETED, SlotState.SLOT_REMOTE)


NAMED_DIRECTORIES = 5
"""The largest number of directories in a log line."""


class Logs(Protocol):
    """Creates, opens and removes the directories of partitions."""

    def slot_settings(self, topic: str, settings: Mapping[str, str]) -> dict[str, int]:
        """The fields of a slot's TopicSettings for the settings of a topic."""
        ...

    def directory_of(self, topic: str, partition: int) -> int | None:
        """The number of the online log directory that contains the directory of a partition; None if none does."""
        ...

    def emptiest(self) -> int | None:
        """The number of the log directory for a new partition; None if all log directories are offline."""
        ...

    def all_online(self) -> bool:
        """Whether all log directories are online."""
        ...

    def open(self, slot: int) -> None:
        """Create or load the log of a LOADING slot. On a failure, an error is logged, and the slot is OFFLINE or LOADING."""
        ...

    def opened(self) -> None:
        """Called after a request that opened logs: what was repaired in them is reported."""
        ...

    def settle(self, slot: int) -> None:
        """Write the checkpoints of a log that was truncated. Raises OSError, CorruptCheckpointError."""
        ...

    def delete(self, slot: int) -> None:
        """Take a local partition out of service and rename its directory. Raises OSError."""
        ...

    def set_aside(self, slot: int) -> Path | None:
        """Take the log of a former topic out of service, and rename its directory so that no start opens it; its files stay.
        Returns the new path; None if the directory keeps its name, because its log directory cannot be written."""
        ...

    def delete_directory(self, topic: str, partition: int, log_dir: int) -> None:
        """Rename the directory of a partition without a slot, so that the cleaner removes it. Raises OSError."""
        ...

    def forget(self, deleted: Mapping[str, Sequence[int]]) -> None:
        """Remove the lines of deleted partitions from all checkpoints. Raises OSError."""
        ...


class ReplicaControl:
    """See the module.

    :param broker_id: the id of this broker.
    :param internal: the names of internal topics.
    :param has_partitions: reads whether the cluster has partitions that its controller will publish; raises StoreError.
    :param read_topic_ids: see `TopicIdReader`.
    """

    def __init__(
        self,
        table: PartitionTable,
        logs: Logs,
        broker_id: int,
        internal: Collection[str],
        read_settings: SettingsReader,
        has_partitions: Callable[[], bool],
        read_topic_ids: TopicIdReader,
    ) -> None:
        self._table = table
        self._logs = logs
        self._broker_id = broker_id
        self._internal = internal
        self._read_settings = read_settings
        self._has_partitions = has_partitions
        self._read_topic_ids = read_topic_ids
        self._left_out: list[int] = []  # live brokers for which there is no room, as last reported

    def start(self) -> None:
        """Announce all slots: a predecessor may have died before it announced its last changes."""
        self._table.announce(range(self._table.shm.slots_used))

    # -- settings -----------------------------------------------------------------------------------------------------

    def hosted(self) -> dict[str, list[int]]:
        """The partitions whose log is on this broker, by topic. Reads every slot."""
        topics: dict[str, list[int]] = {}
        for name, partition, slot in slots.in_use():
            if slots.state_of(slot) not in UNHOSTED:
                topics.setdefault(name, []).append(partition)
        return topics

    def configure(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        """Apply the settings of topics to the slots of their local partitions. :param topics: all settings, by topic."""
        hosted = self.hosted()
        for name in topics.keys() & hosted.keys():
            settings = self._logs.slot_settings(name, topics[name])
            for partition in hosted[name]:
                self._table.configure(self._table.find(name, partition), settings)

    # -- epochs -------------------------------------------------------------------------------------------------------

    def _refusal(
        self, request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest, name: str
    ) -> ErrorCode:
        """NONE, or why the whole request is refused: it is meant for a former registration of this broker (KIP-380), or comes
        from a former controller. The largest controller epoch is remembered."""
        least = brokers.least_epoch()
        if NO_BROKER_EPOCH != request.broker_epoch < least:
            log.warning(
                "refused %s of controller %d, epoch %d: it is for broker epoch %d, whose registration has ended",
                name, request.controller_id, request.controller_epoch, request.broker_epoch,
            )  # fmt: skip
            return ErrorCode.STALE_BROKER_EPOCH
        controller_id, controller_epoch = brokers.controller()
        if request.controller_epoch < controller_epoch:
            log.warning(
                "refused %s of controller %d: its epoch %d is older than epoch %d of controller %d",
                name, request.controller_id, request.controller_epoch, controller_epoch, controller_id,
            )  # fmt: skip
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if (controller_id, controller_epoch) != (request.controller_id, request.controller_epoch):
            brokers.set_controller(request.controller_id, request.controller_epoch)
            log.info("broker %d is the controller, epoch %d", request.controller_id, request.controller_epoch)
        return ErrorCode.NONE

    def give_up_leaderships(self) -> None:
        """Lead no partition until the controller assigns roles to the next registration. Before the first one nothing happens.

        Requests of the controller that were sent to the present registration are refused from now on: they may contain
        leaderships that have ended. Raises SlotBusy; a repetition completes what this call left.
        """
        if not brokers.was_registered():
            return
        brokers.end_registration()
        given_up: list[int] = []
        try:
            for slot in roles.led_slots():
                roles.give_up_leadership(slot)
                given_up.append(slot)
        finally:
            self._table.announce(given_up)
        log.warning(
            "the registration of this broker has ended: it gives up the leadership of %d partitions, until the controller "
            "assigns roles again",
            len(given_up),
        )  # fmt: skip

    # -- logs of former topics ----------------------------------------------------------------------------------------

    def _set_aside_former(self, entries: Sequence[Assigned] | Sequence[Published]) -> None:
        """Set aside the logs here of former topics whose names the topics of a request have. A reassignment that completed
        while this broker was away has left them behind: no controller knows of them, and they would hide the new partitions.

        A request of the controller may be late, so the metadata store must confirm the new topic's id. Raises the errors of
        the reader before anything is changed. A repetition completes what a predecessor left.
        """
        named = {entry.topic: entry.topic_id for entry in entries if entry.topic_id != NO_TOPIC_ID}
        suspects = {
            entry.topic
            for entry in entries
            if self._hosts(entry.topic, entry.partition)
            and _is_former(self._table.find(entry.topic, entry.partition), entry.topic_id)
        }
        suspects |= {name for name, topic_id in named.items() if _is_former(self._table.last_slot(name), topic_id)}
        current = self._read_topic_ids(sorted(suspects)) if suspects else {}
        changed: list[int] = []
        try:
            for name, topic_id in current.items():
                if topic_id == named[name]:
                    self._set_aside(name, topic_id, changed)
        finally:
            self._table.announce(changed)

    def _set_aside(self, name: str, topic_id: bytes, changed: list[int]) -> None:
        """Set aside all logs of former topics of a name, and free their slots; append the slots to `changed`. First the logs,
        then their lines in the checkpoints, then the slots: so a successor finds what is left to do."""
        former = [slot for slot in self._table.slots_of(name) if _is_former(slot, topic_id)]
        changed += former
        former_id = slots.log_of(former[0])[2] if former else NO_TOPIC_ID
        paths = [self._logs.set_aside(slot) for slot in former if slots.state_of(slot) not in UNHOSTED]
        try:
            self._logs.forget({name: [slots.partition_of(slot) for slot in former]})
        except OSError as error:
            log.error(
                "cannot remove the lines of the former topic %s from the checkpoints: %s; the next write of the checkpoints "
                "removes them",
                name, error,
            )  # fmt: skip
        for slot in former:
            self._table.drop_remote(slot)
        if paths:
            log.warning(
                "set aside %d logs of a former topic %s (topic id %s), which was deleted while it had no replicas here: the "
                "topic of that name has topic id %s now; the records are kept in %s until you delete these directories",
                len(paths), name, former_id.hex(), topic_id.hex(), _names_of(paths),
            )  # fmt: skip

    # -- LeaderAndIsr -------------------------------------------------------------------------------------------------

    def leader_and_isr(self, request: LeaderAndIsrRequest, version: int) -> Any:
        """Make this broker leader or follower of partitions, and create their logs if they do not exist. Returns the response.

        Raises the errors of the settings reader before any role is changed.
        """
        entries = list(assigned(request, version))
        refusal = self._refusal(request, "LeaderAndIsr")
        if refusal:
            return assigned_response(version, ((entry, refusal) for entry in entries), refusal)
        self._set_aside_former(entries)
        settings = self._settings_of_new(entries)
        changed: list[int] = []
        outcomes = []
        try:
            for entry in entries:
                outcomes.append((entry, self._assign(entry, settings, changed)))  # noqa: PERF401
        finally:
            self._logs.opened()
            self._table.announce(changed)
        refused = [entry for entry, code in outcomes if code == ErrorCode.FENCED_LEADER_EPOCH]
        if refused:
            log.warning(
                "refused LeaderAndIsr for %d of %d partitions, such as %s-%d in leader epoch %d: this broker has seen newer "
                "leader epochs, or another leader in the same one; ZooKeeper was restored from an older backup. The controller "
                "raises the epochs",
                len(refused), len(outcomes), refused[0].topic, refused[0].partition, refused[0].state.leader_epoch,
            )  # fmt: skip
        return assigned_response(version, outcomes)

    def _settings_of_new(self, entries: Iterable[Assigned]) -> dict[str, dict[str, int]]:
        """The slots' settings of the topics of which this broker is to create or open logs."""
        names = {
            entry.topic
            for entry in entries
            if self._broker_id in entry.state.replicas and not self._hosts(entry.topic, entry.partition)
        }
        stored = self._read_settings(sorted(names)) if names else {}
        return {name: self._logs.slot_settings(name, stored.get(name, {})) for name in names}

    def _hosts(self, topic: str, partition: int) -> bool:
        slot = self._table.find(topic, partition)
        return slot >= 0 and slots.state_of(slot) not in UNHOSTED

    def _assign(self, entry: Assigned, settings: Mapping[str, dict[str, int]], changed: list[int]) -> int:
        """Execute the assignment of one partition; append its slot to `changed`. Returns the error code."""
        state = entry.state
        slot = self._table.find(entry.topic, entry.partition)
        hosted = slot >= 0 and slots.state_of(slot) not in UNHOSTED
        if hosted:
            if slots.state_of(slot) == SlotState.SLOT_OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if _is_former(slot, entry.topic_id):
                log.error(
                    "refused to lead or follow %s-%d with topic id %s: its log here belongs to topic id %s, and the topic in "
                    "the metadata store does not have the requested id",
                    entry.topic, entry.partition, entry.topic_id.hex(), slots.log_of(slot)[2].hex(),
                )  # fmt: skip
                return ErrorCode.INCONSISTENT_TOPIC_ID
            epoch = roles.role_epoch(slot)
            same = state.leader_epoch == epoch and self._broker_id in state.replicas
            known = slot_facts.describe(slot).leader_id
            stopped = known == NO_LEADER and state.leader != self._broker_id  # a follower, by a controlled shutdown
            if same and (state.leader == known or stopped):
                return ErrorCode.NONE  # a repeated request, or a new controller, which sends all states
            if state.leader_epoch <= epoch:
                log.debug(
                    "ignored LeaderAndIsr for %s-%d: leader epoch %d is not newer than %d",
                    entry.topic, entry.partition, state.leader_epoch, epoch,
                )  # fmt: skip
                return ErrorCode.FENCED_LEADER_EPOCH
        if self._broker_id not in state.replicas:
            log.error(
                "refused to lead or follow %s-%d: broker %d is not among its replicas %s",
                entry.topic, entry.partition, self._broker_id, list(state.replicas),
            )  # fmt: skip
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        slot = self._with_log(entry, slot, settings, changed)
        if slot < 0:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return self._take_role(entry, slot)

    def _with_log(self, entry: Assigned, slot: int, settings: Mapping[str, dict[str, int]], changed: list[int]) -> int:
        """The slot of a partition whose log is open; -1 if that fails, after an error was logged."""
        name, partition = entry.topic, entry.partition
        try:
            if slot >= 0 and slots.state_of(slot) == SlotState.SLOT_REMOTE and slots.log_of(slot)[2] != entry.topic_id:
                self._table.drop_remote(slot)  # of a former topic of this name
                changed.append(slot)
                slot = -1
            if slot < 0:
                slot = self._table.create_remote(name, entry.topic_id, partition, internal=name in self._internal)
            changed.append(slot)
            if slots.state_of(slot) == SlotState.SLOT_REMOTE:
                log_dir = self._log_dir_for(entry)
                if log_dir is None:
                    return -1
                self._table.begin_local(slot, log_dir, settings[name])
        except ValueError as error:
            log.error("cannot create partition %s-%d, it is offline: %s", name, partition, error)
            return -1
        if slots.state_of(slot) == SlotState.SLOT_LOADING:
            self._logs.open(slot)
        return slot if slots.state_of(slot) == SlotState.SLOT_ONLINE else -1

    def _log_dir_for(self, entry: Assigned) -> int | None:
        """The log directory of a partition without a slot here; None if its log cannot be created."""
        log_dir = self._logs.directory_of(entry.topic, entry.partition)
        if log_dir is not None:
            return log_dir
        if not entry.state.is_new and not self._logs.all_online():
            log.error(
                "cannot open %s-%d: no online log directory contains it, and it may be in a log directory that is offline",
                entry.topic, entry.partition,
            )  # fmt: skip
            return None
        log_dir = self._logs.emptiest()
        if log_dir is None:
            log.error("cannot create %s-%d: all log directories are offline", entry.topic, entry.partition)
        return log_dir

    def _take_role(self, entry: Assigned, slot: int) -> int:
        """Make this broker leader or follower of a partition whose log is open. Returns the error code."""
        state = entry.state
        facts = slot_facts.describe(slot)
        incarnation = facts.incarnation
        if facts.epochs and state.leader_epoch < facts.epochs[-1][0]:
            # Followers could not distinguish records of an older epoch that follow those of a newer one (KIP-101).
            return ErrorCode.FENCED_LEADER_EPOCH
        assignment = {
            "leader_epoch": state.leader_epoch,
            "partition_epoch": state.partition_epoch,
            "controller_epoch": state.controller_epoch,
            "replicas": state.replicas,
            "adding": state.adding_replicas or [],
            "removing": state.removing_replicas or [],
            "in_sync": state.isr,
        }
        try:
            if state.leader == self._broker_id:
                assignment |= {"leader_id": self._broker_id, "recovering": state.leader_recovery_state == RECOVERING}
                self._lead(slot, incarnation, assignment)
            else:
                roles.become_follower(slot, incarnation, leader_id=state.leader, **assignment)
        except (OSError, CorruptCheckpointError, SlotChanged, ValueError) as error:
            log.error(
                "cannot become %s of %s-%d in leader epoch %d: %s",
                "leader" if state.leader == self._broker_id else "follower",
                entry.topic, entry.partition, state.leader_epoch, error,
            )  # fmt: skip
            return ErrorCode.KAFKA_STORAGE_ERROR
        log.debug(
            "%s-%d: leader %d, leader epoch %d, in-sync replicas %s",
            entry.topic, entry.partition, state.leader, state.leader_epoch, state.isr,
        )  # fmt: skip
        return ErrorCode.NONE

    def _lead(self, slot: int, incarnation: int, assignment: Mapping[str, Any]) -> None:
        """Make this broker the leader, also if the fetcher has just truncated the log, whose recovery point is written then.
        Raises OSError, CorruptCheckpointError, SlotChanged, ValueError."""
        before = lost_tail(slot).state
        try:
            roles.become_leader(slot, incarnation, **assignment)
        except LogUnsettled:
            roles.leave_role(slot, incarnation, NO_EPOCH)  # the fetcher must not truncate again
            self._logs.settle(slot)
            roles.become_leader(slot, incarnation, **assignment)
        if before == LostTail.TAIL_LOST:
            _report_lost_tail(slot)

    # -- StopReplica --------------------------------------------------------------------------------------------------

    def stop_replica(self, request: StopReplicaRequest, version: int) -> Any:
        """Stop leading and following partitions, and delete those that the controller names. Returns the response."""
        entries = list(stopped(request, version))
        refusal = self._refusal(request, "StopReplica")
        if refusal:
            return stopped_response(((entry, refusal) for entry in entries), refusal)
        changed: list[int] = []
        deleted: dict[str, list[int]] = {}
        outcomes: list[tuple[Stopped, int]] = []
        try:
            for entry in entries:
                code = self._stop(entry, changed)
                outcomes.append((entry, code))
                if entry.delete and code == ErrorCode.NONE:
                    deleted.setdefault(entry.topic, []).append(entry.partition)
            if deleted:
                outcomes = self._forget(deleted, outcomes)
        finally:
            self._table.announce(changed)
        return stopped_response(outcomes)

    def _stop(self, entry: Stopped, changed: list[int]) -> int:
        """Stop one partition; append its slot to `changed`. Returns the error code."""
        slot = self._table.find(entry.topic, entry.partition)
        try:
            if slot < 0 or slots.state_of(slot) in UNHOSTED:
                return self._delete_stray(entry) if entry.delete else ErrorCode.NONE
            if slots.state_of(slot) == SlotState.SLOT_OFFLINE:
                return ErrorCode.KAFKA_STORAGE_ERROR
            current = roles.role_epoch(slot)
            if entry.leader_epoch not in (NO_EPOCH, EPOCH_DURING_DELETE) and entry.leader_epoch < current:
                log.info(
                    "ignored StopReplica for %s-%d: leader epoch %d is older than %d",
                    entry.topic, entry.partition, entry.leader_epoch, current,
                )  # fmt: skip
                return ErrorCode.FENCED_LEADER_EPOCH
            changed.append(slot)
            if entry.delete:
                deleted = (
                    views.view_of(slot).leader_id == LEADER_DURING_DELETE or entry.leader_epoch == EPOCH_DURING_DELETE
                )
                self._logs.delete(slot)
                if deleted:  # the topic, not only the replica here
                    self._table.drop_remote(slot)
            else:
                roles.leave_role(slot, slot_facts.describe(slot).incarnation, entry.leader_epoch)
        except (OSError, SlotChanged) as error:
            verb = "delete" if entry.delete else "stop"
            log.error("cannot %s %s-%d: %s", verb, entry.topic, entry.partition, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _delete_stray(self, entry: Stopped) -> int:
        """Delete the directory of a partition that this broker does not host, if it exists. Raises OSError."""
        log_dir = self._logs.directory_of(entry.topic, entry.partition)
        if log_dir is not None:
            log.info("deleting the directory of %s-%d, which has no replica here", entry.topic, entry.partition)
            self._logs.delete_directory(entry.topic, entry.partition, log_dir)
        return ErrorCode.NONE

    def _forget(
        self, deleted: Mapping[str, Sequence[int]], outcomes: list[tuple[Stopped, int]]
    ) -> list[tuple[Stopped, int]]:
        """Remove deleted partitions from the checkpoints. Returns the outcomes: if that fails, the deletions have failed, so
        that the controller does not allow new topics of these names."""
        try:
            self._logs.forget(deleted)
        except OSError as error:
            log.error("cannot remove the partitions of %s from the checkpoints: %s", ", ".join(deleted), error)
            return [
                (entry, ErrorCode.KAFKA_STORAGE_ERROR if entry.delete and code == ErrorCode.NONE else code)
                for entry, code in outcomes
            ]
        return outcomes

    # -- UpdateMetadata -----------------------------------------------------------------------------------------------

    def update_metadata(self, request: UpdateMetadataRequest, version: int) -> Any:
        """Publish the live brokers, and merge the partitions into the published state. Returns the response.

        A new controller sends the brokers first, without partitions, to a broker that may have started a moment ago. Raises
        StoreError if such a broker cannot find out whether there are partitions, or if the ids of topics cannot be read.
        """
        refusal = self._refusal(request, "UpdateMetadata")
        if refusal:
            return published_response(refusal)
        self._publish_brokers(request, version)
        changed: list[int] = []
        refused: list[str] = []
        try:
            entries = list(published(request, version))
            self._set_aside_former([entry for entry in entries if entry.state.leader != LEADER_DURING_DELETE])
            self._create_remote(entries)
            for entry in entries:
                try:
                    self._publish(entry, changed)
                except ValueError as error:
                    refused.append(f"{entry.topic}-{entry.partition} ({error})")
        finally:
            self._table.announce(changed)
        if not brokers.published() and (entries or not self._has_partitions()):
            brokers.note_published()
        if refused:
            log.error("cannot publish %d partitions to clients, the first is %s", len(refused), refused[0])
        return published_response()

    def _create_remote(self, entries: Iterable[Published]) -> None:
        """Give slots to all partitions that are new, and announce them, before one of the partitions is published. So a topic
        of which a partition is published has all its partitions in the table."""
        created: list[int] = []
        try:
            for entry in entries:
                if entry.state.leader != LEADER_DURING_DELETE and self._table.find(entry.topic, entry.partition) < 0:
                    created.append(self._new_remote(entry))  # noqa: PERF401 - the earlier ones count after an error
        except ValueError as error:  # no slot is free: `_publish` reports each partition
            log.debug("cannot publish all partitions to clients: %s", error)
        finally:
            self._table.announce(created)

    def _new_remote(self, entry: Published) -> int:
        return self._table.create_remote(
            entry.topic, entry.topic_id, entry.partition, internal=entry.topic in self._internal
        )

    def _publish_brokers(self, request: UpdateMetadataRequest, version: int) -> None:
        live = [
            brokers.BrokerInfo(broker.id, NO_BROKER_EPOCH, broker.rack or None, tuple(endpoints_of(broker, version)))
            for broker in request.live_brokers
        ]
        live = self._with_room(live, request.controller_id)
        if live != brokers.brokers():
            log.info("live brokers: %s", ", ".join(str(broker.id) for broker in live) or "none")
            brokers.publish_brokers(live)

    def _with_room(self, live: list[brokers.BrokerInfo], controller_id: int) -> list[brokers.BrokerInfo]:
        """The live brokers for which the shared memory has room, this broker and the controller first. Logs which have none."""
        first = {self._broker_id, controller_id}
        ordered = sorted(filter(brokers.fits, live), key=lambda broker: (broker.id not in first, broker.id))
        kept = sorted(ordered[: brokers.LIMIT], key=lambda broker: broker.id)
        left_out = sorted({broker.id for broker in live} - {broker.id for broker in kept})
        if left_out and left_out != self._left_out:
            log.error(
                "no room for the brokers %s: a cluster may have at most %d live brokers, with short racks and endpoints; "
                "clients of this broker do not learn of these brokers, and it replicates no partition that they lead",
                ", ".join(map(str, left_out)), brokers.LIMIT,
            )  # fmt: skip
        self._left_out = left_out
        return kept

    def _publish(self, entry: Published, changed: list[int]) -> None:
        """Publish one partition; append the slots that changed to `changed`. Raises ValueError: no slot is free, or there are
        too many replicas."""
        state = entry.state
        slot = self._table.find(entry.topic, entry.partition)
        remote = slot >= 0 and slots.state_of(slot) == SlotState.SLOT_REMOTE
        if state.leader == LEADER_DURING_DELETE and (slot < 0 or remote):
            if remote:
                self._table.drop_remote(slot)
                changed.append(slot)
            return
        if _is_former(slot, entry.topic_id):
            if not remote:
                log.warning(
                    "not publishing %s-%d of topic id %s: its log here belongs to topic id %s, and the topic in the metadata "
                    "store does not have the published id",
                    entry.topic, entry.partition, entry.topic_id.hex(), slots.log_of(slot)[2].hex(),
                )  # fmt: skip
                return
            self._table.drop_remote(slot)
            changed.append(slot)
            slot = -1
        if slot < 0:
            slot = self._new_remote(entry)
        views.publish_view(
            slot,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.zk_version,
            replicas=state.replicas,
            in_sync=state.isr,
            offline=state.offline_replicas or [],
        )
        changed.append(slot)


def _is_former(slot: int, topic_id: bytes) -> bool:
    """Whether a slot belongs to another topic than `topic_id`. :param slot: -1: there is none."""
    return slot >= 0 and topic_id != NO_TOPIC_ID and slots.log_of(slot)[2] not in (topic_id, NO_TOPIC_ID)


def _names_of(paths: Sequence[Path | None]) -> str:
    """The first of the directories that were set aside, for a log line."""
    known = [str(path) for path in paths if path is not None]
    named = ", ".join(known[:NAMED_DIRECTORIES]) or "directories that keep their names, in a log directory that failed"
    more = len(known) - NAMED_DIRECTORIES
    return f"{named} and {more} more directories named *-stray" if more > 0 else named


def _report_lost_tail(slot: int) -> None:
    """Log that this broker has become the leader of a partition whose log had lost records at its end."""
    lost = lost_tail(slot)
    if lost.state != LostTail.TAIL_LOST_LED:  # the partition has no other replica
        return
    topic, partition, *_ = slots.log_of(slot)
    log.error(
        "leading %s-%d from offset %d on, although its log lost its end when it was loaded (%s cut off, the log then ended at "
        "offset %d): records that were acknowledged while fewer replicas were in sync may be lost; `odradek partition explain "
        "%s-%d` shows the replicas",
        topic, partition, slot_facts.describe(slot).log_end_offset,
        f"{lost.lost_bytes} bytes were" if lost.lost_bytes else "an unknown number of bytes was",
        lost.log_end_offset, topic, partition,
    )  # fmt: skip
