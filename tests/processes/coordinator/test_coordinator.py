"""The coordinator process of a real broker: how its death affects clients, and what its successor takes over."""

import os
import signal
import sqlite3
import struct
import uuid
from concurrent.futures import wait
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.config import broker_config
from odradek.metadata import group_offsets, znodes
from odradek.metadata.sqlite import FILE_NAME, SqliteStore
from odradek.metadata.store import StoreError, delete_tree
from odradek.processes.coordinator.embedded_membership import EmbeddedMembership
from odradek.processes.coordinator.store_service import StoreService
from odradek.stepwise import Stepwise
from odradek.testing import Broker
from tests import children
from tests.waiting import PATIENCE_S, until

AGAIN = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_CONTROLLER,
    KafkaError.REQUEST_TIMED_OUT,
}


def node(broker, path):
    """The data of a metadata node, read beside the broker."""
    with sqlite3.connect(f"file:{broker.data_dir / FILE_NAME}?mode=ro", uri=True, timeout=PATIENCE_S) as db:
        row = db.execute("SELECT data FROM node WHERE path = ?", (path,)).fetchone()
    return row and bytes(row[0])


def coordinator(broker):
    """Its process id, once it serves."""

    def serving():
        (process_row,) = [process for process in broker.processes() if process["kind"] == "coordinator"]
        return process_row["pid"] if process_row["state"] == "serving" else None

    return until(serving, "the coordinator serves")


def kill(broker):
    """Kill the coordinator, and wait until it has ended."""
    children.kill(coordinator(broker))


def create(admin, names):
    """Create topics of two partitions, again after a lost connection: existing is as good as created."""
    left = set(names)
    for _ in range(20):
        futures = admin.create_topics([NewTopic(name, 2, 1) for name in left], request_timeout=20)
        for name, future in futures.items():
            try:
                future.result(PATIENCE_S)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    left.discard(name)
                elif error.args[0].code() not in AGAIN:
                    raise
            else:
                left.discard(name)
        if not left:
            return
    raise AssertionError(f"{len(left)} topics could not be created")


def entries(broker, prefix):
    """How many partition directories there are of topics with that prefix."""
    return sum(path.name.startswith(prefix) for path in broker.data_dir.iterdir())


@pytest.fixture
def broker():
    with Broker({"odradek.stuck.process.ms": 600_000}, {"data": 1}) as started:  # a stopped coordinator is not killed
        yield started


def test_the_broker_is_registered_as_in_kafka_and_leaves_when_it_stops(broker):
    registration = znodes.decode_broker(1, node(broker, "/brokers/ids/1"))
    assert [(endpoint.host, endpoint.port) for endpoint in registration.endpoints] == [(broker.host, broker.port)]
    assert znodes.decode_controller(node(broker, "/controller")) == 1
    assert node(broker, "/controller_epoch") == b"1"
    broker.stop()
    assert (node(broker, "/brokers/ids/1"), node(broker, "/controller")) == (None, None)
    assert node(broker, "/controller_epoch") == b"1"


@pytest.mark.parametrize("made", [0, 1, 30])
def test_topics_whose_coordinator_dies_are_complete_after_a_retry(broker, made):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    names = [f"topic-{n}" for n in range(40)]
    futures = admin.create_topics([NewTopic(name, 2, 1) for name in names], request_timeout=20)
    until(lambda: entries(broker, "topic-") >= made, f"{made} partitions are made")
    kill(broker)
    wait(futures.values(), PATIENCE_S)
    create(admin, names)
    create(admin, ["last"])
    topics = admin.list_topics(timeout=PATIENCE_S).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == dict.fromkeys([*names, "last"], 2) | {
        "data": 1
    }
    assert all(partition.leader == 1 for topic in topics.values() for partition in topic.partitions.values())
    assert node(broker, "/controller_epoch") == b"2"
    assert entries(broker, "topic-") == 80
    assert all((broker.data_dir / f"{name}-1" / "partition.metadata").exists() for name in names)


