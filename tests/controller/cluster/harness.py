"""A controller on a store in memory, with brokers that only note what they receive."""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from odradek.config.listeners import Listener
from odradek.controller.cluster.cluster_controller import ClusterController, ControllerSettings
from odradek.controller.cluster.context import ControllerContext, LiveBroker
from odradek.controller.cluster.requests import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from odradek.metadata import znodes
from odradek.metadata.store import NodeExists, ensure_path
from odradek.protocol.schemas import leader_and_isr, stop_replica, update_metadata
from tests.controller.cluster.fake_zookeeper import FakeZooKeeper

NODES = (*znodes.PERSISTENT, "/admin")


def registration(broker_id, port=None):
    endpoint = Listener("PLAINTEXT", f"host{broker_id}", port or 9000 + broker_id, "PLAINTEXT")
    return znodes.BrokerRegistration([endpoint], None, 0)


def live(broker_id, epoch=1):
    return LiveBroker(broker_id, epoch, None, tuple(registration(broker_id).endpoints))


def make_context(brokers: Iterable[int] = (), broker_id=1, epoch=1):
    context = ControllerContext(broker_id, epoch, 0)
    context.add_brokers(live(broker) for broker in brokers)
    return context


def topic_id(name):
    return uuid.uuid5(uuid.NAMESPACE_OID, name)


class Tree:
    """The metadata tree, and a client that makes the changes of brokers and tools."""

    def __init__(self):
        self.zookeeper = FakeZooKeeper()
        self.store = self.zookeeper.client()
        self.store.start_session()
        for path in NODES:
            ensure_path(self.store, path)

    def register(self, broker_id, port=None):
        path = znodes.broker_path(broker_id)
        data = znodes.encode_broker(registration(broker_id, port))
        try:
            self.store.create(path, data)
        except NodeExists:
            self.store.set(path, data)

    def fail(self, broker_id):
        self.store.delete(znodes.broker_path(broker_id))

    def bounce(self, broker_id):
        self.fail(broker_id)
        self.register(broker_id)

    def create_topic(self, name, partitions: Mapping[int, Sequence[int]], config=None, with_id=True, **more):
        self.store.create(znodes.topic_config_path(name), znodes.encode_config(config or {}))
        assignment = znodes.TopicAssignment(topic_id(name) if with_id else None, partitions, **more)
        self.store.create(znodes.topic_path(name), znodes.encode_topic(assignment))

    def topic(self, name):
        return znodes.decode_topic(name, self.store.get(znodes.topic_path(name))[0])

    def put_state(self, name, index, leader, in_sync, leader_epoch=0, controller_epoch=0, recovery=0):
        state = znodes.PartitionState(controller_epoch, leader, leader_epoch, list(in_sync), recovery)
        path, data = znodes.state_path(name, index), znodes.encode_state(state)
        if self.store.exists(path) is None:
            self.store.create(path, data, make_parents=True)
        else:
            self.store.set(path, data)

    def state(self, name, index=0):
        return znodes.decode_state(name, index, self.store.get(znodes.state_path(name, index))[0])

    def summary(self, name, index=0):
        """(leader, in-sync replicas, leader epoch)"""
        state = self.state(name, index)
        return state.leader, state.in_sync_replicas, state.leader_epoch

    def exists(self, path):
        return self.store.exists(path) is not None


