"""Changes of many partitions in steps: any event may happen between two of them."""

import random
from types import SimpleNamespace

import pytest

from odradek.api.cluster import alter_partition_reassignments, elect_leaders
from odradek.config.broker_config import load
from odradek.controller.cluster import admin, deletion, in_sync, reassignment, topic_events
from odradek.controller.cluster.admin import ClusterAdmin, Reassignment
from odradek.controller.cluster.effects import PARTITIONS_A_STEP
from odradek.controller.cluster.leadership import PREFERRED
from odradek.controller.cluster.requests import UPDATE_METADATA
from odradek.controller.topics import NewPartitions, NewTopic
from odradek.metadata import znodes
from odradek.protocol.errors import ErrorCode as E
from odradek.protocol.schemas import alter_partition_reassignments as reassignments_schema
from odradek.protocol.schemas import elect_leaders as elect_leaders_schema
from odradek.stepwise import Stepwise
from tests.controller.cluster.harness import Cluster, leaders_of, metadata_of, stops_of

STEP = 2


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    for module in (topic_events, deletion, reassignment):
        monkeypatch.setattr(module, "PARTITIONS_A_STEP", STEP)


class Stepping(Cluster):
    """A cluster with the requests of clients. ``woken``: how often the controller wanted to continue."""

    def __init__(self, brokers=(1, 2, 3), prompt=True):
        self.woken = 0
        super().__init__(brokers, prompt)
        self.start()

    def make_controller(self, broker_id=1):
        controller = super().make_controller(broker_id)
        controller._wake = self._count_wake
        self.admin = ClusterAdmin(controller, load(None, ["broker.id=1"]), random.Random(broker_id))
        return controller

    def _count_wake(self):
        self.woken += 1

    def create(self, name="t", count=5, factor=2):
        (outcome,) = self.admin.create_topics([NewTopic(name, count, factor)])
        return outcome.code

    def step(self):
        """One turn of the controller. Returns whether it has more to do."""
        return self.controller.process()

    def states(self, name="t"):
        """The partitions whose state is written."""
        path = znodes.partitions_path(name)
        names = self.tree.store.children(path) if self.tree.exists(path) else []
        return sorted(int(index) for index in names if self.tree.exists(znodes.state_path(name, int(index))))


def join_in_sync(cluster, partition, replica):
    """The leader of a partition proposes that a replica joins the in-sync replicas; what is refused changes nothing."""
    leader = cluster.controller.context.brokers.get(partition.leader)
    if leader is None or replica in partition.in_sync:
        return
    members = [(member, -1) for member in (*partition.in_sync, replica)]
    proposal = in_sync.Proposal(partition, partition.state.leader_epoch, partition.partition_epoch, members)
    _, verdicts = cluster.admin.alter_partition(leader.id, leader.epoch, [proposal], 1)
    cluster.admin.after_alter_partition(verdicts)


def remove_nodes(cluster, name="t"):
    """Another program removes a topic."""
    for path in sorted(cluster.tree.zookeeper.nodes, reverse=True):
        if path.startswith(znodes.topic_path(name)):
            cluster.tree.store.delete(path)


def announced(sent, broker_id=1, name="t"):
    """The partitions in each UpdateMetadata that a broker received for a topic."""
    requests = [
        sorted(index for topic, index in metadata_of([entry], broker_id) if topic == name)
        for entry in sent
        if entry[1] == UPDATE_METADATA
    ]
    return [indexes for indexes in requests if indexes]


def test_the_partitions_of_a_topic_are_created_some_at_a_time_and_announced_together():
    cluster = Stepping()
    assert cluster.create(count=5) == E.NONE
    assert cluster.states() == []
    assert cluster.woken
    written = []
    for _ in range(2):
        cluster.woken = 0
        cluster.step()
        assert cluster.woken
        written.append(cluster.states())
        assert not announced(cluster.brokers.sent)
    assert written == [[0, 1], [0, 1, 2, 3]]
    cluster.settle()
    assert cluster.states() == [0, 1, 2, 3, 4]
    sent = cluster.brokers.take()
    assert announced(sent) == [[0, 1, 2, 3, 4]]
    assert {index for broker_id in (1, 2, 3) for _, index in leaders_of(sent, broker_id)} == set(range(5))
    assert cluster.controller.context.unannounced == set()
    assert not cluster.step()


