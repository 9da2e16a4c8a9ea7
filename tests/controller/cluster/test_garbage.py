"""A node of any kind that cannot be decoded: the controller elects and serves all others, and brokers start."""

import pytest

from odradek.config.broker_config import load
from odradek.config.listeners import Listener
from odradek.controller.broker_settings import read_running
from odradek.controller.cluster_member import ClusterMember
from odradek.controller.enforced_quotas import EnforcedQuotas
from odradek.metadata import znodes
from odradek.metadata.cluster import check_endpoints, may_have_lost_cache, note_boot, was_adopted
from odradek.metadata.store import ensure_path
from odradek.protocol.errors import ErrorCode as E
from odradek.shm.running_config import Running
from tests.controller.cluster.harness import Cluster

NODES = (
    "/brokers/topics/bad",
    znodes.topic_config_path("bad"),
    znodes.state_path("bad", 0),
    znodes.broker_path(3),
    "/brokers/ids/nonsense",
    znodes.broker_config_path(None),
    znodes.broker_config_path(1),
    znodes.broker_config_path(3),
    znodes.group_config_path("g"),
    "/config/users/u",
    "/config/clients/c",
    "/config/ips/10.0.0.1",
    "/config/changes/config_change_0000000000",
    znodes.PRODUCER_ID_BLOCK,
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
    "/admin/delete_topics/nonsense",
    "/isr_change_notification/isr_change_0000000000",
    "/log_dir_event_notification/log_dir_event_0000000000",
)
"""Nodes that may be wrong while everything else is served. Not ``/controller_epoch`` and ``/cluster/id``: no broker may act
without them."""

GARBAGE = (b"no json", b"[]", b'{"config": 7}', b"\xff", b"[" * 100_000)


def write(store, path, data):
    if store.exists(path) is None:
        store.create(path, data, make_parents=True)
    else:
        store.set(path, data)


@pytest.fixture(params=NODES)
def cluster(request):
    """A cluster with a leaderless partition of each topic after broker 2 fails, and a node of garbage."""
    cluster = Cluster().start()
    cluster.tree.create_topic("bad", {0: [2, 1]})
    cluster.tree.create_topic("alone", {0: [2]})
    cluster.tree.create_topic("good", {0: [2, 1]})
    cluster.settle()
    cluster.path = request.param
    return cluster


@pytest.mark.parametrize("data", GARBAGE, ids=lambda data: repr(data[:10]))
def test_the_controller_serves_everything_else(cluster, data):
    write(cluster.tree.store, cluster.path, data)
    cluster.settle()
    if cluster.path != znodes.state_path("bad", 0):
        cluster.tree.put_state("bad", 0, 2, [2], leader_epoch=9)
    cluster.failover()
    cluster.settings.unclean_elections = True
    cluster.tree.fail(2)
    cluster.settle()
    assert cluster.controller.active
    assert cluster.tree.state("good").leader == 1
    cluster.controller.unclean_elections_changed()
    if cluster.path == znodes.topic_config_path("bad"):
        assert cluster.tree.state("bad").leader in (2, -1), "an unclean election without readable settings"
    cluster.tree.create_topic("new", {0: [1]})
    cluster.settle()
    assert cluster.tree.state("new").leader == 1


@pytest.mark.parametrize("data", GARBAGE, ids=lambda data: repr(data[:10]))
def test_a_broker_starts(cluster, data):
    write(cluster.tree.store, cluster.path, data)
    store = cluster.tree.store
    ensure_path(store, znodes.GROUP_CONFIGS)
    config = load(None, ["broker.id=1"])
    applied = []
    member = ClusterMember(store, config, applied.append, lambda: None)
    endpoint = Listener("PLAINTEXT", "elsewhere", 1, "PLAINTEXT")
    check_endpoints(store, 1, znodes.BrokerRegistration([endpoint], None, 0))
    before = Running({"log.retention.ms": "7"}, {"log.retention.ms": "8"}, {})
    running = read_running(store, 1, before)
    assert running.of_all == (before.of_all if cluster.path == znodes.broker_config_path(None) else {})
    assert running.of_broker == (before.of_broker if cluster.path == znodes.broker_config_path(1) else {})
    settings = member.usable_settings_of(["bad", "good"])
    assert settings == ({"good": {}} if cluster.path == znodes.topic_config_path("bad") else {"bad": {}, "good": {}})
    assert {"good", "alone"} <= set(member.image.topics)
    assert {1, 2} <= {broker.id for broker in member.brokers()}
    assert not was_adopted(store)
    may_have_lost_cache(store)
    note_boot(store)


def test_a_request_about_the_node_itself_fails():
    cluster = Cluster().start()
    cluster.tree.create_topic("bad", {0: [1]})
    path = znodes.topic_config_path("bad")
    cluster.tree.store.set(path, b"no json")
    member = ClusterMember(cluster.tree.store, load(None, ["broker.id=1"]), lambda _: None, lambda: None)
    outcome = member.alter_topic("bad", lambda settings: {**settings, "retention.ms": "1"})
    assert outcome.code != E.NONE
    assert path in outcome.message
    assert cluster.tree.store.get(path)[0] == b"no json"


def test_quotas_that_cannot_be_decoded_stay_as_they_were():
    cluster = Cluster().start()
    store = cluster.tree.store
    write(store, "/config/clients/c", znodes.encode_config({"producer_byte_rate": "7"}))
    write(store, "/config/clients/d", b"no json")
    quotas = EnforcedQuotas.__new__(EnforcedQuotas)
    quotas._store = store
    assert quotas._read("/config/clients/c") == {"producer_byte_rate": 7.0}
    assert quotas._read("/config/clients/d") is None
