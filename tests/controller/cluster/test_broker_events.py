"""Brokers come, fail, restart and shut down; leaders move, cleanly or not."""

import pytest

from odradek.controller.cluster.broker_events import difference
from odradek.controller.cluster.requests import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from odradek.controller.cluster.shutdown import controlled_shutdown
from odradek.metadata import znodes
from odradek.protocol.errors import ErrorCode
from tests.controller.cluster.harness import Cluster, leaders_of, live, metadata_of, registration, stops_of


def with_topic(partitions, brokers=(1, 2, 3), config=None, **settings):
    cluster = Cluster(brokers, **settings).start()
    cluster.tree.create_topic("t", partitions, config)
    cluster.settle()
    cluster.brokers.take()
    return cluster


# -- the difference of two looks --------------------------------------------------------------------------------------


def test_the_difference_names_new_dead_bounced_and_changed_brokers():
    known = {broker.id: broker for broker in (live(1), live(2), live(3), live(4))}
    moved = live(4)._replace(rack="r")
    present = {broker.id: broker for broker in (live(1), live(3, epoch=9), moved, live(5))}
    changes = difference(known, present)
    assert (changes.new, changes.dead, changes.bounced, changes.changed) == ([live(5)], [2], [live(3, 9)], [moved])
    assert not any(difference(known, known))


def test_an_older_epoch_is_no_change():
    assert not any(difference({1: live(1, epoch=5)}, {1: live(1, epoch=4)}))


# -- failures ---------------------------------------------------------------------------------------------------------


def test_a_failed_follower_leaves_the_in_sync_replicas_in_a_new_epoch():
    cluster = with_topic({0: [1, 2, 3]})
    cluster.tree.fail(3)
    cluster.settle()
    assert cluster.tree.summary("t") == (1, [1, 2], 1)
    sent = cluster.brokers.take()
    assert leaders_of(sent, 1) == leaders_of(sent, 2) == {("t", 0): (1, [1, 2], 1, False)}
    assert leaders_of(sent, 3) == {}


def test_the_last_in_sync_replica_that_fails_stays_and_no_other_replica_leads():
    cluster = with_topic({0: [1, 2]})
    cluster.tree.fail(2)
    cluster.settle()
    cluster.tree.fail(1)
    cluster.tree.register(2)
    cluster.settle()
    assert cluster.tree.summary("t") == (-1, [1], 2)
    assert metadata_of(cluster.brokers.take(), 2)["t", 0] == (-1, [1], [1])
    cluster.tree.register(1)
    cluster.settle()
    assert cluster.tree.summary("t") == (1, [1], 3)


def test_brokers_that_fail_together_stay_in_sync_and_the_first_to_return_leads():
    cluster = with_topic({0: [1, 2]})
    cluster.tree.fail(1)
    cluster.tree.fail(2)
    cluster.settle()
    assert cluster.tree.summary("t") == (-1, [1, 2], 1)
    cluster.tree.register(2)
    cluster.settle()
    assert cluster.tree.summary("t") == (2, [2], 2)


@pytest.mark.parametrize(
    ("default", "config", "expected"),
    [
        (False, {}, (-1, [1], 2)),
        (True, {}, (2, [2], 2)),
        (False, {"unclean.leader.election.enable": "true"}, (2, [2], 2)),
        (True, {"unclean.leader.election.enable": "false"}, (-1, [1], 2)),
        (False, {"unclean.leader.election.enable": " TRUE"}, (2, [2], 2)),
    ],
)
def test_unclean_elections_by_setting(default, config, expected):
    cluster = with_topic({0: [1, 2]}, config=config, unclean_elections=default)
    cluster.tree.fail(2)
    cluster.settle()
    cluster.tree.register(2)
    cluster.settle()
    assert cluster.tree.summary("t") == (1, [1], 1)
    cluster.tree.fail(1)
    cluster.settle()
    assert cluster.tree.summary("t") == expected
    assert cluster.tree.state("t").leader_recovery_state == int(expected[0] == 2)
    assert cluster.counts["unclean_elections"] == int(expected[0] == 2)
    assert cluster.counts["election_events"] == 3


def test_a_change_of_the_setting_elects_where_there_is_no_leader():
    cluster = with_topic({0: [1, 2]})
    cluster.tree.fail(2)
    cluster.settle()
    cluster.tree.register(2)
    cluster.tree.fail(1)
    cluster.settle()
    assert cluster.tree.summary("t")[0] == -1
    cluster.tree.store.set(
        znodes.topic_config_path("t"), znodes.encode_config({"unclean.leader.election.enable": "true"})
    )
    cluster.controller.unclean_elections_changed()
    assert cluster.tree.summary("t") == (2, [2], 3)
    assert cluster.tree.state("t").leader_recovery_state == 1
    cluster.brokers.take()
    cluster.controller.unclean_elections_changed()
    assert cluster.brokers.take() == [], "nothing waits for a leader any more"


# -- starts -----------------------------------------------------------------------------------------------------------


def test_a_new_broker_learns_of_the_cluster_before_it_receives_replicas():
    cluster = with_topic({0: [1, 2]}, brokers=(1, 2))
    cluster.tree.register(3)
    cluster.settle()
    sent = [(to, key) for to, key, _ in cluster.brokers.take() if to == 3]
    assert sent[0] == (3, UPDATE_METADATA)


