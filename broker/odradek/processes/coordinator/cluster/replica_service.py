"""The replicas thread of the coordinator: the only writer of the partition table in a cluster.

It executes the controller's requests in the order in which they arrive, applies changed settings of topics to slots, and opens
logs that waited for disk space. Except where noted, all methods run in the replicas thread.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import odradek._ext.partition.slots as slots
import odradek.shm.truncation as truncation
from odradek._ext.net.arrivals import Arrival
from odradek._ext.shm.slot import SlotState
from odradek.api.api import Place
from odradek.api.cluster.replica_call import ReplicaCall
from odradek.api.permits import Permits, PermitsOf, unrestricted
from odradek.api.pipeline import NotServed, Pipeline
from odradek.api.row import ApiRow
from odradek.api.table import handlers_of
from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.controller.partitions import LocalPartitions, NoLogDirectory, topic_settings
from odradek.controller.topic_names import INTERNAL
from odradek.metadata.store import StoreError
from odradek.net.forward_frames import ForwardReply, Kind, Status
from odradek.processes.context import ProcessContext
from odradek.processes.coordinator.forwarded import ForwardedHost, refused
from odradek.processes.metering import UncountedErrors, uncounted_errors
from odradek.replication.replica_control import ReplicaControl, SettingsReader, TopicIdReader
from odradek.shm.partition_table import PartitionTable
from odradek.stepwise import Stepwise
from odradek.storage.file_names import marked_directory_name, partition_directory_name

log = logging.getLogger("odradek.replication")

handlers_of(Place.REPLICAS, clustered=True).import_all()  # in the supervisor, so that the coordinator imports nothing


class LocalLogs:
    """The directories of this broker's partitions, as `ReplicaControl` uses them. See `replica_control.Logs`."""

    def __init__(self, context: ProcessContext, table: PartitionTable) -> None:
        shm = context.shm
        self._context = context
        self._table = table
        self._partitions = LocalPartitions(
            table, context.config, context.config.node_id, lambda index: not shm.log_dir_offline(index)
        )

    def slot_settings(self, topic: str, settings: Mapping[str, str]) -> dict[str, int]:
        """See `Logs`. If a stored value is invalid, logs an error and returns the defaults of the broker."""
        config = self._context.config
        try:
            return topic_settings(config.topic_config(settings), config.node_id)
        except ConfigError as error:
            log.error(
                "topic %s uses the defaults of the broker, because one of its settings is invalid: %s", topic, error
            )
            return topic_settings(config.topic_defaults, config.node_id)

    def directory_of(self, topic: str, partition: int) -> int | None:
        """See `Logs`."""
        name = partition_directory_name(topic, partition)
        for index, path in enumerate(self._context.log_dirs):
            if not self._context.shm.log_dir_offline(index) and (path / name).is_dir():
                return index
        return None

    def emptiest(self) -> int | None:
        """See `Logs`."""
        try:
            return self._partitions.emptiest()
        except NoLogDirectory:
            return None

    def all_online(self) -> bool:
        """See `Logs`."""
        return not any(map(self._context.shm.log_dir_offline, range(len(self._context.log_dirs))))

    def open(self, slot: int) -> None:
        """See `Logs`."""
        self._partitions.open_one(slot)

    def opened(self) -> None:
        """See `Logs`."""
        self._partitions.end_report()

    def settle(self, slot: int) -> None:
        """See `Logs`."""
        truncation.settle(self._context.shm, self._context.log_dirs, slot)

    def delete(self, slot: int) -> None:
        """See `Logs`."""
        self._table.retire(slot)
        self._partitions.count_deleted(slots.log_of(slot)[3])

    def set_aside(self, slot: int) -> Path | None:
        """See `Logs`."""
        log_dir = slots.log_of(slot)[3]
        aside = self._table.set_aside(slot)
        self._partitions.count_deleted(log_dir)
        return aside

    def delete_directory(self, topic: str, partition: int, log_dir: int) -> None:
        """See `Logs`."""
        path = self._context.log_dirs[log_dir] / partition_directory_name(topic, partition)
        path.rename(path.with_name(marked_directory_name(topic, partition, "delete")))

    def forget(self, deleted: Mapping[str, Sequence[int]]) -> None:
        """See `Logs`."""
        self._partitions.forget(deleted)

    def open_waiting(self) -> list[int]:
        """Open the logs that waited for disk space and have it now. Returns the slots that are open."""
        waiting = self._partitions.to_open()
        for _, _, slot in waiting:
            self._partitions.open_one(slot)
        self._partitions.end_report()
        return [slot for _, _, slot in waiting if slots.state_of(slot) == SlotState.SLOT_ONLINE]


