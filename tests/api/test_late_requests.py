"""Requests that waited until their client had closed the connection: which of them are executed."""

import socket
import time

import pytest

from odradek._ext.net.late_requests import unawaited
from odradek._ext.partition import slots
from odradek.protocol import encode_frame
from odradek.protocol.schemas import (
    api_versions,
    consumer_group_heartbeat,
    fetch,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    produce,
)
from odradek.protocol.schemas.header import RequestHeader, request_header_version
from tests.api.coordinator_harness import versions
from tests.api.worker_harness import HandWorker
from tests.cuts.cutting import close, half_close, reset
from tests.waiting import until
from tests.wire import batch, fetch_request, produce_request, values

LATE_S = 1.0


@pytest.fixture
def worker(tmp_path):
    worker = HandWorker(tmp_path)
    yield worker
    worker.close()


def request(api_key, version, message, client_id="wire"):
    """A request with its header, without its length."""
    header = RequestHeader(request_api_key=api_key, request_api_version=version, correlation_id=1, client_id=client_id)
    return encode_frame(header, request_header_version(api_key, version), message, version)[4:]


def put(topic, value, acks, **fields):
    return produce_request([(topic, [(0, batch(value, **fields))])], acks)


def send(wire, *requests):
    """Produce requests, in one write."""
    wire.socket.sendall(b"".join(wire.frame(one, produce.API_KEY, 9) for one in requests))


def stand_still():
    """The fault itself: for so long nobody reads what clients send."""
    time.sleep(LATE_S + 0.1)


def in_log(worker, topic):
    """All that was appended to a topic."""
    with_all = worker.connect()
    with_all.send(fetch_request([(topic, 0, 0)]), fetch.API_KEY, 12)
    worker.turn()
    return values(with_all.receive().responses[0].partitions[0].records)


def connect(worker):
    """A client over TCP."""
    return worker.connect(tcp=True)


CASES = {
    "closed": (close, [("a", 1)], []),
    "closed, acks of all": (close, [("a", -1)], []),
    "reset": (reset, [("a", 1)], []),
    "half closed": (half_close, [("a", 1)], []),
    "closed, no acks": (close, [("a", 0)], ["a"]),
    "reset, no acks": (reset, [("a", 0)], ["a"]),
    "closed, no acks between others": (close, [("a", 1), ("b", 0), ("c", 1), ("d", 0)], ["b", "d"]),
    "open": (lambda wire: None, [("a", 1), ("b", 0), ("c", -1)], ["a", "b", "c"]),
}


def test_late_requests_of_disconnected_clients_are_executed_only_if_unawaited(worker, caplog):
    caplog.set_level("INFO")
    wires = {}
    for number, (end, sent, _) in enumerate(CASES.values()):
        worker.create(f"t{number}")
        wires[number] = connect(worker)
        send(wires[number], *(put(f"t{number}", value.encode(), acks) for value, acks in sent))
        end(wires[number])
    stand_still()
    until(lambda: worker.turn() or len(worker.loop.connections.by_id) == 1, "all but the open connection have ended")
    found = {name: in_log(worker, f"t{number}") for number, name in enumerate(CASES)}
    assert found == {name: [one.encode() for one in expected] for name, (_, _, expected) in CASES.items()}
    half, still_open = wires[list(CASES).index("half closed")], wires[list(CASES).index("open")]
    assert half.socket.recv(1) == b"", "it is closed without a response"
    for _ in range(2):
        still_open._sent = [one for one in still_open._sent if one[2] != 2]
        assert still_open.receive().responses[0].partition_responses[0].error_code == 0
    assert "2 request(s) were not executed: they had waited for over 1 s when the client had closed" in caplog.text


