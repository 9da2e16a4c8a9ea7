"""Requests that cannot be answered immediately: taken locks, lagging replicas, work on the append thread, failures."""

import gc
import time

import pytest

from odradek._ext.api.fetch_context import FetchPartition
from odradek._ext.partition import slots
from odradek._ext.testing import lock_probe
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import api_versions, fetch, produce
from tests.api.worker_harness import HandWorker, nothing_came
from tests.waiting import readable
from tests.wire import batch, fetch_request, offsets, produce_request, values


@pytest.fixture
def worker(tmp_path):
    worker = HandWorker(tmp_path)
    yield worker
    worker.close()


def send(wire, topic, records, acks=1, timeout_ms=10_000):
    wire.send(produce_request([(topic, [(0, records)])], acks, timeout_ms), produce.API_KEY, 9)


def told(wire):
    one = wire.receive().responses[0].partition_responses[0]
    return one.error_code, one.base_offset


def read(worker, wire, topic, offset=0):
    wire.send(fetch_request([(topic, 0, offset)]), fetch.API_KEY, 12)
    worker.turn()
    return values(wire.receive().responses[0].partitions[0].records)


@pytest.mark.parametrize("codecs", [(0, 0, 0), (0, 1, 0), (1, 0, 1), (0, 0, 3), (1, 1, 0)])
@pytest.mark.parametrize("together", [True, False])
def test_nothing_overtakes_a_request_that_met_a_taken_lock(worker, codecs, together):
    slot = worker.create("t")
    wire = worker.connect()
    with lock_probe.SlotLock(slot):
        for number, codec in enumerate(codecs):
            send(wire, "t", batch(b"%d" % number, codec=codec, producer_id=7, producer_epoch=0, base_sequence=number))
            if not together:
                worker.turn()
        worker.turn()
        for _ in range(3):
            worker.append()
            worker.retry()
        assert nothing_came(wire)
    for _ in codecs:
        worker.append()
        worker.retry()
    assert [told(wire) for _ in codecs] == [(0, 0), (0, 1), (0, 2)]
    assert read(worker, wire, "t") == [b"0", b"1", b"2"]


def test_nothing_overtakes_behind_a_request_to_another_partition_that_waits_for_replicas(worker):
    locked, lagging = worker.create("locked"), worker.create("lagging", alone=False)
    wire = worker.connect()
    with lock_probe.SlotLock(locked):
        send(wire, "locked", batch(b"first"))
        send(wire, "lagging", batch(b"between"), acks=-1)
        worker.turn()
    send(wire, "locked", batch(b"second"))
    worker.turn()
    slots.raise_high_watermark(lagging, 1)
    worker.turn()
    worker.retry()
    assert [told(wire) for _ in range(3)] == [(0, 0), (0, 0), (0, 1)]
    assert read(worker, wire, "locked") == [b"first", b"second"]


def test_a_taken_lock_is_waited_for_whatever_the_clients_timeout(worker):
    slot = worker.create("t")
    wire = worker.connect()
    with lock_probe.SlotLock(slot):
        send(wire, "t", batch(), timeout_ms=0)
        worker.turn()
        worker.retry()
        assert nothing_came(wire)
    worker.retry()
    assert told(wire) == (0, 0)


def test_a_client_that_leaves_while_its_request_waits_for_a_lock_disturbs_nobody(worker):
    slot = worker.create("t")
    leaving, staying = worker.connect(), worker.connect()
    with lock_probe.SlotLock(slot):
        send(leaving, "t", batch(b"of one that left"))
        worker.turn()
        leaving.socket.close()
        worker.turn()
    worker.retry()
    send(staying, "t", batch(b"of one that stayed"))
    worker.turn()
    assert told(staying) == (0, 1)
    assert read(worker, staying, "t") == [b"of one that left", b"of one that stayed"]


def test_a_client_that_leaves_during_its_append_disturbs_nobody(worker):
    worker.create("t")
    leaving, staying = worker.connect(), worker.connect()
    send(leaving, "t", batch(b"of one that left", codec=1))
    worker.turn()
    leaving.socket.close()
    worker.turn()
    assert len(worker.loop.connections.by_id) == 1
    worker.append()
    send(staying, "t", batch(b"of one that stayed"))
    worker.turn()
    assert told(staying) == (0, 0)
    assert read(worker, staying, "t") == [b"of one that stayed"], "nothing is done for one that is not there any more"


