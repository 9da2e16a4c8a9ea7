"""The requests of the controller to the brokers, collected during an event and built once per broker.

Pure; used in the coordinator's store thread. A broker receives, in this order, LeaderAndIsr, UpdateMetadata and StopReplica,
each at most once per batch. Objects of partition states are shared by the requests of all brokers, because only the receiver's
broker epoch differs.
"""

from collections.abc import Iterable

from odradek.config.listeners import SECURITY_PROTOCOLS
from odradek.controller.cluster.context import ControllerContext, Partition, Topic
from odradek.controller.cluster.effects import Outgoing
from odradek.metadata.znodes import PartitionState
from odradek.protocol.schemas import leader_and_isr, stop_replica, update_metadata

LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA = leader_and_isr.API_KEY, update_metadata.API_KEY, stop_replica.API_KEY
VERSIONS = {LEADER_AND_ISR: 7, UPDATE_METADATA: 8, STOP_REPLICA: 4}
"""The versions that a controller of inter-broker protocol 3.9 sends, without negotiation."""

LEADER_DURING_DELETE, EPOCH_DURING_DELETE, NO_EPOCH = -2, -2, -1

_LeaderState = leader_and_isr.Request.LeaderAndIsrPartitionState
_UpdateState = update_metadata.Request.UpdateMetadataPartitionState
_StopState = stop_replica.Request.StopReplicaPartitionState