class _ReplicasHost(ForwardedHost):
    """See `Host`."""

    def __init__(self, config: BrokerConfig, permits_of: PermitsOf, control: ReplicaControl) -> None:
        super().__init__(config, permits_of, Place.REPLICAS)
        self._control = control

    def call(self, request: Arrival, row: ApiRow, version: int, permits: Permits) -> ReplicaCall:
        """See `Host`."""
        return ReplicaCall(version, request.context.client_id, request.context.peer, self._control)


class ReplicaService:
    """See the module.

    :param read_settings: reads the settings of topics in the store thread.
    :param has_partitions: reads in the store thread whether the cluster has partitions.
    :param read_topic_ids: reads the ids of topics in the store thread.
    :param permits_of: see `PermitsOf`; used only in the replicas thread.
    """

    def __init__(
        self,
        context: ProcessContext,
        read_settings: SettingsReader,
        has_partitions: Callable[[], bool],
        read_topic_ids: TopicIdReader,
        permits_of: PermitsOf = unrestricted,
    ) -> None:
        self._table = PartitionTable(context.shm, context.log_dirs)
        self._logs = LocalLogs(context, self._table)
        node_id = context.config.node_id
        self._control = ReplicaControl(
            self._table, self._logs, node_id, INTERNAL, read_settings, has_partitions, read_topic_ids
        )
        self._host = _ReplicasHost(context.config, permits_of, self._control)
        self._pipeline = Pipeline(self._host)
        self._shm = context.shm

    def open(self) -> None:
        """Announce what a predecessor may not have announced."""
        self._host.handlers.import_all()
        self._control.start()

    def serves(self, request: Arrival) -> bool:
        """Whether this service executes a forwarded request. May be called from any thread."""
        return request.kind == Kind.KAFKA and request.api_key in self._host.rows

    def execute(self, request: Arrival, report_errors: Callable[[UncountedErrors | None], None]) -> ForwardReply:
        """Execute one request of the controller and return the encoded response.

        Every reply but OK closes the controller's connection. The controller then repeats the request, and the repeated request
        completes what this one left.

        :param report_errors: called with the errors of the response that the loop must count in this process.
        """
        try:
            executed = Stepwise(self._pipeline.steps(request)).finish()
        except StoreError as error:
            context = request.context
            log.warning(
                "cannot execute %s of %s: what it needs from ZooKeeper cannot be read: %s; closing the connection, so "
                "that the controller repeats the request",
                self._host.rows[request.api_key].name, context.client, error, extra=context.log_fields,
            )  # fmt: skip
            return ForwardReply(Status.FAILED, 0)
        if isinstance(executed, NotServed):
            return refused(executed, request, log)
        report_errors(uncounted_errors(executed))
        return ForwardReply(Status.OK, self._shm.metadata_version, executed.data)

    def configure(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        """Apply the settings of topics to the slots of their partitions. :param topics: all settings of each topic, by name."""
        self._control.configure(topics)

    def give_up_leaderships(self) -> None:
        """See `ReplicaControl.give_up_leaderships`."""
        self._control.give_up_leaderships()

    def hosted_topics(self) -> dict[str, list[int]]:
        """The partitions whose log is on this broker, by topic."""
        return self._control.hosted()

    def open_waiting(self) -> bool:
        """Open the logs that waited for disk space and have it now. Returns whether any was opened: the controller must then
        assign their roles again."""
        return bool(self._logs.open_waiting())