@pytest.mark.parametrize("end", [close, reset], ids=["closed", "reset"])
def test_requests_sent_just_before_the_end_of_the_connection_are_executed(worker, end):
    worker.create("t")
    for _ in range(20):
        wire = connect(worker)
        send(wire, put("t", b"a", 1), put("t", b"b", 0))
        end(wire)
        until(lambda: worker.turn() or len(worker.loop.connections.by_id) == 0, "the connection has ended")
    assert in_log(worker, "t") == [b"a", b"b"] * 20


def test_a_half_closed_connection_that_is_read_in_time_is_answered(worker):
    worker.create("t")
    wire = connect(worker)
    send(wire, put("t", b"a", -1))
    half_close(wire)
    until(lambda: worker.turn() or len(worker.loop.connections.by_id) == 0, "the connection has ended")
    assert wire.receive().responses[0].partition_responses[0].error_code == 0
    assert wire.closed_by_broker()


def test_records_without_acks_keep_their_order_after_a_request_that_is_not_executed(worker):
    worker.create("t")
    wire = connect(worker)
    send(wire, put("t", b"skipped", 1), put("t", b"a", 0, codec=1), put("t", b"b", 0), put("t", b"c", 0, codec=3))
    close(wire)
    stand_still()

    def ended():
        worker.turn()
        worker.append()
        return not worker.loop.connections.by_id

    until(ended, "the connection has ended")
    assert in_log(worker, "t") == [b"a", b"b", b"c"]


def test_frames_held_back_until_their_client_disconnected_are_not_executed(worker):
    slot = worker.create("t", alone=False)
    worker.create("u")
    wire = connect(worker)
    send(wire, put("t", b"first", -1))
    wire.send(fetch_request([("u", 0, 0)]), fetch.API_KEY, 12)
    send(wire, put("u", b"held back", 1), put("u", b"without an answer", 0))
    until(
        lambda: worker.turn() or any(one.muted for one in worker.loop.connections.by_id.values()), "the frames are held"
    )
    close(wire)
    stand_still()
    worker.turn()
    slots.raise_high_watermark(slot, 1)
    until(lambda: worker.turn() or not worker.loop.connections.by_id, "the connection has ended")
    assert in_log(worker, "u") == [b"without an answer"]


def test_frames_held_back_are_executed_for_a_connected_client(worker):
    slot = worker.create("t", alone=False)
    worker.create("u")
    wire = connect(worker)
    send(wire, put("t", b"first", -1))
    wire.send(fetch_request([("u", 0, 0)]), fetch.API_KEY, 12)
    send(wire, put("u", b"held back", 1))
    until(
        lambda: worker.turn() or any(one.muted for one in worker.loop.connections.by_id.values()), "the frames are held"
    )
    stand_still()
    slots.raise_high_watermark(slot, 1)
    worker.turn()
    assert wire.receive().responses[0].partition_responses[0].error_code == 0
    assert not wire.receive().responses[0].partitions[0].records
    assert wire.receive().responses[0].partition_responses[0].error_code == 0


def test_after_a_suspension_of_the_loop_no_request_of_closed_connections_is_executed(worker):
    worker.create("t")
    worker.loop.tick()
    stand_still()
    gone, there = connect(worker), connect(worker)
    send(gone, put("t", b"of one that left", 1), put("t", b"without an answer", 0))
    send(there, put("t", b"of one that stayed", 1))
    close(gone)
    until(lambda: worker.turn() or len(worker.loop.connections.by_id) == 1, "the connection has ended")
    assert sorted(in_log(worker, "t")) == [b"of one that stayed", b"without an answer"]
    worker.loop.tick()
    time.sleep(0.1)  # when the standstill ended is known to some milliseconds, those of the kernel's clock for sockets
    after = connect(worker)
    send(after, put("t", b"after", 1))
    close(after)
    until(lambda: worker.turn() or len(worker.loop.connections.by_id) == 2, "the connection has ended")
    assert b"after" in in_log(worker, "t")