def test_a_step_writes_no_more_states_than_its_limit():
    cluster = Stepping()
    cluster.create(count=7)
    before = 0
    more = True
    while more:
        more = cluster.step()
        now = len(cluster.states())
        assert now - before <= STEP
        before = now
    assert before == 7
    assert 2 * PARTITIONS_A_STEP <= 500, "the states of a step are one transaction"


def test_a_small_topic_does_not_wait_for_the_steps_of_a_large_one():
    cluster = Stepping()
    cluster.create("large", count=50)
    cluster.step()
    cluster.create("small", count=2)
    assert cluster.states("small") == [0, 1]
    assert cluster.create("medium", count=4) == E.NONE
    for _ in range(4):
        cluster.step()
    assert cluster.states("medium") == [0, 1, 2, 3]  # the topics take turns
    assert len(cluster.states("large")) < 10
    cluster.settle()
    assert len(cluster.states("large")) == 50


def test_partitions_that_are_added_meanwhile_are_announced_with_the_others():
    cluster = Stepping()
    cluster.create(count=5)
    cluster.step()
    (outcome,) = cluster.admin.create_partitions([NewPartitions("t", 6)])
    assert outcome.code == E.NONE
    cluster.settle()
    assert announced(cluster.brokers.take()) == [list(range(6))]


def test_new_partitions_of_a_topic_are_hidden_and_its_other_partitions_are_not():
    cluster = Stepping()
    cluster.create(count=2)
    cluster.settle()
    cluster.brokers.take()
    cluster.admin.create_partitions([NewPartitions("t", 7)])
    cluster.step()
    cluster.tree.fail(3)
    cluster.step()
    shown = {index for indexes in announced(cluster.brokers.take()) for index in indexes}
    assert shown <= {0, 1}
    cluster.settle()
    assert announced(cluster.brokers.take())[-1] == [2, 3, 4, 5, 6]


def test_a_topic_that_is_deleted_while_it_is_created():
    cluster = Stepping(prompt=False)
    cluster.create(count=9)
    cluster.step()
    cluster.step()
    (outcome,) = cluster.admin.delete_topics(["t"])
    assert outcome.code == E.NONE
    assert not cluster.controller.context.beginning and not cluster.controller.context.unannounced
    assert cluster.create(count=1) == E.TOPIC_ALREADY_EXISTS
    finish(cluster)
    assert not cluster.tree.exists(znodes.topic_path("t"))
    assert cluster.create(count=3) == E.NONE
    finish(cluster)
    assert cluster.states() == [0, 1, 2]


def test_a_topic_whose_node_is_removed_while_it_is_created():
    cluster = Stepping()
    cluster.create(count=9)
    cluster.step()
    remove_nodes(cluster)
    cluster.settle()
    assert cluster.controller.context.topics == {}
    assert not cluster.controller.context.beginning and not cluster.controller.context.unannounced
    assert not cluster.states()


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("event", ["fail", "bounce", "register"])
def test_brokers_that_come_and_go_meanwhile(steps, event):
    cluster = Stepping((1, 2, 3) if event != "register" else (1, 2))
    cluster.create(count=7, factor=2)
    for _ in range(steps):
        cluster.step()
    getattr(cluster.tree, event)(3)
    cluster.settle()
    if event == "fail":
        assert all(cluster.tree.state("t", index).leader in (1, 2) for index in range(7))
        cluster.tree.register(3)
        cluster.settle()
    else:
        assert all(cluster.tree.state("t", index).leader > 0 for index in range(7))
    to = 3 if event == "register" else 1
    shown = {index for indexes in announced(cluster.brokers.take(), to) for index in indexes}
    assert shown == set(range(7))


