"""ApiVersions, OffsetForLeaderEpoch, DescribeCluster and DescribeTopicPartitions on the wire, and APIs that are not served."""

import pytest

from odradek.api.table import APIS
from odradek.protocol import decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import (
    api_versions,
    describe_cluster,
    describe_topic_partitions,
    find_coordinator,
    get_telemetry_subscriptions,
    offset_for_leader_epoch,
)
from odradek.shm.epochs import end_offset_of
from odradek.storage.checkpoints import epochs_from
from tests.waiting import until
from tests.wire import batch

pytestmark = pytest.mark.xdist_group("api-other")


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_the_table(wire, version):
    request = api_versions.Request(client_software_name="wire", client_software_version="1")
    response = wire.ask(request, api_versions.API_KEY, version)
    assert response.error_code == 0
    assert [(one.api_key, one.min_version, one.max_version) for one in response.api_keys] == [
        (row.key, row.min_version, row.max_version) for row in APIS if row.served(clustered=False)
    ]


def test_an_unsupported_version_of_api_versions_is_answered_in_version_0(wire):
    frame = bytearray(wire.frame(api_versions.Request(), api_versions.API_KEY, 3))
    frame[6:8] = (99).to_bytes(2, "big")
    wire.socket.sendall(frame)
    data = wire.raw_frame()
    assert data[:4] == frame[8:12]
    response, end = decode(api_versions.Response, 0, data, 4)
    assert (response.error_code, end) == (ErrorCode.UNSUPPORTED_VERSION, len(data))
    assert {one.api_key for one in response.api_keys} == {row.key for row in APIS if row.served(clustered=False)}
    wire.forget_answer()
    assert wire.ask(api_versions.Request(), api_versions.API_KEY, 0).error_code == 0


def test_an_api_that_is_not_served_closes_the_connection(wire, connect):
    wire.send(get_telemetry_subscriptions.Request(), get_telemetry_subscriptions.API_KEY, 0)
    assert wire.closed_by_broker()
    other = connect()
    other.socket.sendall(b"\0\0\0\x0a" + (9999).to_bytes(2, "big") + b"\0\0" + b"\0\0\0\1" + b"\xff\xff")
    assert other.closed_by_broker()


def epoch_end(wire, topic, epoch, version, current=-1):
    make = offset_for_leader_epoch.Request
    asked = make.OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = make(replica_id=-1, topics=[make.OffsetForLeaderTopic(topic=topic, partitions=[asked])])
    return wire.ask(request, offset_for_leader_epoch.API_KEY, version).topics[0].partitions[0]


RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


@pytest.mark.parametrize("key_type", [2, 3, 127])
@pytest.mark.parametrize("version", range(1, 7))
def test_a_request_for_a_coordinator_of_another_kind_is_refused_permanently_with_a_reason(wire, version, key_type):
    keys = {"coordinator_keys": ["a", "b"]} if version >= 4 else {"key": "a"}
    answer = wire.ask(find_coordinator.Request(key_type=key_type, **keys), find_coordinator.API_KEY, version)
    told = answer.coordinators if version >= 4 else [answer]
    assert [one.key for one in told] == ["a", "b"] if version >= 4 else len(told) == 1
    for one in told:
        assert one.error_code not in RETRIABLE and one.error_code != 0
        assert (one.node_id, one.host, one.port) == (-1, "", -1)
        assert f"key type {key_type}" in one.error_message


@pytest.mark.parametrize("version", range(1, 7))
def test_the_only_broker_coordinates_every_transactional_id(wire, version):
    keys = {"coordinator_keys": ["a", "b"]} if version >= 4 else {"key": "a"}

    def answers():
        answer = wire.ask(find_coordinator.Request(key_type=1, **keys), find_coordinator.API_KEY, version)
        return answer.coordinators if version >= 4 else [answer]

    # The first request creates `__transaction_state`.
    until(lambda: answers()[0].error_code == ErrorCode.NONE, "a coordinator")
    for one in answers():
        assert (one.error_code, one.host, one.port) == (ErrorCode.NONE, *wire.socket.getpeername())


