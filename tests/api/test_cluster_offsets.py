"""ListOffsets and OffsetForLeaderEpoch in a cluster: after an election, on followers, and between two roles."""

import pytest

from odradek._ext.partition import roles
from odradek._ext.testing import replica_probe, slot_probe
from odradek.api.records import list_offsets, offset_for_leader_epoch
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import list_offsets as list_offsets_schema
from odradek.protocol.schemas import offset_for_leader_epoch as epochs_schema
from tests.api.cluster_calls import ClusterCalls, broker_info
from tests.shm.one_broker import batch

LATEST, EARLIEST, LARGEST = -1, -2, -3
CONSUMER, DEBUGGING, FOLLOWER = -1, -2, 2
VERSIONS = pytest.mark.parametrize("version", [4, 5, 7, 10, 11])


@pytest.fixture
def cluster(tmp_path):
    calls = ClusterCalls(tmp_path)
    calls.publish_brokers(broker_info(1), broker_info(2))
    yield calls
    calls.close()


@pytest.fixture
def slot(cluster):
    """A partition with two records of epoch 0 that its follower has not fetched, and one record of epoch 3."""
    slot = cluster.broker.create("t", alone=False)
    cluster.broker.lead(slot, 0, alone=False)
    append(slot, 2, timestamp=1000)
    cluster.broker.lead(slot, 3, alone=False)
    append(slot, 1, timestamp=2000)
    cluster.topics.refresh()
    return slot


def append(slot, count, **fields):
    for _ in range(count):
        assert slot_probe.append(slot, [batch(**fields)])[0][0] == 0


def ask(cluster, timestamp, version=7, *, replica_id=CONSUMER, epoch=-1, topic="t"):
    make = list_offsets_schema.Request
    partition = make.ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
    request = make(replica_id=replica_id, topics=[make.ListOffsetsTopic(name=topic, partitions=[partition])])
    (found,) = cluster.ask(list_offsets.handle, request, version).topics[0].partitions
    return found.error_code, found.offset


@VERSIONS
def test_the_end_is_unknown_until_the_high_watermark_reaches_the_epoch(cluster, slot, version):
    refused = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
    for fetched in (0, 1):
        assert replica_probe.note_fetch(slot, FOLLOWER, fetched) == 0
        assert ask(cluster, LATEST, version) == (refused, -1)
        assert ask(cluster, 1500, version) == (refused, -1)
        assert ask(cluster, 3000, version) == (refused, -1)
        assert ask(cluster, EARLIEST, version) == (0, 0)
        assert ask(cluster, LATEST, version, replica_id=FOLLOWER) == (0, 3)
        assert ask(cluster, LATEST, version, replica_id=DEBUGGING) == (0, 3)
    assert ask(cluster, 500, version) == (0, 0), "a committed record"
    assert replica_probe.note_fetch(slot, FOLLOWER, 2) == 0
    assert ask(cluster, LATEST, version) == (0, 2)
    assert ask(cluster, 1500, version) == (0, -1), "the record is not committed, and none before it can be"
    assert ask(cluster, 1500, version, replica_id=DEBUGGING) == (0, 2)


def test_the_largest_timestamp_is_unknown_as_well(cluster, slot):
    assert ask(cluster, LARGEST) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert replica_probe.note_fetch(slot, FOLLOWER, 3) == 0
    assert ask(cluster, LARGEST) == (0, 2)


@VERSIONS
@pytest.mark.parametrize("replica_id", [CONSUMER, DEBUGGING, FOLLOWER])
def test_leader_epochs_of_clients_are_compared(cluster, slot, version, replica_id):
    for timestamp in (LATEST, EARLIEST, 0):
        assert ask(cluster, timestamp, version, replica_id=replica_id, epoch=2)[0] == ErrorCode.FENCED_LEADER_EPOCH
        assert ask(cluster, timestamp, version, replica_id=replica_id, epoch=4)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ask(cluster, EARLIEST, version, replica_id=replica_id, epoch=3) == (0, 0)


@VERSIONS
def test_a_follower_answers_only_debugging_clients(cluster, slot, version):
    cluster.broker.obey(slot, 4)
    assert ask(cluster, LATEST, version)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(cluster, LATEST, version, replica_id=FOLLOWER)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(cluster, LATEST, version, epoch=3)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert ask(cluster, LATEST, version, replica_id=DEBUGGING) == (0, 3)
    assert ask(cluster, EARLIEST, version, replica_id=DEBUGGING, epoch=4) == (0, 0)


def test_a_partition_without_a_role_or_of_other_brokers_has_no_leader_here(cluster, slot):
    roles.leave_role(slot, slot_probe.incarnation_of(slot), 3)
    cluster.remote("remote", leader_id=2)
    for topic, epoch in (("t", -1), ("t", 3), ("remote", -1)):
        assert ask(cluster, LATEST, epoch=epoch, topic=topic)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert end_of(cluster, 0, current=epoch, topic=topic)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- leader epochs ----------------------------------------------------------------------------------------------------


def end_of(cluster, epoch, version=4, *, current=-1, replica_id=CONSUMER, topic="t"):
    make = epochs_schema.Request
    partition = make.OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = make(replica_id=replica_id, topics=[make.OffsetForLeaderTopic(topic=topic, partitions=[partition])])
    (found,) = cluster.ask(offset_for_leader_epoch.handle, request, version).topics[0].partitions
    return found.error_code, found.leader_epoch, found.end_offset


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("replica_id", [CONSUMER, DEBUGGING, FOLLOWER])
def test_epochs_of_the_leader(cluster, slot, version, replica_id):
    def end(epoch):
        error, found, offset = end_of(cluster, epoch, version, replica_id=replica_id)
        assert error == 0
        return (found if version >= 1 else None), offset

    def expected(epoch, offset):
        return (epoch if version >= 1 else None), offset

    assert end(0) == expected(0, 2)
    assert end(2) == expected(0, 2)
    assert end(3) == expected(3, 3), "the log end, not the high watermark"
    assert end(4) == expected(-1, -1)
    cluster.broker.lead(slot, 6, alone=False)
    assert (end(4), end(6)) == (expected(3, 3), expected(6, 3)), "nothing was written in the new epoch yet"


@pytest.mark.parametrize("replica_id", [CONSUMER, DEBUGGING, FOLLOWER])
def test_only_the_leader_knows_where_epochs_end(cluster, slot, replica_id):
    assert end_of(cluster, 0, current=2, replica_id=replica_id)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert end_of(cluster, 0, current=4, replica_id=replica_id)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
    cluster.broker.obey(slot, 5)
    assert end_of(cluster, 0, current=5, replica_id=replica_id)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert end_of(cluster, 0, replica_id=replica_id)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert end_of(cluster, 0, current=3, replica_id=replica_id)[0] == ErrorCode.FENCED_LEADER_EPOCH


def test_an_end_that_was_found_while_the_role_changed_is_not_returned(cluster, slot, monkeypatch):
    """A follower that truncates its log by an end of another log would lose records, or keep too many."""
    found = iter([lambda: cluster.broker.lead(slot, 7, alone=False), lambda: None])

    def look_up(slot, epoch):
        next(found)()
        return epoch, 1

    monkeypatch.setattr(offset_for_leader_epoch, "end_offset_for", look_up)
    assert end_of(cluster, 0) == (0, 0, 1)
    assert not list(found), "it was found again"
    found = iter([lambda: cluster.broker.obey(slot, 8)])
    assert end_of(cluster, 0)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