def test_a_bounced_broker_failed_first_and_its_requests_carry_the_new_epoch():
    cluster = with_topic({0: [2, 1, 3]})
    cluster.tree.bounce(2)
    cluster.settle()
    assert cluster.tree.summary("t") == (1, [1, 3], 1)
    sent = cluster.brokers.take()
    assert leaders_of(sent, 2) == {("t", 0): (1, [1, 3], 1, False)}
    epoch = cluster.tree.store.exists(znodes.broker_path(2)).created
    assert {request.broker_epoch for to, _, request in sent if to == 2} == {epoch}
    keys = [key for to, key, _ in sent if to == 2]
    assert keys.index(UPDATE_METADATA) < keys.index(LEADER_AND_ISR)


def test_a_registration_with_new_endpoints_only_updates_metadata():
    cluster = with_topic({0: [1, 2, 3]})
    cluster.tree.register(2, port=7777)
    cluster.settle()
    sent = cluster.brokers.take()
    assert {key for _, key, _ in sent} == {UPDATE_METADATA}
    assert sorted(to for to, _, _ in sent) == [1, 2, 3]
    ports = {broker.id: broker.endpoints[0].port for broker in sent[0][2].live_brokers}
    assert ports == {1: 9001, 2: 7777, 3: 9003}


def test_a_partition_whose_replicas_were_all_dead_is_created_when_one_starts():
    cluster = Cluster((1,)).start()
    cluster.tree.create_topic("t", {0: [2, 3]})
    cluster.settle()
    assert not cluster.tree.exists(znodes.state_path("t", 0))
    cluster.tree.register(3)
    cluster.settle()
    assert cluster.tree.summary("t") == (3, [3], 0)
    assert leaders_of(cluster.brokers.take(), 3) == {("t", 0): (3, [3], 0, True)}


def test_a_registration_that_cannot_be_decoded_is_ignored():
    cluster = with_topic({0: [1, 2]}, brokers=(1, 2))
    cluster.tree.store.create(znodes.broker_path(3), b"{}")
    cluster.settle()
    assert sorted(cluster.controller.context.brokers) == [1, 2]
    cluster.tree.store.set(znodes.broker_path(3), znodes.encode_broker(registration(3)))
    cluster.settle()
    assert sorted(cluster.controller.context.brokers) == [1, 2, 3]


# -- controlled shutdown ----------------------------------------------------------------------------------------------


def shut_down(cluster, broker_id, epoch=None):
    broker = cluster.controller.context.brokers.get(broker_id)
    epoch = broker.epoch if epoch is None and broker else epoch
    code, remaining = cluster.run(controlled_shutdown(cluster.controller.context, broker_id, epoch))
    return code, [str(partition) for partition in remaining]


def test_a_controlled_shutdown_moves_leaders_and_stops_followers():
    cluster = with_topic({0: [1, 2, 3], 1: [2, 1, 3], 2: [1]})
    assert shut_down(cluster, 1) == (ErrorCode.NONE, [])
    assert cluster.tree.summary("t", 0) == (2, [2, 3], 1)
    assert cluster.tree.summary("t", 1) == (2, [2, 3], 1)
    assert cluster.tree.summary("t", 2) == (1, [1], 0)  # a single replica stays
    sent = cluster.brokers.take()
    assert set(stops_of(sent, 1)) == {("t", 1, 0, False)}
    about_follower = [
        api_key
        for to, api_key, request in sent
        if to == 1
        and 1 in [state.partition_index for topic in request.topic_states for state in topic.partition_states]
    ]
    assert about_follower[0] == STOP_REPLICA  # before the leader learns that it left
    assert leaders_of(sent, 1)["t", 0] == (2, [2, 3], 1, False)  # sent while it shuts down
    assert metadata_of(sent, 1)["t", 0] == (2, [2, 3], [1])
    cluster.tree.fail(1)
    cluster.settle()
    assert cluster.tree.summary("t", 0) == (2, [2, 3], 1)  # nothing is left to do
    assert cluster.controller.context.shutting_down == set()


def test_a_partition_without_another_in_sync_replica_remains():
    cluster = with_topic({0: [1, 2]})
    cluster.tree.fail(2)
    cluster.settle()
    assert shut_down(cluster, 1) == (ErrorCode.NONE, ["t-0"])
    assert cluster.tree.summary("t") == (1, [1], 1)


def test_two_brokers_that_shut_down_do_not_lead_for_each_other():
    cluster = with_topic({0: [1, 2, 3]})
    assert shut_down(cluster, 2) == (ErrorCode.NONE, [])
    assert cluster.tree.summary("t") == (1, [1, 3], 1)
    assert shut_down(cluster, 1) == (ErrorCode.NONE, [])
    assert cluster.tree.summary("t") == (3, [3], 2)


def test_a_shutdown_of_an_older_incarnation_or_an_unknown_broker_is_refused():
    cluster = with_topic({0: [1, 2, 3]})
    assert shut_down(cluster, 1, epoch=0)[0] == ErrorCode.STALE_BROKER_EPOCH
    assert shut_down(cluster, 9, epoch=0)[0] == ErrorCode.BROKER_NOT_AVAILABLE
    assert shut_down(cluster, 1, epoch=-1) == (ErrorCode.NONE, [])


def test_a_broker_that_shuts_down_is_not_elected_after_a_failure():
    cluster = with_topic({0: [1, 2, 3], 1: [2, 1]})
    shut_down(cluster, 2)
    cluster.tree.fail(1)
    cluster.settle()
    assert cluster.tree.summary("t", 0) == (3, [3], 2)
    assert cluster.tree.summary("t", 1)[0] == -1