def test_acks_of_all_waits_for_the_high_watermark_and_times_out_alone(worker):
    slot = worker.create("t", alone=False)
    quick = worker.create("quick")
    wire = worker.connect()
    send(wire, "t", batch(b"a"), acks=-1)
    worker.turn()
    assert nothing_came(wire)
    slots.raise_high_watermark(slot, 1)
    worker.turn()
    assert told(wire) == (0, 0)
    wire.send(produce_request([("t", [(0, batch(b"b"))]), ("quick", [(0, batch(b"c"))])], -1), produce.API_KEY, 9)
    worker.turn()
    worker.expire()
    response = wire.receive()
    assert [one.partition_responses[0].error_code for one in response.responses] == [ErrorCode.REQUEST_TIMED_OUT, 0]
    assert quick != slot


def test_acks_of_all_is_told_that_the_leader_or_the_replicas_went(worker):
    slot = worker.create("t", alone=False, min_in_sync_replicas=2)
    wire = worker.connect()
    send(wire, "t", batch(b"a"), acks=-1)
    worker.turn()
    worker.broker.lead(slot, 1, alone=False)
    worker.turn()
    worker.expire()
    assert told(wire) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    worker.broker.lead(slot, 2, alone=True)
    send(wire, "t", batch(b"b"), acks=-1)
    worker.turn()
    assert told(wire) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)


def test_requests_joined_by_a_connection_that_failed_are_not_executed_for_another(worker, caplog):
    worker.create("t")
    worker.topics.by_name[b"odd"] = "not a topic, so that looking it up fails"
    failing, other = worker.connect(), worker.connect()
    failing.socket.sendall(
        b"".join(
            failing.frame(produce_request([(topic, [(0, batch())])], 1), produce.API_KEY, 9) for topic in ("t", "odd")
        )
    )
    worker.turn()
    assert failing.closed_by_broker()
    assert "TypeError" in caplog.text
    send(other, "t", batch(b"next"))
    worker.turn()
    assert told(other) == (0, 0)
    assert nothing_came(other)
    assert read(worker, other, "t") == [b"next"]


def test_a_truncated_log_is_not_read_at_the_place_where_it_ended(worker):
    slot = worker.create("t")
    wire = worker.connect()
    for number in range(5):
        send(wire, "t", batch(b"old %d" % number * (number + 1)))
    worker.turn()
    assert all(told(wire)[0] == 0 for _ in range(5))
    wire.send(fetch_request([("t", 0, 0)], session_epoch=0), fetch.API_KEY, 12)
    worker.turn()
    session = wire.receive().session_id
    wire.send(fetch_request([("t", 0, 5)], session_id=session, session_epoch=1), fetch.API_KEY, 12)
    worker.turn()
    wire.receive()
    worker.broker.obey(slot, 1)
    slots.truncate(slot, 2, leader_epoch=1)
    worker.broker.lead(slot, 2)
    worker.turn()
    for number in range(4):
        send(wire, "t", batch(b"new %d" % number))
    worker.turn()
    assert [told(wire) for _ in range(4)] == [(0, 2), (0, 3), (0, 4), (0, 5)]
    wire.send(fetch_request([], session_id=session, session_epoch=2), fetch.API_KEY, 12)
    worker.turn()
    records = wire.receive().responses[0].partitions[0].records
    assert (offsets(records), values(records)) == ([5], [b"new 3"])
    assert read(worker, wire, "t", 2) == [b"new %d" % number for number in range(4)]


def test_answered_long_polls_do_not_pile_up_until_their_deadlines(worker):
    worker.create("t")
    polling, writing = worker.connect(), worker.connect()
    for number in range(3000):
        polling.send(fetch_request([("t", 0, number)], wait_ms=2**31 - 1), fetch.API_KEY, 12)
        worker.turn()
        assert worker.room.waiters == 1
        send(writing, "t", batch(b"x"))
        worker.turn()
        polling.receive()
        told(writing)
    assert worker.room.waiters == 0
    assert worker.room.entries <= 2 * 1 + 1024 + 1