def test_partitions_without_a_live_replica_wait_for_a_broker():
    cluster = Stepping()
    cluster.tree.create_topic("t", {0: [1], 1: [9], 2: [2], 3: [9], 4: [3]})
    cluster.step()
    cluster.step()
    cluster.tree.register(9)
    cluster.settle()
    assert cluster.states() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("steps", range(5))
def test_a_successor_creates_the_rest(steps):
    cluster = Stepping()
    assert cluster.create(count=7) == E.NONE
    for _ in range(steps):
        cluster.step()
    old = cluster.controller
    later = list(old._later)
    cluster.failover(2)
    assert not old._later and (later or steps > 3)
    assert cluster.states() == list(range(7))
    assert {index for indexes in announced(cluster.brokers.take(), 3) for index in indexes} == set(range(7))


def test_a_deposed_controller_writes_no_later_step():
    cluster = Stepping()
    cluster.create(count=7)
    cluster.step()
    zombie = cluster.controller
    cluster.tree.store.delete(znodes.CONTROLLER)
    cluster.make_controller(2).look()
    assert cluster.states() == list(range(7))  # of the successor
    zombie._queue.clear()  # it does not know yet
    written = len(cluster.tree.zookeeper.log)
    assert zombie.active and zombie._later
    zombie.process()
    assert not zombie.active and not zombie._later
    assert cluster.tree.zookeeper.log[written:] == []


def test_requests_for_partitions_that_are_being_created():
    cluster = Stepping()
    cluster.create(count=6)
    ((code, message),) = cluster.admin.alter_reassignments([Reassignment("t", 5, [3, 2])])
    assert code == E.REQUEST_TIMED_OUT and "is being created" in message
    (result,) = cluster.admin.elect_leaders([("t", 5)], PREFERRED)
    assert result.code == E.ELECTION_NOT_NEEDED
    cluster.settle()
    assert cluster.tree.state("t", 5).leader > 0


# -- deletion ---------------------------------------------------------------------------------------------------------


def finish(cluster):
    """The brokers answer, and the controller works, until there is nothing to do."""
    more = True
    while more or cluster.brokers.waiting:
        cluster.brokers.answer()
        more = cluster.step()


def with_topic(count=7, prompt=True):
    cluster = Stepping(prompt=prompt)
    cluster.create(count=count)
    finish(cluster)
    cluster.brokers.take()
    return cluster


def test_a_topic_is_deleted_some_partitions_at_a_time():
    cluster = with_topic(prompt=False)
    nodes = len(cluster.tree.zookeeper.nodes)
    assert cluster.admin.delete_topics(["t"])[0].code == E.NONE
    assert announced(cluster.brokers.sent) == [list(range(7))]  # the topic is invisible at once
    more = True
    while more or cluster.brokers.waiting:
        stopped = len([entry for broker_id in (1, 2, 3) for entry in stops_of(cluster.brokers.take(), broker_id)])
        assert stopped <= 2 * STEP
        cluster.brokers.answer()
        more = cluster.step()
        assert nodes - len(cluster.tree.zookeeper.nodes) <= 2 * STEP + 5
        nodes = len(cluster.tree.zookeeper.nodes)
    assert not any(path.startswith(znodes.topic_path("t")) for path in cluster.tree.zookeeper.nodes)
    assert not cluster.tree.exists(znodes.delete_topic_path("t"))


@pytest.mark.parametrize("steps", range(0, 14, 2))
def test_a_successor_deletes_the_rest(steps):
    cluster = with_topic()
    cluster.admin.delete_topics(["t"])
    for _ in range(steps):
        cluster.step()
    cluster.failover(2)
    finish(cluster)
    assert not any(path.startswith(znodes.topic_path("t")) for path in cluster.tree.zookeeper.nodes)
    assert not cluster.controller.context.topics


@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("steps", range(0, 14, 2))
def test_a_broker_that_fails_while_a_topic_is_deleted(steps, prompt):
    cluster = with_topic(prompt=prompt)
    cluster.admin.delete_topics(["t"])
    for _ in range(steps):
        cluster.step()
    cluster.tree.fail(2)
    finish(cluster)
    cluster.tree.register(2)
    finish(cluster)
    assert not cluster.tree.exists(znodes.topic_path("t"))
    assert not cluster.controller.context.topics and not cluster.controller.context.deleting


