"""Topics and partitions are created in steps, between which the controller makes other changes; clients see all or nothing."""

import pytest

from odradek._ext.partition import slots
from odradek._ext.shm.topics import TopicDirectory
from odradek.controller import controller, topics
from odradek.controller.image import load_image
from odradek.controller.topics import NewPartitions, NewTopic, Refusal
from odradek.protocol.errors import ErrorCode
from odradek.stepwise import MUST_GO_ON, Stepwise
from tests.controller.mortal_cluster import single_broker

PARTITIONS = 12


@pytest.fixture
def make_cluster(tmp_path):
    with single_broker(tmp_path) as make:
        yield make


@pytest.fixture
def cluster(make_cluster, monkeypatch):
    """A broker with the topic `old`, whose controller works in very small steps."""
    monkeypatch.setattr(controller, "OPENED_A_STEP", 2)
    monkeypatch.setattr(controller, "PLANNED_A_STEP", 5)
    monkeypatch.setattr(topics, "OPERATIONS_A_TRANSACTION", 8)
    cluster = make_cluster()
    cluster.controller.create_topics([NewTopic("old", 2)])
    return cluster


def visible():
    """{topic: number of partitions} as a worker sees them."""
    directory = TopicDirectory()
    directory.refresh()
    return {name.decode(): topic.count for name, topic in directory.by_name.items()}


def codes(outcomes):
    return {outcome.name: ErrorCode(outcome.code).name for outcome in outcomes}