class Brokers:
    """`Channels` to brokers that note requests; they answer NONE when `answer` is called, or at once with ``prompt``."""

    def __init__(self, prompt=True):
        self.prompt = prompt
        self.sent = []  # (broker id, api key, request)
        self.waiting = []  # (broker id, api key, request, then)
        self.open_ids = set()
        self.history = []
        self.failing = {}  # (broker id, topic, partition) -> code

    def open(self, broker):
        self.close(broker.id)
        self.open_ids.add(broker.id)
        self.history.append(("open", broker.id, broker.epoch))

    def close(self, broker_id):
        self.open_ids.discard(broker_id)
        self.waiting = [entry for entry in self.waiting if entry[0] != broker_id]
        self.history.append(("close", broker_id, 0))

    def send(self, broker_id, api_key, request, then):
        if broker_id not in self.open_ids:
            return
        self.sent.append((broker_id, api_key, request))
        self.waiting.append((broker_id, api_key, request, then))
        if self.prompt:
            self.answer()

    def answer(self, broker_id=None):
        answered, self.waiting = self.waiting, []
        for entry in answered:
            if broker_id not in (None, entry[0]):
                self.waiting.append(entry)
                continue
            to, api_key, request, then = entry
            then(self._response(to, api_key, request))

    def _response(self, broker_id, api_key, request):
        if api_key == UPDATE_METADATA:
            return update_metadata.Response()
        if api_key == LEADER_AND_ISR:
            return leader_and_isr.Response(
                topics=[
                    leader_and_isr.Response.LeaderAndIsrTopicError(
                        topic_id=topic.topic_id,
                        partition_errors=[
                            leader_and_isr.Response.LeaderAndIsrPartitionError(
                                partition_index=state.partition_index,
                                error_code=self.failing.get((broker_id, topic.topic_name, state.partition_index), 0),
                            )
                            for state in topic.partition_states
                        ],
                    )
                    for topic in request.topic_states
                ]
            )
        return stop_replica.Response(
            partition_errors=[
                stop_replica.Response.StopReplicaPartitionError(
                    topic_name=topic.topic_name,
                    partition_index=state.partition_index,
                    error_code=self.failing.get((broker_id, topic.topic_name, state.partition_index), 0),
                )
                for topic in request.topic_states
                for state in topic.partition_states
            ]
        )

    def take(self):
        sent, self.sent = self.sent, []
        return sent


def leaders_of(sent, broker_id):
    """What a broker received with LeaderAndIsr, the last wins: {(topic, partition): (leader, in-sync, epoch, is new)}"""
    return {
        (topic.topic_name, state.partition_index): (state.leader, list(state.isr), state.leader_epoch, state.is_new)
        for to, api_key, request in sent
        if to == broker_id and api_key == LEADER_AND_ISR
        for topic in request.topic_states
        for state in topic.partition_states
    }


def stops_of(sent, broker_id):
    """What a broker received with StopReplica: [(topic, partition, leader epoch, delete)]."""
    return [
        (topic.topic_name, state.partition_index, state.leader_epoch, state.delete_partition)
        for to, api_key, request in sent
        if to == broker_id and api_key == STOP_REPLICA
        for topic in request.topic_states
        for state in topic.partition_states
    ]


def metadata_of(sent, broker_id):
    """What a broker received with UpdateMetadata: {(topic, partition): (leader, in-sync, offline)}, the last wins."""
    return {
        (topic.topic_name, state.partition_index): (state.leader, list(state.isr), list(state.offline_replicas))
        for to, api_key, request in sent
        if to == broker_id and api_key == UPDATE_METADATA
        for topic in request.topic_states
        for state in topic.partition_states
    }


class Cluster:
    """A tree, brokers, and one controller that is elected by `start`."""

    def __init__(self, brokers=(1, 2, 3), prompt=True, **settings):
        self.tree = Tree()
        self.settings = ControllerSettings(**settings)
        for broker_id in brokers:
            self.tree.register(broker_id)
        self.brokers = Brokers(prompt)
        self.controller = self.make_controller()

    def make_controller(self, broker_id=1):
        client = self.tree.zookeeper.client()
        client.start_session()
        counts = self.counts = Counter()
        return ClusterController(
            client, self.brokers, broker_id, lambda: self.settings,
            count=lambda name, number: counts.update({name: number}),
        )  # fmt: skip

    def start(self):
        self.controller.look()
        self.settle()
        return self

    def settle(self):
        while self.controller.process():
            pass

    def expire(self):
        """The session of the controller expires, and the controller does not notice. Returns the controller."""
        self.tree.zookeeper.expire(self.controller._store.session.id)
        return self.controller

    def failover(self, broker_id=1):
        """Another controller takes over."""
        zombie = self.expire()
        self.tree.zookeeper.clients.remove(zombie._store)
        zombie.resign()
        self.controller = self.make_controller(broker_id)
        return self.start()

    def run(self, steps):
        result = self.controller.run(steps)
        self.settle()
        return result

    def partition(self, name, index=0):
        return self.controller.context.find(name, index)