def test_the_deletion_of_a_topic_that_another_program_removes_meanwhile():
    for steps in range(12):
        cluster = with_topic()
        cluster.admin.delete_topics(["t"])
        for _ in range(steps):
            cluster.step()
        remove_nodes(cluster)
        finish(cluster)
        assert not cluster.controller.context.topics
        cluster.create(count=1)
        assert cluster.states() == [0]


# -- reassignments ----------------------------------------------------------------------------------------------------


def assignments(cluster, name="t"):
    topic = cluster.tree.topic(name)
    return topic.partitions, topic.adding, topic.removing


def test_reassignments_are_written_together_and_begin_some_at_a_time():
    cluster = Stepping((1, 2, 3, 4))
    cluster.tree.create_topic("t", {index: [1, 2] for index in range(7)})
    cluster.settle()
    cluster.brokers.take()
    answers = cluster.admin.alter_reassignments([Reassignment("t", index, [3, 4]) for index in range(7)])
    assert answers == [(E.NONE, None)] * 7
    assert assignments(cluster)[1] == {index: [3, 4] for index in range(7)}
    begun = [index for index in range(7) if cluster.tree.state("t", index).leader_epoch]
    assert begun == [0, 1]
    cluster.settle()
    assert all(cluster.tree.state("t", index).leader_epoch == 1 for index in range(7))
    assert {index for _, index in leaders_of(cluster.brokers.take(), 4)} == set(range(7))


def test_a_reassignment_that_is_cancelled_before_its_step_begins():
    cluster = Stepping((1, 2, 3, 4))
    cluster.tree.create_topic("t", {index: [1, 2] for index in range(7)})
    cluster.settle()
    cluster.admin.alter_reassignments([Reassignment("t", index, [3, 4]) for index in range(7)])
    cluster.brokers.take()
    cluster.admin.alter_reassignments([Reassignment("t", 6, None)])
    cluster.settle()
    assert assignments(cluster)[0][6] == [1, 2]
    sent = cluster.brokers.take()
    assert ("t", 6) not in leaders_of(sent, 4)
    assert ("t", 5) in leaders_of(sent, 4)


@pytest.mark.parametrize("steps", range(4))
def test_a_cancelled_reassignment_leaves_nothing_for_a_successor(steps):
    """The nodes do not name the replicas that were added, so the successor cannot remove them."""
    cluster = Stepping((1, 2, 3, 4))
    cluster.tree.create_topic("t", {index: [1, 2] for index in range(7)})
    cluster.settle()
    cluster.admin.alter_reassignments([Reassignment("t", index, [3, 4]) for index in range(7)])
    cluster.settle()
    for index in range(7):
        join_in_sync(cluster, cluster.partition("t", index), 4)
    cluster.brokers.take()
    cluster.admin.alter_reassignments([Reassignment("t", index, None) for index in range(7)])
    for _ in range(steps):
        cluster.step()
    cluster.failover(2)
    cluster.settle()
    for index in range(7):
        partition = cluster.partition("t", index)
        assert set(partition.in_sync) <= set(partition.replicas) == {1, 2}
    assert {index for _, index, _, _ in stops_of(cluster.brokers.take(), 4)} == set(range(7))


def test_reassignments_in_steps_answer_the_rest_with_the_loss_of_the_role(monkeypatch):
    monkeypatch.setattr(admin, "REASSIGNED_A_STEP", 3)
    cluster = Stepping((1, 2, 3, 4))
    cluster.tree.create_topic("t", {index: [1, 2] for index in range(7)})
    cluster.settle()
    steps = cluster.admin.alter_reassignments_in_steps([Reassignment("t", index, [3, 4]) for index in range(7)])
    next(steps)
    cluster.controller.resign()
    next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert [code for code, _ in end.value.value] == [E.NONE] * 3 + [E.NOT_CONTROLLER] * 4


