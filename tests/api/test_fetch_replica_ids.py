"""Fetches with a replica id, executed step by step: which records they read, and which replicas are refused."""

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slots
from odradek._ext.testing import slot_probe
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch
from odradek.storage.batch import Record, build_batch
from tests.api.worker_harness import HandWorker, nothing_came
from tests.wire import batch, fetch_request, values

CONSUMER, DEBUGGING = -1, -2
LEADER, FOLLOWER, STRANGER = 1, 2, 7
VERSIONS = pytest.mark.parametrize("version", [4, 12, 15, 18])


@pytest.fixture
def worker(tmp_path):
    worker = HandWorker(tmp_path)
    yield worker
    worker.close()


def lagging(worker):
    """A partition with a record that the follower does not have yet, so that consumers do not see it; its slot and topic id."""
    slot = worker.create("t", alone=False)
    assert slot_probe.append(slot, [batch(b"x")])[0][0] == 0
    return slot, slot_facts.describe(slot).topic_id


def ask(wire, topic_id, version, replica_id, offset=0, **options):
    request = fetch_request([(topic_id if version >= 13 else "t", 0, offset)], **options)
    if version >= 15:
        request.replica_state = fetch.Request.ReplicaState(replica_id=replica_id, replica_epoch=-1)
    else:
        request.replica_id = replica_id
    wire.send(request, fetch.API_KEY, version)


def told(wire):
    (one,) = wire.receive().responses[0].partitions
    return one.error_code, values(one.records)


@VERSIONS
@pytest.mark.parametrize(("replica_id", "seen"), [(CONSUMER, []), (DEBUGGING, [b"x"]), (FOLLOWER, [b"x"]), (-3, [])])
def test_a_fetch_with_a_replica_id_reads_to_the_log_end(worker, version, replica_id, seen):
    _, topic_id = lagging(worker)
    wire = worker.connect()
    ask(wire, topic_id, version, replica_id)
    worker.turn()
    assert told(wire) == (0, seen)


@VERSIONS
@pytest.mark.parametrize("replica_id", [DEBUGGING, FOLLOWER])
def test_a_fetch_with_a_replica_id_is_woken_by_the_log_end(worker, version, replica_id):
    slot, topic_id = lagging(worker)
    waiting, consumer = worker.connect(), worker.connect()
    ask(waiting, topic_id, version, replica_id, 1, wait_ms=60_000)
    ask(consumer, topic_id, version, CONSUMER, wait_ms=60_000)
    worker.turn()
    assert nothing_came(waiting)
    assert slot_probe.append(slot, [batch(b"y")])[0][0] == 0
    worker.turn()
    assert told(waiting) == (0, [b"y"])
    if replica_id == DEBUGGING:
        assert nothing_came(consumer)
        slots.raise_high_watermark(slot, 1)
        worker.turn()
    assert told(consumer) == (0, [b"x"]), "the follower has it: its request moved the high watermark"


@pytest.mark.parametrize("version", [4, 12, 13, 15, 18])
@pytest.mark.parametrize("replica_id", [LEADER, STRANGER, 2**31 - 1])
def test_a_replica_that_does_not_follow_the_partition_is_refused(worker, version, replica_id):
    """As by a Kafka that leads it: with the leader's epoch in the request it may become one, and is told to try again."""
    _, topic_id = lagging(worker)
    wire = worker.connect()
    ask(wire, topic_id, version, replica_id, wait_ms=60_000)
    worker.turn()
    assert told(wire) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
    if version >= 9:
        ask(wire, topic_id, version, replica_id, wait_ms=60_000, leader_epoch=0)
        worker.turn()
        assert told(wire) == (ErrorCode.UNKNOWN_LEADER_EPOCH, [])
        ask(wire, topic_id, version, replica_id, wait_ms=60_000, leader_epoch=5)
        worker.turn()
        assert told(wire) == (ErrorCode.UNKNOWN_LEADER_EPOCH, [])


def test_a_fetch_with_a_replica_id_reads_records_of_an_open_transaction(worker):
    slot = worker.create("t")
    records = [Record(b"k", b"open", 1)]
    open_one = build_batch(records, producer_id=5, producer_epoch=0, base_sequence=0, attributes=0x10)
    assert slot_probe.append(slot, [open_one])[0][0] == 0
    wire = worker.connect()
    for replica_id, seen in ((CONSUMER, []), (DEBUGGING, [b"open"])):
        ask(wire, None, 12, replica_id, isolation_level=1)
        worker.turn()
        assert told(wire) == (0, seen)


@pytest.mark.parametrize(
    "tag",
    [
        b"\x00\x00\x00",  # too short for the id
        b"\x00\x00\x00\x02",  # and for the epoch
        b"\x00\x00\x00\x02" + bytes(8),  # and for its tagged fields
        b"\x00\x00\x00\x02" + bytes(8) + b"\x00\x00",  # too long
    ],
)
def test_a_replica_state_that_cannot_be_read_closes_its_connection(worker, caplog, tag):
    worker.create("t")
    wire = worker.connect()
    frame = wire.frame(fetch_request([]), fetch.API_KEY, 15)
    assert frame[-1] == 0, "no tagged fields"
    frame = frame[4:-1] + b"\x01\x01" + bytes([len(tag)]) + tag
    wire.socket.sendall(len(frame).to_bytes(4, "big") + frame)
    worker.turn()
    assert wire.closed_by_broker()
    assert "a Fetch request of version 15 is malformed" in caplog.text


def test_unknown_tags_are_ignored_and_the_last_replica_state_counts(worker):
    _, topic_id = lagging(worker)
    wire = worker.connect()
    frame = wire.frame(fetch_request([(topic_id, 0, 0)]), fetch.API_KEY, 15)
    states = [replica_id.to_bytes(4, "big", signed=True) + bytes(9) for replica_id in (STRANGER, DEBUGGING)]
    tags = b"\x04" + b"\x00\x01\x00" + b"".join(b"\x01" + bytes([len(one)]) + one for one in states) + b"\x63\x02ab"
    frame = frame[4:-1] + tags
    wire.socket.sendall(len(frame).to_bytes(4, "big") + frame)
    worker.turn()
    assert told(wire) == (0, [b"x"])