@pytest.mark.parametrize("version", range(2, 5))
def test_the_current_leader_epoch_ends_where_the_log_ends(wire, name, version):
    wire.create(name)
    wire.produce(name, batch(b"a", b"b"))
    epoch = wire.metadata(name).topics[0].partitions[0].leader_epoch
    told = epoch_end(wire, name, epoch, version, epoch)
    assert (told.error_code, told.leader_epoch, told.end_offset) == (0, epoch, 2)
    future = epoch_end(wire, name, epoch + 1, version)
    assert (future.error_code, future.leader_epoch, future.end_offset) == (0, -1, -1)
    assert epoch_end(wire, name, epoch, version, epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert epoch_end(wire, "no-such", epoch, version).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(2))
def test_old_versions_of_offset_for_leader_epoch_know_no_current_epoch(wire, name, version):
    """Version 0 does not return the epoch either. Kafka 3.9 serves both versions, too."""
    wire.create(name)
    wire.produce(name, batch(b"a", b"b"))
    epoch = wire.metadata(name).topics[0].partitions[0].leader_epoch
    told = epoch_end(wire, name, epoch, version)
    assert (told.error_code, told.leader_epoch, told.end_offset) == (0, epoch if version else -1, 2)
    future = epoch_end(wire, name, epoch + 1, version)
    assert (future.error_code, future.leader_epoch, future.end_offset) == (0, -1, -1)
    assert epoch_end(wire, "no-such", epoch, version).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    listed = wire.ask(api_versions.Request(), api_versions.API_KEY, 0).api_keys
    served = {key.api_key: (key.min_version, key.max_version) for key in listed}
    assert served[offset_for_leader_epoch.API_KEY] == (0, 4)


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_names_the_broker_and_refuses_controllers(wire, wire_broker, version):
    response = wire.ask(describe_cluster.Request(), describe_cluster.API_KEY, version)
    (broker,) = response.brokers
    assert (response.error_code, broker.port, response.controller_id) == (0, wire_broker.port, broker.broker_id)
    if version >= 1:
        told = wire.ask(describe_cluster.Request(endpoint_type=2), describe_cluster.API_KEY, version)
        assert told.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_describe_topic_partitions_returns_pages(wire, name):
    wire.create(name + "a", 3)
    wire.create(name + "b", 2)
    make, found, cursor = describe_topic_partitions.Request, [], None
    for _ in range(3):
        request = make(
            topics=[make.TopicRequest(name=name + letter) for letter in "bac"],
            response_partition_limit=2,
            cursor=cursor,
        )
        page = wire.ask(request, describe_topic_partitions.API_KEY, 0)
        found.append([(one.name[-1], one.error_code, len(one.partitions)) for one in page.topics])
        cursor = page.next_cursor and make.Cursor(
            topic_name=page.next_cursor.topic_name, partition_index=page.next_cursor.partition_index
        )
    assert found == [[("a", 0, 2)], [("a", 0, 1), ("b", 0, 1)], [("b", 0, 1), ("c", 3, 0)]]
    assert cursor is None


def test_end_offsets_of_known_epochs():
    epochs = [(3, 10), (5, 20), (9, 40)]
    told = [end_offset_of(epochs, asked, 50) for asked in (-1, 0, 3, 4, 5, 8, 9, 10)]
    assert told == [(-1, -1), (0, 10), (3, 20), (3, 20), (5, 40), (5, 40), (9, 50), (-1, -1)]
    assert end_offset_of([], 0, 50) == (-1, -1)


def test_the_epoch_of_an_empty_log_ends_at_its_start(wire, name):
    wire.create(name)
    told = epoch_end(wire, name, 0, 4)
    assert (told.error_code, told.leader_epoch, told.end_offset) == (0, 0, 0)


def test_epochs_whose_records_are_all_deleted_are_unknown_immediately():
    epochs = epochs_from([(0, 0), (2, 10), (5, 20)], 12)
    told = [end_offset_of(epochs, asked, 30) for asked in (5, 2, 3, 0, 6)]
    # As of a log that never held epoch 0: it ends where the first known one begins, which is where the log begins.
    assert told == [(5, 30), (2, 20), (2, 20), (0, 12), (-1, -1)]