class Asking(Stepping):
    """Executes requests with the handlers of their APIs."""

    def ask(self, handler, request, version, between=lambda: None):
        """The response, and the number of steps. :param between: called after the first step."""
        call = SimpleNamespace(version=version, view=SimpleNamespace(cluster=self.admin))
        job, steps = Stepwise(handler(request, call)), 1
        while job.step():
            if steps == 1:
                between()
            steps += 1
        return job.result, steps


def elections(result):
    return {
        (topic.topic, partition.partition_id): partition.error_code
        for topic in result.replica_election_results
        for partition in topic.partition_result
    }


@pytest.fixture
def unbalanced(monkeypatch):
    """Other leaders than the preferred ones lead seven of nine partitions."""
    monkeypatch.setattr(elect_leaders, "STEP", 3)
    cluster = Asking()
    cluster.tree.create_topic("t", {index: [2, 1] for index in range(9)})
    cluster.settle()
    for index in range(7):
        cluster.tree.put_state("t", index, leader=1, in_sync=[1, 2], leader_epoch=1)
    cluster.failover()
    return cluster


ALL = elect_leaders_schema.Request(topic_partitions=None)
NAMED = elect_leaders_schema.Request(
    topic_partitions=[elect_leaders_schema.Request.TopicPartitions(topic="t", partitions=list(range(9)))]
)


@pytest.mark.parametrize("request_", [ALL, NAMED], ids=["all partitions", "named partitions"])
def test_elections_take_turns_with_other_work(unbalanced, request_):
    response, steps = unbalanced.ask(elect_leaders.handle, request_, 2)
    expected = {("t", index): E.NONE for index in range(7)}
    if request_ is NAMED:
        expected |= {("t", index): E.ELECTION_NOT_NEEDED for index in (7, 8)}
    assert elections(response) == expected and steps == 3
    assert {unbalanced.tree.state("t", index).leader for index in range(9)} == {2}


@pytest.mark.parametrize("request_", [ALL, NAMED], ids=["all partitions", "named partitions"])
def test_elections_that_the_loss_of_the_role_prevents_have_its_error(unbalanced, request_):
    response, _ = unbalanced.ask(elect_leaders.handle, request_, 2, between=unbalanced.controller.resign)
    codes = elections(response)
    assert [codes["t", index] for index in range(9)] == [E.NONE] * 3 + [E.NOT_CONTROLLER] * 6
    response, _ = unbalanced.ask(elect_leaders.handle, request_, 2)
    assert response.error_code == E.NOT_CONTROLLER and not response.replica_election_results


def test_partitions_that_are_deleted_between_two_steps_are_not_in_the_response_for_all(unbalanced):
    def delete():
        unbalanced.tree.store.create(znodes.delete_topic_path("t"))
        finish(unbalanced)

    response, _ = unbalanced.ask(elect_leaders.handle, ALL, 2, between=delete)
    assert elections(response) == {("t", index): E.NONE for index in range(3)}


def test_reassignments_of_a_request_are_planned_in_steps(monkeypatch):
    monkeypatch.setattr(admin, "REASSIGNED_A_STEP", 3)
    cluster = Asking((1, 2, 3, 4))
    cluster.tree.create_topic("t", {index: [1, 2] for index in range(7)})
    cluster.settle()
    make = reassignments_schema.Request
    partitions = [make.ReassignablePartition(partition_index=index, replicas=[3, 4]) for index in range(8)]
    request = make(topics=[make.ReassignableTopic(name="t", partitions=partitions)], timeout_ms=1)
    response, steps = cluster.ask(alter_partition_reassignments.handle, request, 1)
    codes = [partition.error_code for topic in response.responses for partition in topic.partitions]
    assert codes == [E.NONE] * 7 + [E.UNKNOWN_TOPIC_OR_PARTITION] and steps == 3
    assert assignments(cluster)[1] == {index: [3, 4] for index in range(7)}


# -- all together -----------------------------------------------------------------------------------------------------


