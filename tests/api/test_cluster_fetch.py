"""Consumers in a cluster, step by step: reading from followers, preferred replicas (KIP-392), and the leader in responses."""

import pytest

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.shm.brokers as brokers
from odradek._ext.partition import in_sync, log_start
from odradek._ext.partition.slots import raise_high_watermark
from odradek._ext.testing import replica_probe, slot_probe
from odradek.api.cluster_brokers import ClusterBrokers
from odradek.api.replicas import ReplicaView
from odradek.config.keys.replication import RACK_AWARE_SELECTOR, SELECTORS
from odradek.metrics import pages
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch
from tests.api.cluster_calls import CLIENTS, INTERNAL, broker_info
from tests.api.worker_harness import HandWorker, nothing_came
from tests.wire import batch, fetch_request, offsets

LEADER, FOLLOWER, THIRD = 1, 2, 3
CONSUMER, DEBUGGING = -1, -2
VERSIONS = pytest.mark.parametrize("version", [4, 10, 11, 12, 15, 16, 18])
WITH_RACK = pytest.mark.parametrize("version", [11, 12, 15, 18])


@pytest.fixture
def make_worker(tmp_path):
    workers = []

    def make(selector=RACK_AWARE_SELECTOR, racks=("a", "b", "b"), names=(CLIENTS, INTERNAL)):
        replicas = ReplicaView(ClusterBrokers([CLIENTS]), LEADER, selector)
        workers.append(HandWorker(tmp_path, replicas=replicas))
        replica_probe.cluster([])
        infos = [
            broker_info(broker_id, rack=rack, names=names) for broker_id, rack in zip((1, 2, 3), racks, strict=True)
        ]
        brokers.publish_brokers(infos)
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


@pytest.fixture
def worker(make_worker):
    return make_worker()


def led(worker, records=3, fetched=0):
    """A partition that this broker leads, with a follower that has fetched to an offset."""
    slot = worker.create("t", alone=False)
    worker.broker.lead(slot, 0, alone=False)
    for _ in range(records):
        assert slot_probe.append(slot, [batch(b"x")])[0][0] == 0
    assert replica_probe.note_fetch(slot, FOLLOWER, fetched) == 0
    return slot


def followed(worker, records=3, high_watermark=2):
    slot = led(worker, records)
    raise_high_watermark(slot, high_watermark)
    worker.broker.obey(slot, 1)
    return slot


class Reader:
    def __init__(self, worker, version=12, rack="b", replica_id=CONSUMER):
        self.worker, self.version, self.rack, self.replica_id = worker, version, rack, replica_id
        self.wire = worker.connect()

    def send(self, slot, offset, *, last_epoch=-1, **options):
        facts = slot_facts.describe(slot)
        topic = facts.topic_id if self.version >= 13 else facts.topic
        request = fetch_request([(topic, 0, offset)], **({"session_epoch": -1} | options))
        request.topics[0].partitions[0].last_fetched_epoch = last_epoch
        request.rack_id = self.rack
        if self.version >= 15:
            request.replica_state = fetch.Request.ReplicaState(replica_id=self.replica_id, replica_epoch=-1)
        else:
            request.replica_id = self.replica_id
        self.wire.send(request, fetch.API_KEY, self.version)
        self.worker.turn()

    def receive(self):
        self.response = self.wire.receive()
        (part,) = self.response.responses[0].partitions
        return part

    def ask(self, slot, offset, **options):
        self.send(slot, offset, **options)
        return self.receive()


# -- from a follower ---------------------------------------------------------------------------------------------------