class RequestBatch:
    """The requests of one event. The state of a partition is read when the requests are built (`take`), except for `stop`."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._leaders: dict[int, dict[Partition, bool]] = {}  # by broker: partitions and whether the replica is new
        self._stops: dict[int, dict[Partition, tuple[int, bool]]] = {}  # leader epoch, and whether to delete
        self._updated: dict[Partition, None] = {}
        self._update_brokers: set[int] = set()

    def lead(self, brokers: Iterable[int], partition: Partition, is_new: bool = False) -> None:
        """Send the state of a partition to replicas with LeaderAndIsr, and to all brokers with UpdateMetadata."""
        for broker_id in brokers:
            states = self._leaders.setdefault(broker_id, {})
            states[partition] = is_new or states.get(partition, False)
        self.update_all((partition,))

    def stop(self, broker_id: int, partition: Partition, delete: bool) -> None:
        """Stop a replica with StopReplica, and delete it if ``delete``.

        The request contains the present leader epoch, which the replica knows, also if the partition changes before `take`.
        """
        states = self._stops.setdefault(broker_id, {})
        _, deleted = states.get(partition, (NO_EPOCH, False))
        states[partition] = self._stop_epoch(partition), delete or deleted

    def update(self, brokers: Iterable[int], partitions: Iterable[Partition]) -> None:
        """Send the live brokers and these partitions with UpdateMetadata.

        All brokers of the batch receive all its partitions.
        """
        self._update_brokers.update(brokers)
        self._updated.update(dict.fromkeys(partitions))

    def update_all(self, partitions: Iterable[Partition]) -> None:
        """`update` for all live brokers and those that are shutting down."""
        self._update_brokers |= self._context.brokers.keys()
        self._updated.update(dict.fromkeys(partitions))

    def take(self) -> list[Outgoing]:
        """Build the requests and clear the batch. Brokers that are not registered receive none."""
        known = self._context.brokers
        requests: list[Outgoing] = []
        if self._leaders:
            built: dict[tuple[Partition, bool], _LeaderState] = {}
            for broker_id, states in self._leaders.items():
                if broker_id in known:
                    requests.append(self._leader_and_isr(broker_id, states, built))
        receivers = sorted(self._update_brokers & known.keys())
        if receivers:
            requests += self._update_metadata(receivers)
        for broker_id, stops in self._stops.items():
            if broker_id in known:
                requests.append(self._stop_replica(broker_id, stops))
        self._leaders, self._stops, self._updated, self._update_brokers = {}, {}, {}, set()
        return requests

    # -- building -------------------------------------------------------------------------------------------------

    def _outgoing(self, broker_id: int, api_key: int, request: object) -> Outgoing:
        return Outgoing(broker_id, self._context.brokers[broker_id].epoch, api_key, request)

    def _leader_and_isr(
        self, broker_id: int, states: dict[Partition, bool], built: dict[tuple[Partition, bool], _LeaderState]
    ) -> Outgoing:
        context = self._context
        topics: dict[Topic, list[_LeaderState]] = {}
        leaders: set[int] = set()
        for partition, is_new in states.items():
            state = partition.state
            if state is None:
                continue
            leaders.add(state.leader)
            message = built.get((partition, is_new))
            if message is None:
                message = built[partition, is_new] = _leader_state(partition, state, is_new)
            messages = topics.get(partition.topic)
            if messages is None:
                messages = topics[partition.topic] = []
            messages.append(message)
        live_leaders = []
        for leader in sorted(leaders & context.brokers.keys()):
            endpoint = context.brokers[leader].endpoint(context.listener_name)
            if endpoint is not None:
                live_leaders.append(
                    leader_and_isr.Request.LeaderAndIsrLiveLeader(
                        broker_id=leader, host_name=endpoint.host, port=endpoint.port
                    )
                )
        request = leader_and_isr.Request(
            controller_id=context.broker_id,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker_id].epoch,
            topic_states=[
                leader_and_isr.Request.LeaderAndIsrTopicState(
                    topic_name=topic.name, topic_id=topic.id_bytes, partition_states=messages
                )
                for topic, messages in topics.items()
            ],
            live_leaders=live_leaders,
        )
        return self._outgoing(broker_id, LEADER_AND_ISR, request)

    def _update_metadata(self, receivers: list[int]) -> list[Outgoing]:
        context = self._context
        topics: dict[Topic, list[_UpdateState]] = {}
        for partition in self._updated:
            if partition.state is not None and partition not in context.unannounced:
                topics.setdefault(partition.topic, []).append(self._update_state(partition, partition.state))
        topic_states = [
            update_metadata.Request.UpdateMetadataTopicState(
                topic_name=topic.name, topic_id=topic.id_bytes, partition_states=messages
            )
            for topic, messages in topics.items()
        ]
        live_brokers = live_broker_messages(context)
        return [
            self._outgoing(
                broker_id,
                UPDATE_METADATA,
                update_metadata.Request(
                    controller_id=context.broker_id,
                    controller_epoch=context.epoch,
                    broker_epoch=context.brokers[broker_id].epoch,
                    topic_states=topic_states,
                    live_brokers=live_brokers,
                ),
            )
            for broker_id in receivers
        ]

    def _update_state(self, partition: Partition, state: PartitionState) -> _UpdateState:
        context = self._context
        deleting = partition.topic.name in context.deleting
        online = context.online_for(partition)
        return _UpdateState(
            partition_index=partition.index,
            controller_epoch=state.controller_epoch,
            leader=LEADER_DURING_DELETE if deleting else state.leader,
            leader_epoch=0 if deleting else state.leader_epoch,
            isr=state.in_sync_replicas,
            zk_version=0 if deleting else partition.partition_epoch,
            replicas=partition.replicas,
            offline_replicas=[replica for replica in partition.replicas if replica not in online],
        )

    def _stop_epoch(self, partition: Partition) -> int:
        if self._context.is_deleting(partition):
            return EPOCH_DURING_DELETE
        return NO_EPOCH if partition.state is None else partition.state.leader_epoch

    def _stop_replica(self, broker_id: int, stops: dict[Partition, tuple[int, bool]]) -> Outgoing:
        context = self._context
        topics: dict[Topic, list[_StopState]] = {}
        for partition, (leader_epoch, delete) in stops.items():
            topics.setdefault(partition.topic, []).append(
                _StopState(partition_index=partition.index, leader_epoch=leader_epoch, delete_partition=delete)
            )
        request = stop_replica.Request(
            controller_id=context.broker_id,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker_id].epoch,
            topic_states=[
                stop_replica.Request.StopReplicaTopicState(topic_name=topic.name, partition_states=messages)
                for topic, messages in topics.items()
            ],
        )
        return self._outgoing(broker_id, STOP_REPLICA, request)


def _leader_state(partition: Partition, state: PartitionState, is_new: bool) -> _LeaderState:
    return _LeaderState(
        partition_index=partition.index,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.in_sync_replicas,
        partition_epoch=partition.partition_epoch,
        replicas=partition.replicas,
        adding_replicas=partition.adding,
        removing_replicas=partition.removing,
        is_new=is_new,
        leader_recovery_state=state.leader_recovery_state,
    )


def live_broker_messages(context: ControllerContext) -> list[update_metadata.Request.UpdateMetadataBroker]:
    """The registered brokers, also those that are shutting down, as UpdateMetadata contains them."""
    return [
        update_metadata.Request.UpdateMetadataBroker(
            id=broker.id,
            rack=broker.rack,
            endpoints=[
                update_metadata.Request.UpdateMetadataEndpoint(
                    port=endpoint.port,
                    host=endpoint.host,
                    listener=endpoint.name,
                    security_protocol=SECURITY_PROTOCOLS.index(endpoint.protocol),
                )
                for endpoint in broker.endpoints
            ],
        )
        for _, broker in sorted(context.brokers.items())
    ]