class Shown:
    """What a broker announces to clients: the partitions of each topic, by its id."""

    def __init__(self, broker_id):
        self.broker_id = broker_id
        self.topics = {}

    def receive(self, sent):
        for to, api_key, request in sent:
            if to != self.broker_id or api_key != UPDATE_METADATA:
                continue
            for topic in request.topic_states:
                shown = self.topics.setdefault(topic.topic_id, set())
                for state in topic.partition_states:
                    (shown.discard if state.leader == -2 else shown.add)(state.partition_index)

    def check(self, sizes, controller):
        """Clients see all partitions that a topic had after one of its changes, or none. Partitions of a topic that is being
        deleted may become invisible one after the other."""
        context = controller.context
        kept = {topic.id_bytes for name, topic in context.topics.items() if name not in context.deleting}
        for topic_id, shown in self.topics.items():
            if topic_id not in kept:
                continue
            assert shown == set(range(len(shown))), "partitions are missing"
            assert not shown or len(shown) in sizes[topic_id]


@pytest.mark.parametrize("seed", range(100))
def test_any_order_of_changes_and_failures_between_the_steps(seed):
    rng = random.Random(seed)
    cluster = Stepping(prompt=bool(seed % 3))
    shown, sizes = Shown(2), {}
    names = ["a", "b"]

    def note(name, count):
        topic = cluster.controller.context and cluster.controller.context.topics.get(name)
        if topic is not None:
            sizes.setdefault(topic.id_bytes, set()).add(count)

    def create():
        name, count = rng.choice(names), rng.randrange(1, 9)
        if cluster.create(name, count, 1 + (len(cluster.admin._context().live) > 1)) == E.NONE:
            note(name, count)

    def grow():
        name = rng.choice(names)
        topic = cluster.controller.context.topics.get(name)
        if topic is not None:
            count = len(topic.partitions) + rng.randrange(1, 6)
            (outcome,) = cluster.admin.create_partitions([NewPartitions(name, count)])
            if outcome.code == E.NONE:
                note(name, count)

    def delete():
        cluster.admin.delete_topics([rng.choice(names)])

    def reassign():
        name = rng.choice(names)
        count = rng.randrange(1, 9)
        target = rng.choice([[1, 2], [2, 3], [3, 1], None])
        cluster.admin.alter_reassignments([Reassignment(name, index, target) for index in range(count)])

    def elect():
        cluster.admin.elect_leaders([(name, index) for name in names for index in range(4)], PREFERRED)

    def fail():
        if cluster.tree.exists(znodes.broker_path(3)):
            cluster.tree.fail(3)

    def register():
        if not cluster.tree.exists(znodes.broker_path(3)):
            cluster.tree.register(3)

    def failover():
        cluster.failover(rng.choice((1, 2)))

    def join():
        context = cluster.controller.context
        partitions = [partition for partition in context.partitions() if partition.leader > 0] if context else []
        for partition in rng.sample(partitions, min(len(partitions), 6)):
            join_in_sync(cluster, partition, rng.choice(partition.replicas))

    actions = [create, create, grow, delete, reassign, elect, fail, register, failover, join, join]
    for _ in range(60):
        if rng.random() < 0.5:
            rng.choice(actions)()
        if rng.random() < 0.5:
            cluster.brokers.answer()
        if rng.random() < 0.8:
            cluster.step()
        shown.receive(cluster.brokers.take())
        shown.check(sizes, cluster.controller)
    register()
    finish(cluster)
    cluster.tree.bounce(3)  # retries deletions that a broker could not do
    finish(cluster)
    shown.receive(cluster.brokers.take())
    shown.check(sizes, cluster.controller)
    context = cluster.controller.context
    assert not context.beginning and not context.unannounced and not context.deleting
    for name, topic in context.topics.items():
        assert sorted(topic.partitions) == cluster.states(name) == list(range(len(topic.partitions)))
        for partition in topic.partitions.values():
            assert partition.leader in partition.in_sync
            assert set(partition.in_sync) <= set(partition.replicas)
        assert shown.topics[topic.id_bytes] == set(topic.partitions)
    present = {path.split("/")[3] for path in cluster.tree.zookeeper.nodes if path.startswith(f"{znodes.TOPICS}/")}
    assert present == set(context.topics)