def test_an_hour_without_requests_is_not_a_suspension(worker):
    """The timer fires though no connection has anything to say."""
    worker.create("t")
    for _ in range(3):
        worker.loop.tick()
        time.sleep(LATE_S / 2)
    worker.loop.tick()
    wire = connect(worker)
    send(wire, put("t", b"a", 1))
    close(wire)
    until(lambda: worker.turn() or not worker.loop.connections.by_id, "the connection has ended")
    assert in_log(worker, "t") == [b"a"]


# -- which requests clients send without waiting for the response ---------------------------------------------------------


@pytest.mark.parametrize("version", versions(produce.API_KEY))
def test_a_produce_without_acks_is_unawaited(version):
    place = bytes(16) if version >= 13 else "topic"
    for acks in (0, 1, -1):
        for client_id in (None, "", "some client"):
            fields = {} if version < 3 else {"transactional_id": "of a transaction"}
            message = produce_request([(place, [(0, b"x")])], acks)
            for name, value in fields.items():
                setattr(message, name, value)
            assert unawaited(request(produce.API_KEY, version, message, client_id)) == (acks == 0)


@pytest.mark.parametrize("version", versions(leave_group.API_KEY))
def test_a_consumers_leave_is_unawaited_and_an_administrators_is_not(version):
    make = leave_group.Request

    def leaving(*members):
        if version < 3:
            return make(group_id="g", member_id=members[0][0])
        return make(
            group_id="g",
            members=[make.MemberIdentity(member_id=one, group_instance_id=instance) for one, instance in members],
        )

    assert unawaited(request(leave_group.API_KEY, version, leaving(("member", None))))
    assert not unawaited(request(leave_group.API_KEY, version, leaving(("", "instance"))))
    if version >= 3:
        assert unawaited(request(leave_group.API_KEY, version, leaving(("a", None), ("b", "instance"))))
        assert not unawaited(request(leave_group.API_KEY, version, leaving(("a", None), ("", "instance"))))


@pytest.mark.parametrize("version", versions(consumer_group_heartbeat.API_KEY))
def test_the_last_heartbeat_of_a_new_groups_member_is_unawaited(version):
    for epoch, member_id, expected in (
        (-1, "m", True),
        (-2, "m", True),
        (0, "m", False),
        (7, "m", False),
        (-1, "", False),
    ):
        message = consumer_group_heartbeat.Request(group_id="g", member_id=member_id, member_epoch=epoch)
        assert unawaited(request(consumer_group_heartbeat.API_KEY, version, message)) == expected


def test_other_requests_are_awaited():
    messages = [
        (offset_commit, offset_commit.Request(group_id="g")),
        (heartbeat, heartbeat.Request(group_id="g")),
        (join_group, join_group.Request(group_id="g")),
        (api_versions, api_versions.Request()),
        (fetch, fetch_request([("t", 0, 0)])),
    ]
    for module, message in messages:
        for version in versions(module.API_KEY):
            if module is fetch and version >= 13:
                continue
            assert not unawaited(request(module.API_KEY, version, message))


def test_a_request_that_cannot_be_read_is_awaited():
    make = leave_group.Request
    whole = [
        request(produce.API_KEY, 9, produce_request([("t", [(0, b"x")])], 0)),
        request(leave_group.API_KEY, 5, make(group_id="g", members=[make.MemberIdentity(member_id="m")])),
        request(
            consumer_group_heartbeat.API_KEY,
            1,
            consumer_group_heartbeat.Request(group_id="g", member_id="m", member_epoch=-1),
        ),
    ]
    for data in whole:
        assert unawaited(data)
        shortest = next(length for length in range(len(data) + 1) if unawaited(data[:length]))
        assert not any(unawaited(data[:length]) for length in range(shortest))


def test_a_socket_other_than_tcp_is_never_late(worker):
    worker.create("t")
    wire = worker.connect()
    assert wire.socket.family == socket.AF_UNIX
    send(wire, put("t", b"a", 1))
    close(wire)
    stand_still()
    until(lambda: worker.turn() or not worker.loop.connections.by_id, "the connection has ended")
    assert in_log(worker, "t") == [b"a"]