@VERSIONS
def test_a_follower_serves_consumers_that_know_of_racks(worker, version):
    slot = followed(worker)
    part = Reader(worker, version).ask(slot, 0)
    if version < 11:
        assert (part.error_code, offsets(part.records)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
        return
    assert (part.error_code, part.high_watermark, offsets(part.records)) == (0, 2, [0, 1])
    assert part.preferred_read_replica == -1


@WITH_RACK
def test_a_follower_answers_nothing_between_its_high_watermark_and_its_end(worker, version):
    slot = followed(worker)
    for offset in (2, 3):
        part = Reader(worker, version).ask(slot, offset)
        assert (part.error_code, offsets(part.records)) == (0, [])
    log_start.advance(slot, 1, incarnation=slot_probe.incarnation_of(slot))
    assert Reader(worker, version).ask(slot, 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert offsets(Reader(worker, version).ask(slot, 1).records) == [1]


@WITH_RACK
def test_a_follower_sends_consumers_beyond_its_end_to_the_leader(worker, version):
    """It may have lost its tail. After OFFSET_OUT_OF_RANGE a consumer would reset its position."""
    slot = followed(worker)
    for offset in (4, 100):
        reader = Reader(worker, version)
        part = reader.ask(slot, offset)
        assert (part.error_code, offsets(part.records)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])


@WITH_RACK
def test_a_consumer_that_waits_at_a_follower_is_woken_by_its_high_watermark(worker, version):
    slot = followed(worker)
    reader = Reader(worker, version)
    reader.send(slot, 2, wait_ms=60_000)
    assert nothing_came(reader.wire)
    raise_high_watermark(slot, 3)
    worker.turn()
    assert offsets(reader.receive().records) == [2]


@WITH_RACK
def test_a_consumer_that_waits_is_answered_when_the_replica_goes(worker, version):
    slot = followed(worker)
    reader = Reader(worker, version)
    reader.send(slot, 2, wait_ms=60_000, leader_epoch=1)
    assert nothing_came(reader.wire)
    worker.broker.obey(slot, 2)
    worker.turn()
    assert reader.receive().error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("version", [12, 16, 18])
def test_leader_epochs_are_compared_at_a_follower_too(worker, version):
    slot = followed(worker)
    assert Reader(worker, version).ask(slot, 0, leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert Reader(worker, version).ask(slot, 0, leader_epoch=2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert Reader(worker, version).ask(slot, 0, leader_epoch=1).error_code == 0


@pytest.mark.parametrize("version", [4, 11, 18])
def test_a_debugging_client_reads_to_the_end_of_any_replica(worker, version):
    slot = followed(worker)
    part = Reader(worker, version, replica_id=DEBUGGING).ask(slot, 0)
    assert (part.error_code, offsets(part.records)) == (0, [0, 1, 2])


# -- from the leader ---------------------------------------------------------------------------------------------------


@VERSIONS
def test_the_leader_names_a_follower_in_the_consumers_rack(worker, version):
    slot = led(worker, fetched=3)
    part = Reader(worker, version).ask(slot, 1)
    assert part.error_code == 0
    if version < 11:
        assert offsets(part.records) == [1, 2]
    else:
        assert (part.preferred_read_replica, offsets(part.records)) == (FOLLOWER, [])


@WITH_RACK
def test_the_answer_with_a_preferred_replica_does_not_wait(worker, version):
    slot = led(worker, fetched=3)
    assert Reader(worker, version).ask(slot, 3, wait_ms=60_000).preferred_read_replica == FOLLOWER


@WITH_RACK
@pytest.mark.parametrize("rack", ["", "a", "elsewhere"])
def test_the_leader_serves_consumers_of_its_rack_and_of_racks_without_replica(worker, version, rack):
    slot = led(worker, fetched=3)
    part = Reader(worker, version, rack).ask(slot, 1)
    assert (part.preferred_read_replica, offsets(part.records)) == (-1, [1, 2])


@pytest.mark.parametrize("selector", [None, *SELECTORS[1:]])
def test_without_the_selector_the_leader_serves(make_worker, selector):
    worker = make_worker(selector)
    part = Reader(worker).ask(led(worker, fetched=3), 1)
    assert (part.preferred_read_replica, offsets(part.records)) == (-1, [1, 2])


def test_a_follower_in_the_leaders_rack_is_not_preferred(make_worker):
    worker = make_worker(racks=("b", "b", "b"))
    assert Reader(worker).ask(led(worker, fetched=3), 1).preferred_read_replica == -1


def test_a_follower_that_lacks_the_offset_is_not_preferred(worker):
    slot = led(worker, fetched=2)
    assert Reader(worker).ask(slot, 2).preferred_read_replica == FOLLOWER
    part = Reader(worker).ask(slot, 3)
    assert (part.error_code, part.preferred_read_replica) == (0, -1)
    assert replica_probe.note_fetch(slot, FOLLOWER, 3, log_start_offset=2) == 0
    assert Reader(worker).ask(slot, 1).preferred_read_replica == -1, "its log begins later"
    assert Reader(worker).ask(slot, 2).preferred_read_replica == FOLLOWER


def test_a_follower_that_is_not_in_sync_is_not_preferred(worker):
    slot = led(worker, fetched=3)
    incarnation = slot_probe.incarnation_of(slot)
    serial = in_sync.propose_in_sync(slot, incarnation, 0, [LEADER])
    assert in_sync.commit_in_sync(slot, incarnation, 0, serial, [LEADER], 1)
    assert Reader(worker).ask(slot, 1).preferred_read_replica == -1


def test_a_follower_that_the_client_cannot_reach_is_not_preferred(make_worker):
    worker = make_worker(names=[INTERNAL])
    assert Reader(worker).ask(led(worker, fetched=3), 1).preferred_read_replica == -1
    brokers.publish_brokers([broker_info(LEADER, rack="a")])
    assert Reader(worker).ask(slot_of(worker), 1).preferred_read_replica == -1, "it is not alive"


def slot_of(worker):
    return worker.topics.get("t").slot(0)


def test_debugging_clients_are_not_directed_to_a_follower(worker):
    part = Reader(worker, replica_id=DEBUGGING).ask(led(worker, fetched=3), 1)
    assert (part.preferred_read_replica, offsets(part.records)) == (-1, [1, 2])


@pytest.mark.parametrize(
    ("candidates", "preferred"),
    [
        ([], -1),
        ([(5, 100, 2)], 2),
        ([(5, 100, 2), (6, 50, 3)], 3),
        ([(6, 100, 2), (6, 50, 3)], 2),
        ([(6, 100, 2), (6, 100, 3)], 3),
        ([(9, 100, 4), (6, 100, 3)], 3),
    ],
)
def test_the_most_current_follower_is_preferred(make_worker, candidates, preferred):
    make_worker()
    view = ReplicaView(ClusterBrokers([CLIENTS]), LEADER, RACK_AWARE_SELECTOR)
    assert view.preferred(candidates, b"b", 0) == preferred


# -- the leader in responses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [12, 15, 16, 18])
def test_a_consumer_learns_the_leader_with_the_error(worker, version):
    slot = followed(worker)
    reader = Reader(worker, version)
    part = reader.ask(slot, 0, leader_epoch=0)
    assert part.error_code == ErrorCode.FENCED_LEADER_EPOCH
    if version < 16:
        assert (part.current_leader.leader_id, reader.response.node_endpoints) == (-1, [])
        return
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (FOLLOWER, 1)
    (endpoint,) = reader.response.node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack) == (FOLLOWER, "host-2", 9002, "b")


def test_a_follower_whose_last_epoch_is_older_than_the_newest_ones_learns_where_its_log_ends(worker):
    """The epoch is in the file only."""
    slot = worker.create("t", alone=False)
    for epoch in range(20):
        worker.broker.lead(slot, epoch, alone=False)
        assert slot_probe.append(slot, [batch(b"x")])[0][0] == 0
    reader = Reader(worker, 17, replica_id=FOLLOWER)
    for last_epoch, offset, diverging in ((2, 3, (-1, -1)), (2, 4, (2, 3)), (15, 16, (-1, -1))):
        part = reader.ask(slot, offset, last_epoch=last_epoch)
        assert (part.error_code, part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (0, *diverging)


# -- metering ----------------------------------------------------------------------------------------------------------


def usage_of_topic(worker):
    """(requests, bytes out, records out) of the topic by all clients."""
    rows = [row for row in pages.usage_rows(worker.broker.shm, 0) if row.topic == "t"]
    return tuple(sum(getattr(row, name) for row in rows) for name in ("requests", "bytes_out", "records_out"))


@pytest.mark.parametrize(("version", "session_epoch"), [(4, -1), (12, -1), (12, 0), (15, 0), (18, 0)])
def test_what_a_follower_fetches_is_replication_and_not_usage(worker, version, session_epoch):
    slot = led(worker)
    shm, size = worker.broker.shm, slot_facts.describe(slot).log_end_offset * len(batch(b"x"))
    replicated = pages.counters(shm, 0)["replication_bytes_out"]
    assert len(Reader(worker, version, replica_id=FOLLOWER).ask(slot, 0, session_epoch=session_epoch).records) == size
    assert usage_of_topic(worker) == (0, 0, 0)
    assert list(pages.positions(shm, 0)) == []
    assert pages.counters(shm, 0)["replication_bytes_out"] == replicated + size
    raise_high_watermark(slot, 3)
    assert len(Reader(worker, version).ask(slot, 0, session_epoch=session_epoch).records) == size
    assert usage_of_topic(worker)[:2] == (1, size)
    assert pages.counters(shm, 0)["replication_bytes_out"] == replicated + size