def test_produce_and_fetch_work_without_a_coordinator(broker):
    options = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    failed = []
    producer = Producer(options | {"linger.ms": 0, "retries": 0, "allow.auto.create.topics": False})
    producer.produce("data", b"before", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(60) == 0
    os.kill(coordinator(broker), signal.SIGSTOP)  # nobody takes forwarded requests any more
    for n in range(100):
        producer.produce("data", b"%d" % n, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(60) == 0
    assert failed == [None] * 101
    consumer = Consumer(options | {"group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition("data", 0, 0)])
    values = [message.value() for message in consumer.consume(101, timeout=60)]
    consumer.close()
    assert values == [b"before", *(b"%d" % n for n in range(100))]
    os.kill(coordinator(broker), signal.SIGCONT)


def test_a_successor_never_hands_out_a_producer_id_again(broker):
    def producer_id():
        client = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "log_level": 0})
        client.produce("data", b"x")
        assert client.flush(PATIENCE_S) == 0

    producer_id()
    first = znodes.decode_producer_id_block(node(broker, "/latest_producer_id_block"))
    kill(broker)
    producer_id()
    second = znodes.decode_producer_id_block(node(broker, "/latest_producer_id_block"))
    assert second.first == first.last + 1
    log = next((broker.data_dir / "data-0").glob("*.log")).read_bytes()
    ids, position = [], 0
    while position < len(log):  # producer id at byte 43 of a batch, its length at byte 8
        ids.append(struct.unpack_from(">q", log, position + 43)[0])
        position += 12 + struct.unpack_from(">i", log, position + 8)[0]
    assert ids == [first.first, second.first]


def test_offsets_are_not_stored_in_the_tree_for_a_topic_that_was_deleted_meanwhile(tmp_path):
    """The loop's directory of the topics may be older than what the store thread did."""
    with tree_office(tmp_path, "there", "deleting") as office:
        office._view.controller.image.deleting.add("deleting")
        job = Stepwise(office.write_offsets("g", {("there", 0): 1, ("deleted", 0): 2, ("deleting", 0): 3}))
        assert job.finish() == {"deleted", "deleting"}
        assert offsets_of(office, "g") == {("there", 0): 1}


@contextmanager
def tree_office(tmp_path, *topics):
    """An office without a broker, with a store in which there are these topics."""
    office = StoreService(SimpleNamespace(config=broker_config.load(None)), EmbeddedMembership(None, None))
    store = office._store = SqliteStore(tmp_path / "store.db")
    image = SimpleNamespace(topics={}, deleting=set())
    office._view = SimpleNamespace(controller=SimpleNamespace(image=image))
    store.create("/consumers")
    for topic in topics:
        create_topic(office, topic)
    yield office
    store.close()


def create_topic(office, topic):
    """Create the topic, or another one of its name if it exists."""
    delete_tree(office._store, znodes.topic_path(topic))
    office._store.create(znodes.topic_path(topic), make_parents=True)
    office._view.controller.image.topics[topic] = SimpleNamespace(topic_id=uuid.uuid4())


def offsets_of(office, group):
    """What a group has in the tree."""
    return Stepwise(group_offsets.describe(office._store, group)).finish()


WIDE = {("wide", partition): partition for partition in range(3 * group_offsets.PORTION)}


def test_a_commit_of_many_offsets_to_the_tree_is_one_transaction_per_step(tmp_path):
    with tree_office(tmp_path, "wide") as office:
        statements = []
        office._store._db.set_trace_callback(statements.append)
        job = Stepwise(office.write_offsets("g", WIDE))
        more = True
        while more:
            statements.clear()
            more = job.step()
            assert statements.count("COMMIT") <= 1
            assert len(statements) <= 10 * group_offsets.PORTION
        office._store._db.set_trace_callback(None)
        assert (job.result, offsets_of(office, "g")) == (set(), WIDE)


@pytest.mark.parametrize("change", ["deleted", "created again"])
def test_a_topic_that_is_deleted_during_a_commit_to_the_tree_gets_no_more_offsets(tmp_path, change):
    with tree_office(tmp_path, "wide", "other") as office:
        job = Stepwise(office.write_offsets("g", WIDE | {("other", 0): 7}))
        assert job.step()
        if change == "deleted":
            del office._view.controller.image.topics["wide"]
            delete_tree(office._store, znodes.topic_path("wide"))
        else:
            create_topic(office, "wide")
        assert job.finish() == {"wide"}
        assert offsets_of(office, "g") == {("other", 0): 7}


def test_the_steps_of_a_commit_to_the_tree_before_a_failure_are_stored(tmp_path):
    with tree_office(tmp_path, "wide") as office:
        job = Stepwise(office.write_offsets("g", WIDE))
        assert job.step()
        with sqlite3.connect(tmp_path / "store.db") as db:
            db.execute(
                "CREATE TRIGGER full BEFORE INSERT ON node WHEN new.name = '400' BEGIN SELECT RAISE(FAIL, 'full'); END"
            )
        with pytest.raises(StoreError):
            job.step()
        assert offsets_of(office, "g") == {place: at for place, at in WIDE.items() if at < group_offsets.PORTION}