def test_a_parked_fetch_whose_log_cannot_be_read_costs_no_wake_up_of_others(worker, tmp_path):
    worker.create("broken")
    worker.create("sound")
    broken, sound, writing = worker.connect(), worker.connect(), worker.connect()
    for topic in ("broken", "sound"):
        send(writing, topic, batch(b"first"))
    worker.turn()
    assert [told(writing)[0], told(writing)[0]] == [0, 0]
    for wire, topic in ((broken, "broken"), (sound, "sound")):
        wire.send(fetch_request([(topic, 0, 1)], wait_ms=60_000), fetch.API_KEY, 12)
    worker.turn()
    (tmp_path / "broken-0" / "00000000000000000000.log").rename(tmp_path / "elsewhere")
    for topic in ("broken", "sound"):
        send(writing, topic, batch(b"x"))
    worker.turn()
    assert [told(writing)[0], told(writing)[0]] == [0, 0]
    assert broken.receive().responses[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert values(sound.receive().responses[0].partitions[0].records) == [b"x"]


def poll(wire, topic, offset, wait_ms=60_000):
    wire.send(fetch_request([(topic, 0, offset)], wait_ms=wait_ms), fetch.API_KEY, 12)


def test_a_consumer_that_waits_again_is_answered_by_its_new_deadline(worker):
    worker.create("t")
    polling, writing = worker.connect(), worker.connect()

    def expired():
        following = worker.room.expire()
        worker.loop.flush_dirty()
        return following

    poll(polling, "t", 0)
    worker.turn()
    first_due = expired()
    assert first_due > 0
    send(writing, "t", batch(b"x"))
    worker.turn()
    assert offsets(polling.receive().responses[0].partitions[0].records) == [0]
    assert (expired(), worker.room.entries) == (-1, 0)  # nobody waits
    for round_number in range(3):
        poll(polling, "t", 1 + round_number)  # answered long before its deadline
        worker.turn()
        send(writing, "t", batch(b"y"))
        worker.turn()
        assert polling.receive().responses[0].partitions[0].records
        end = 2 + round_number
        poll(polling, "t", end, wait_ms=20)
        worker.turn()
        give_up = time.monotonic() + 30
        while worker.room.waiters:
            assert expired() < first_due + 30_000
            assert time.monotonic() < give_up
        assert not polling.receive().responses[0].partitions[0].records
        poll(polling, "t", end, wait_ms=3_600_000)
        worker.turn()
        assert expired() > first_due + 1_000_000
        assert nothing_came(polling)
        assert worker.room.waiters == 1
        worker.expire()
        assert not polling.receive().responses[0].partitions[0].records


def test_a_consumer_without_a_session_waits_for_what_it_asks_for_now(worker):
    for topic in ("t", "u"):
        worker.create(topic)
    polling, writing = worker.connect(), worker.connect()
    for number, (topic, other) in enumerate([("t", "u"), ("u", "t"), ("u", "t"), ("t", "u")]):
        poll(polling, topic, number)
        worker.turn()
        send(writing, other, batch(b"of no interest"))
        worker.turn()
        assert told(writing)[0] == 0
        assert nothing_came(polling)
        send(writing, topic, batch(b"x"))
        worker.turn()
        answer = polling.receive().responses[0]
        assert (answer.topic, values(answer.partitions[0].records)) == (topic, [b"x"])
        assert told(writing)[0] == 0


@pytest.mark.parametrize("version", [4, 12])
def test_what_a_client_asked_for_goes_with_it_though_its_deadline_is_far(worker, version):
    def kept():
        return sum(type(one) is FetchPartition for one in gc.get_objects())

    worker.create("t")
    staying = worker.connect()
    poll(staying, "t", 0)
    worker.turn()
    gc.collect()  # what tests before this one left in circles goes now or, uncounted, at any moment
    before = kept()
    leaving = worker.connect()
    others = [f"t{number}" for number in range(50)]
    for other in others:
        worker.create(other)
    request = fetch_request([(other, 0, 0) for other in others], wait_ms=2**31 - 1, min_bytes=1 << 20)
    leaving.send(request, fetch.API_KEY, version)
    worker.turn()
    assert kept() == before + 50
    leaving.socket.close()
    worker.turn()
    assert len(worker.loop.connections.by_id) == 1
    assert kept() == before


def test_who_waits_for_records_is_told_at_once_also_if_their_sender_ends_with_them(worker):
    """As `Worker._on_wake` does: whoever waits is served when the loop's event descriptor is readable, not before."""
    worker.create("t")
    reader, sender = worker.connect(), worker.connect()
    reader.send(fetch_request([("t", 0, 0)], wait_ms=600_000), fetch.API_KEY, 12)
    worker.turn()
    assert nothing_came(reader)
    send(sender, "t", batch(b"last words"))
    sender.send(api_versions.Request(), api_versions.API_KEY, 0)  # which raises, in the harness
    shm = worker.broker.shm
    shm.drain_event()
    while readable(worker.loop.fileno()):
        worker.loop.on_events()
    assert sender.socket.recv(1) == b"", "the connection has ended"
    assert readable(shm.event_fd())
    shm.drain_event()
    worker.room.serve()
    worker.loop.flush_dirty()
    assert values(reader.receive().responses[0].partitions[0].records) == [b"last words"]