CHANGES = {
    "create": (lambda cluster: cluster.controller.create_topics_in_steps([NewTopic("new", PARTITIONS)]), "new"),
    "grow": (lambda cluster: cluster.controller.create_partitions_in_steps([NewPartitions("old", PARTITIONS)]), "old"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_changes_are_made_between_the_steps_and_clients_see_the_topic_at_the_end(cluster, change):
    begin, name = CHANGES[change]
    job = Stepwise(begin(cluster))
    before, number = visible(), 0
    while job.step():
        number += 1
        assert visible() == before
        assert codes(cluster.controller.create_topics([NewTopic(f"other-{number}")])) == {f"other-{number}": "NONE"}
        before = visible()
        assert f"other-{number}" in before
        assert cluster.controller.image.topics.keys() == before.keys()
    assert codes(job.result) == {name: "NONE"}
    assert visible() == before | {name: PARTITIONS}
    assert cluster.served()[name] == list(range(PARTITIONS))
    assert number >= PARTITIONS // 2


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_the_same_topic_are_refused_between_the_steps_and_work_afterwards(cluster, change):
    begin, name = CHANGES[change]
    job = Stepwise(begin(cluster))
    busy = {name: "REQUEST_TIMED_OUT"}
    while job.step():
        made = cluster.controller
        assert codes(made.create_topics([NewTopic(name)])) == {name: "TOPIC_ALREADY_EXISTS"}
        assert codes(made.create_partitions([NewPartitions(name, PARTITIONS + 1)])) == busy
        assert codes(made.delete_topics([name])) == busy
        assert codes([made.alter_topic(name, lambda _: {"retention.ms": "1"})]) == busy
        (outcome,) = made.auto_create([name])
        assert outcome.code == (ErrorCode.NONE if change == "grow" else ErrorCode.LEADER_NOT_AVAILABLE)
    assert codes(cluster.controller.create_partitions([NewPartitions(name, PARTITIONS + 1)])) == {name: "NONE"}
    assert codes([cluster.controller.alter_topic(name, lambda _: {"retention.ms": "1"})]) == {name: "NONE"}
    assert codes(cluster.controller.delete_topics([name])) == {name: "NONE"}


@pytest.mark.parametrize("change", CHANGES)
def test_a_successor_completes_a_change_whose_controller_died_between_two_steps(cluster, change):
    begin, name = CHANGES[change]
    # Of each attempt, the process dies one step later. A topic of the attempts before was completed, and is deleted.
    for steps in range(1, 100):
        job = Stepwise(begin(cluster))
        finished = False
        for _ in range(steps):
            finished = finished or not job.step()
        if finished:
            break
        stored = name in load_image(cluster.store).topics
        cluster.succeed()
        count = len(load_image(cluster.store).topics[name].assignment.partitions) if stored else 0
        assert visible().get(name, 0) == count
        assert cluster.served().get(name, []) == list(range(count))
        assert job.must_go_on == (count == PARTITIONS)
        if stored:
            cluster.controller.delete_topics([name])
        if change == "grow":
            cluster.controller.create_topics([NewTopic("old", 2)])
    assert steps > PARTITIONS // 2


def test_a_change_is_completed_when_the_image_is_loaded_again_between_two_steps(cluster):
    job = Stepwise(CHANGES["create"][0](cluster))
    while job.step():
        if job.must_go_on:
            cluster.controller.recover()
            assert visible()["new"] == PARTITIONS
    assert codes(job.result) == {"new": "NONE"}
    assert cluster.served() == {"old": [0, 1], "new": list(range(PARTITIONS))}


def test_settings_that_change_between_two_steps_hold_for_all_partitions(cluster):
    job = Stepwise(CHANGES["grow"][0](cluster))
    written = []
    configure = cluster.table.configure
    cluster.table.configure = lambda slot, settings: written.append(slot) or configure(slot, settings)
    for _ in range(6):
        assert job.step()
    assert 2 < len(cluster.partitions.with_slots("old", range(PARTITIONS))) < PARTITIONS
    cluster.controller.configure_all()
    job.finish()
    assert {slots.log_of(slot)[1] for slot in written} == set(range(PARTITIONS))


def test_partitions_that_are_promised_take_room(make_cluster, monkeypatch):
    monkeypatch.setattr(controller, "OPENED_A_STEP", 2)
    cluster = make_cluster(max_slots=64)
    job = Stepwise(cluster.controller.create_topics_in_steps([NewTopic("new", 60)]))
    assert job.step()
    assert codes(cluster.controller.create_topics([NewTopic("more", 5)])) == {"more": "INVALID_PARTITIONS"}
    assert codes(cluster.controller.create_topics([NewTopic("few", 4)])) == {"few": "NONE"}
    job.finish()
    assert codes(job.result) == {"new": "NONE"}


def test_a_change_that_is_refused_for_its_number_of_partitions_or_its_client_plans_none(make_cluster, monkeypatch):
    cluster = make_cluster(max_slots=64)
    cluster.controller.create_topics([NewTopic("old", 2)])

    def no_plan(*_arguments, **_options):
        raise AssertionError("replicas were assigned")

    monkeypatch.setattr(topics, "assign_replicas", no_plan)

    def exceeded(partitions):
        raise Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "exceeded")

    for ask, wanted, name in (
        (cluster.controller.create_topics, [NewTopic("new", 63)], "new"),
        (cluster.controller.create_partitions, [NewPartitions("old", 65)], "old"),
    ):
        assert codes(ask(wanted)) == {name: "INVALID_PARTITIONS"}
        assert codes(ask(wanted, True)) == {name: "INVALID_PARTITIONS"}
    for ask, wanted, name in (
        (cluster.controller.create_topics, [NewTopic("new", 5)], "new"),
        (cluster.controller.create_partitions, [NewPartitions("old", 6)], "old"),
    ):
        assert codes(ask(wanted, False, exceeded)) == {name: "THROTTLING_QUOTA_EXCEEDED"}


def test_the_steps_of_a_large_topic_are_small(make_cluster, monkeypatch):
    cluster = make_cluster(max_slots=4096)
    opened, stored = [], []
    create = cluster.table.create
    monkeypatch.setattr(cluster.table, "create", lambda *a, **o: opened.append(1) or create(*a, **o))
    job = Stepwise(cluster.controller.create_topics_in_steps([NewTopic("new", 300)]))
    longest = 0
    more = True
    while more:
        before = len(opened)
        more = job.step()
        longest = max(longest, len(opened) - before)
        stored.append(job.must_go_on)
    assert (len(opened), longest) == (300, controller.OPENED_A_STEP)
    assert stored.count(True) >= 300 // controller.OPENED_A_STEP - 1
    assert MUST_GO_ON
