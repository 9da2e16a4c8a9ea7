"""The data of nodes, compared with Kafka 3.9 in ZooKeeper mode, and joining a cluster."""

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.listeners import Listener
from odradek.metadata import znodes
from odradek.metadata.cluster import (
    BrokerIdTaken,
    EndpointTaken,
    WrongCluster,
    check_endpoints,
    ensure_cluster_id,
    join_cluster,
    new_uuid,
    register_again,
    register_broker,
)
from odradek.metadata.election import Reign, run_for_controller
from odradek.metadata.sqlite import SqliteStore
from odradek.metadata.store import Session
from odradek.storage.log_directory import encode_uuid

ID = uuid.UUID("5a7d0c6e-1b1f-4f37-9c3a-0123456789ab")


@pytest.fixture
def opener(tmp_path):
    stores = []

    def open_store(session=None):
        stores.append(SqliteStore(tmp_path / "tree.db"))
        if session:
            stores[-1].begin_session(session)
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()


def test_a_topic_is_written_as_kafka_does():
    data = znodes.encode_topic(znodes.TopicAssignment(ID, {0: [1, 2], 1: [2, 1]}, {1: [2]}))
    assert json.loads(data) == {
        "version": 3,
        "topic_id": "Wn0MbhsfTzecOgEjRWeJqw",
        "partitions": {"0": [1, 2], "1": [2, 1]},
        "adding_replicas": {"1": [2]},
        "removing_replicas": {},
    }


def test_older_topic_nodes_are_read():
    assert znodes.decode_topic("t", b'{"version":1,"partitions":{"10":[3],"2":[1]}}') == znodes.TopicAssignment(
        None, {2: [1], 10: [3]}, {}, {}
    )


REPLICAS = st.dictionaries(st.integers(0, 99), st.lists(st.integers(0, 2**31 - 1), max_size=4), max_size=5)


@given(st.uuids(), REPLICAS, REPLICAS)
def test_topics_survive_the_round_trip(topic_id, partitions, adding):
    assignment = znodes.TopicAssignment(topic_id, partitions, adding, {})
    assert znodes.decode_topic("t", znodes.encode_topic(assignment)) == assignment


def test_a_partition_state_is_written_as_kafka_does():
    state = znodes.PartitionState(3, 1, 5, [1, 2])
    assert json.loads(znodes.encode_state(state)) == {
        "controller_epoch": 3, "leader": 1, "version": 1, "leader_epoch": 5, "isr": [1, 2],
    }  # fmt: skip
    recovering = state._replace(leader_recovery_state=1)
    assert json.loads(znodes.encode_state(recovering))["leader_recovery_state"] == 1
    for original in (state, recovering):
        assert znodes.decode_state("t", 0, znodes.encode_state(original)) == original


def test_a_broker_is_written_as_kafka_does():
    endpoints = [Listener("IN", "::1", 9093, "SSL"), Listener("OUT", "host", 9092, "PLAINTEXT")]
    broker = znodes.BrokerRegistration(endpoints, "rack-a", 1_700_000_000_000)
    assert json.loads(znodes.encode_broker(broker)) == {
        "version": 5,
        "host": "host",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "1700000000000",
        "endpoints": ["IN://[::1]:9093", "OUT://host:9092"],
        "listener_security_protocol_map": {"IN": "SSL", "OUT": "PLAINTEXT"},
        "features": {},
        "rack": "rack-a",
    }
    assert znodes.decode_broker(1, znodes.encode_broker(broker)) == broker
    only_tls = json.loads(znodes.encode_broker(broker._replace(endpoints=endpoints[:1], rack=None)))
    assert (only_tls["host"], only_tls["port"], "rack" in only_tls) == (None, -1, False)


def test_the_small_nodes_are_written_as_kafka_does():
    assert json.loads(znodes.encode_controller(4, 17)) == {
        "version": 2, "brokerid": 4, "timestamp": "17", "kraftControllerEpoch": -1,
    }  # fmt: skip
    assert znodes.encode_controller_epoch(9) == b"9"
    assert json.loads(znodes.encode_cluster_id("abc")) == {"version": "1", "id": "abc"}
    assert json.loads(znodes.encode_config({"retention.ms": "5"})) == {"version": 1, "config": {"retention.ms": "5"}}
    block = znodes.ProducerIdBlock(1, 2000, 2999)
    assert json.loads(znodes.encode_producer_id_block(block)) == {
        "version": 1, "broker": 1, "block_start": "2000", "block_end": "2999",
    }  # fmt: skip
    assert znodes.decode_producer_id_block(znodes.encode_producer_id_block(block)) == block
    assert znodes.decode_producer_id_block(b"") is None
    assert znodes.decode_config("/config/topics/t", b"") == {}


@pytest.mark.parametrize("data", [b"", b"nonsense", b"[]", b"{}", b'{"partitions":[1]}', b'{"partitions":{"x":[1]}}'])
def test_a_corrupt_node_is_named(data):
    with pytest.raises(znodes.CorruptNode, match="/brokers/topics/orders"):
        znodes.decode_topic("orders", data)


