"""ZooKeeper was restored from an older backup: the controller raises the epochs that brokers refuse."""

from collections import defaultdict

import pytest

from odradek.controller.cluster import epochs
from odradek.controller.cluster.requests import LEADER_AND_ISR
from odradek.metadata import znodes
from odradek.protocol.errors import ErrorCode
from tests.controller.cluster.harness import Brokers, Cluster, leaders_of

STALE = ErrorCode.STALE_CONTROLLER_EPOCH
FENCED = ErrorCode.FENCED_LEADER_EPOCH


class WiserBrokers(Brokers):
    """Brokers that have seen newer epochs. ``controllers``: by broker id; ``leaders``: by broker id and partition."""

    def __init__(self):
        super().__init__()
        self.controllers = defaultdict(int)
        self.leaders = defaultdict(lambda: -1)

    def _response(self, broker_id, api_key, request):
        if request.controller_epoch < self.controllers[broker_id]:
            for topic in request.topic_states:
                for state in topic.partition_states:
                    self.failing.pop((broker_id, topic.topic_name, state.partition_index), None)
            response = super()._response(broker_id, api_key, request)
            response.error_code = STALE
            return response
        self.controllers[broker_id] = request.controller_epoch
        if api_key == LEADER_AND_ISR:
            for topic in request.topic_states:
                for state in topic.partition_states:
                    key = broker_id, topic.topic_name, state.partition_index
                    known = self.leaders[broker_id, state.partition_index]
                    self.failing[key] = FENCED if state.leader_epoch < known else 0
                    self.leaders[broker_id, state.partition_index] = max(known, state.leader_epoch)
        return super()._response(broker_id, api_key, request)


@pytest.fixture
def cluster():
    made = Cluster()
    made.tree.create_topic("t", {0: [1, 2, 3], 1: [2, 3, 1]})
    made.tree.put_state("t", 0, 1, [1, 2, 3], leader_epoch=4)
    made.tree.put_state("t", 1, 2, [2, 3], leader_epoch=4)
    made.brokers = WiserBrokers()
    made.controller = made.make_controller()
    return made


def epoch_of(cluster):
    return znodes.decode_controller_epoch(cluster.tree.store.get(znodes.CONTROLLER_EPOCH)[0])


@pytest.mark.parametrize("seen", [5, 6, 40, (1 << 31) - 1])
def test_a_leader_epoch_rises_above_what_a_broker_has_seen(cluster, seen):
    cluster.brokers.leaders[3, 0] = seen
    before = cluster.start().tree.state("t", 1).leader_epoch
    state = cluster.tree.state("t", 0)
    assert state.leader_epoch >= seen
    assert (state.leader, state.in_sync_replicas) == (1, [1, 2, 3])
    assert before == 4  # of the other partition, which no broker refused
    for broker_id in (1, 2, 3):
        assert cluster.brokers.leaders[broker_id, 0] == state.leader_epoch
    assert not cluster.controller.context.epoch_attempts


def test_an_answer_to_an_older_request_raises_nothing(cluster):
    cluster.start()
    partition = cluster.controller.context.find("t", 0)
    (request,) = [
        request for broker_id, key, request in cluster.brokers.sent if (broker_id, key) == (3, LEADER_AND_ISR)
    ]
    partition.state = partition.state._replace(leader_epoch=5)  # a newer request is on its way
    cluster.run(epochs.answered(cluster.controller.context, 3, request, [(partition, FENCED)]))
    assert cluster.tree.state("t", 0).leader_epoch == 4


def test_a_broker_of_kafka_that_refuses_the_epoch_that_it_has_proves_nothing(cluster):
    """Kafka answers STALE_CONTROLLER_EPOCH for the present leader epoch, too, which every new controller sends."""
    cluster.start()
    partition = cluster.controller.context.find("t", 0)
    (request,) = [
        request for broker_id, key, request in cluster.brokers.sent if (broker_id, key) == (3, LEADER_AND_ISR)
    ]
    cluster.run(epochs.answered(cluster.controller.context, 3, request, [(partition, STALE)]))
    assert cluster.tree.state("t", 0).leader_epoch == 4


@pytest.mark.parametrize("seen", [2, 3, 50])
def test_the_controller_epoch_rises_above_what_a_broker_has_seen(cluster, seen):
    cluster.brokers.controllers[2] = seen
    cluster.start()
    assert cluster.controller.active
    assert cluster.controller.context.epoch == epoch_of(cluster) >= seen
    assert set(cluster.brokers.controllers.values()) == {epoch_of(cluster)}
    assert {key for _, key in cluster.brokers.leaders} == {0, 1}  # every broker got its roles
    assert leaders_of(cluster.brokers.sent, 2)


def test_a_controller_begins_above_the_epoch_that_its_own_broker_has_seen(cluster):
    cluster.controller._seen_epoch = lambda: 30
    cluster.start()
    assert epoch_of(cluster) == cluster.controller.context.epoch == 31


def test_a_controller_that_was_followed_by_another_one_raises_no_epoch(cluster):
    cluster.start()
    cluster.tree.store.set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(9))  # by its successor
    cluster.controller._raise_epoch(2)
    cluster.settle()
    assert epoch_of(cluster) == cluster.controller.context.epoch == 10  # it was elected again