def test_new_ids_never_begin_with_a_dash():
    ids = {new_uuid() for _ in range(2000)}
    assert len(ids) == 2000
    assert not [one for one in ids if encode_uuid(one).startswith("-")]


def test_the_cluster_id_is_made_once_and_compared(opener):
    store = opener()
    made = ensure_cluster_id(store, None)
    assert len(made) == 22
    assert ensure_cluster_id(opener(), made) == ensure_cluster_id(opener(), None) == made
    with pytest.raises(WrongCluster, match="belong to cluster other"):
        ensure_cluster_id(store, "other")
    assert set(znodes.PERSISTENT) == {path for path in znodes.PERSISTENT if store.exists(path)}


def test_an_empty_store_takes_the_cluster_id_of_the_log_directories(opener):
    assert ensure_cluster_id(opener(), "of-the-disk") == "of-the-disk"
    assert ensure_cluster_id(opener(), None) == "of-the-disk"


def registration(port):
    return znodes.BrokerRegistration([Listener("PLAINTEXT", "h", port, "PLAINTEXT")], None, 1)


def test_a_broker_registers_and_its_successor_in_the_session_again(opener):
    one = opener(Session(1, b"a"))
    ensure_cluster_id(one, None)
    epoch = register_broker(one, 7, registration(1))
    successor = opener(Session(1, b"a"))
    assert register_broker(successor, 7, registration(2)) == epoch
    assert znodes.decode_broker(7, one.get("/brokers/ids/7")[0]).endpoints[0].port == 2
    with pytest.raises(BrokerIdTaken, match=r"broker\.id=7"):
        register_broker(opener(Session(2, b"b")), 7, registration(3))
    one.end_session()
    assert register_broker(opener(Session(2, b"b")), 7, registration(3)) > epoch


def test_a_broker_that_registers_again_in_its_session_has_a_new_epoch(opener):
    one = opener(Session(1, b"a"))
    ensure_cluster_id(one, None)
    epoch = register_broker(one, 7, registration(1))
    assert register_again(one, 7, registration(2)) > epoch
    stat = one.exists("/brokers/ids/7")
    assert stat.owner == 1
    assert znodes.decode_broker(7, one.get("/brokers/ids/7")[0]).endpoints[0].port == 2


def test_every_election_has_an_epoch_of_its_own(opener):
    one, other = opener(Session(1, b"a")), opener(Session(2, b"b"))
    assert run_for_controller(one, 7) == Reign(1, one.exists("/controller_epoch").version)
    assert run_for_controller(other, 8) == 7
    assert run_for_controller(opener(Session(1, b"a")), 7) == Reign(2, one.exists("/controller_epoch").version)
    one.end_session()
    assert run_for_controller(other, 8) == Reign(3, other.exists("/controller_epoch").version)
    assert znodes.decode_controller(other.get("/controller")[0]) == 8


# -- a store that other brokers use ------------------------------------------------------------------------------------


def test_new_log_directories_join_the_cluster_of_the_store_and_used_ones_only_their_own(opener):
    store = opener(Session(1, b"a"))
    with pytest.raises(WrongCluster, match=r"belong to cluster ours .* leads to an empty tree"):
        join_cluster(store, "ours")
    assert store.children("/") == [], "nothing was written to it"
    made = join_cluster(store, None)
    assert join_cluster(store, None) == join_cluster(store, made) == made
    with pytest.raises(WrongCluster, match=f"belong to cluster ours .* leads to cluster {made}"):
        join_cluster(store, "ours")
    assert set(znodes.PERSISTENT) == {path for path in znodes.PERSISTENT if store.exists(path)}


def test_an_address_of_another_broker_is_refused(opener):
    one, other = opener(Session(1, b"a")), opener(Session(2, b"b"))
    join_cluster(one, None)
    check_endpoints(one, 7, registration(1))
    register_broker(one, 7, registration(1))
    check_endpoints(one, 7, registration(1))
    check_endpoints(other, 8, registration(2))
    with pytest.raises(EndpointTaken, match="broker 7 is registered with the address h:1"):
        check_endpoints(other, 8, registration(1))
    both = registration(2)
    both.endpoints.append(Listener("INTERNAL", "h", 1, "PLAINTEXT"))
    with pytest.raises(BrokerIdTaken, match="h:1"):
        check_endpoints(other, 8, both)


@pytest.mark.parametrize(
    ("data", "entity"),
    [
        (b'{"version":2,"entity_path":"topics/t"}', "topics/t"),
        (b'{"version":1,"entity_type":"clients","entity_name":"c"}', "clients/c"),
    ],
)
def test_notifications_of_both_versions_are_read(data, entity):
    assert znodes.decode_config_change("/config/changes/x", data) == entity
    assert znodes.decode_config_change("/config/changes/x", znodes.encode_config_change(entity)) == entity
