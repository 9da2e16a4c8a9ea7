"""A replica fetcher and a leader: what it appends, when it truncates, and what a leader that misbehaves cannot cause."""

import os
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slots
from odradek._ext.partition.lost_tails import lost_tail
from odradek._ext.partition.role_facts import describe_role
from odradek._ext.shm import overview
from odradek._ext.shm.slot import LostTail, SlotState
from odradek._ext.shm.topics import TopicDirectory
from odradek._ext.testing import replica_probe
from odradek.api.cluster import describe_log_dirs
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_log_dirs as describe_log_dirs_schema
from odradek.protocol.schemas import fetch
from odradek.replication import fetcher
from odradek.replication.fetcher import Fetcher
from odradek.stepwise import Stepwise
from tests.replication.fake_leader import FakeLeader, Led, PartitionData
from tests.replication.following import Following, fill, sent
from tests.waiting import until


def test_it_appends_what_the_leader_has_and_gets(following: Following) -> None:
    slot, led = following.create()
    fill(led, 30)
    following.start()
    following.until_equal(slot, led)
    for _ in range(20):
        following.leader.append(led, sent(led.log_end))
    following.until_equal(slot, led)
    until(lambda: slots.high_watermark(slot) == led.log_end, "the high watermark follows")
    assert following.fetcher.records_bytes == sum(map(len, led.batches))
    assert following.leader.clients == {"broker-1-fetcher-0"}


def test_a_log_that_lost_its_end_is_complete_when_it_has_what_its_leader_has(following: Following) -> None:
    slot, led = following.create()
    other, idle = following.create("idle")
    fill(led, 30)
    for lost in (slot, other):
        replica_probe.lose_tail(lost, 100, 0)
    following.start()
    following.until_equal(slot, led)
    until(lambda: lost_tail(slot).state == LostTail.TAIL_COMPLETE, "the log is complete")
    until(lambda: lost_tail(other).state == LostTail.TAIL_COMPLETE, "a log without records is complete, too")
    assert idle.log_end == 0


def lag_of(slot: int, topic: str = "t") -> int:
    """The lag of a followed partition, as the metrics contain it."""
    directory = TopicDirectory()
    directory.refresh()
    (row,) = [row for row in overview.partitions_of(directory.get(topic)) if row.slot == slot]
    assert row.follows
    return int(row.lag)


def test_a_new_partition_ends_the_wait_for_records_of_the_others(following: Following) -> None:
    """A leader like Kafka's answers the request for that later; it must not disturb what follows."""
    following.start(max_wait_ms=300)
    for number in range(100):  # the fetcher may just build a request, which then has the partition
        slot, led = following.create(partition=number)
        fill(led, 2)
        following.look()
        following.until_equal(slot, led)
        if following.leader.behind_fetches >= 3:
            break
    assert following.leader.behind_fetches >= 3 and following.leader.connections == 1


def test_its_lag_is_in_the_slot_until_it_has_another_role(following: Following) -> None:
    slot, led = following.create()
    assert lag_of(slot) == -1, "the leader has not answered"
    fill(led, 3)
    led.high_watermark = 50
    following.start()
    until(lambda: lag_of(slot) == 20, "it lacks 20 committed records")
    call: Any = SimpleNamespace(view=SimpleNamespace(table=following.broker.table))
    steps = Stepwise(describe_log_dirs.handle(describe_log_dirs_schema.Request(topics=None), call))
    while steps.step():
        pass
    assert [row.offset_lag for row in steps.result.results[0].topics[0].partitions] == [20], "kafka-log-dirs shows it"
    fill(led, 2)
    following.leader.append(led, sent(led.log_end))
    until(lambda: lag_of(slot) == 0, "it has all committed records")
    following.broker.obey(slot, 2)
    assert lag_of(slot) == -1, "the leader of the new epoch has not answered"


def test_its_requests_contain_what_kafkas_followers_send(following: Following) -> None:
    slot, led = following.create()
    fill(led, 3)
    following.start()
    following.until_equal(slot, led)
    with following.leader.changed:
        size = len(following.leader.fetches)
        following.leader.changed.wait_for(lambda: len(following.leader.fetches) > size + 1, 30)
        requests = list(following.leader.fetches)
    version, first = requests[0]
    assert version == 17
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (1, 77)
    assert (first.max_wait_ms, first.min_bytes, first.max_bytes, first.isolation_level) == (50, 1, 1 << 20, 0)
    assert (first.session_id, first.session_epoch, first.rack_id) == (0, 0, "")
    (partition,) = first.topics[0].partitions
    assert (partition.partition, partition.current_leader_epoch, partition.fetch_offset) == (0, 1, 0)
    assert (partition.last_fetched_epoch, partition.log_start_offset, partition.partition_max_bytes) == (-1, 0, 1 << 19)
    (partition,) = requests[1][1].topics[0].partitions
    assert (partition.fetch_offset, partition.last_fetched_epoch) == (30, 1)
    assert requests[-1][1].topics == [], "an incremental request contains only changes"
    assert requests[-1][1].session_epoch == len(requests) - 1


def test_many_partitions_of_many_topics(following: Following) -> None:
    pairs = [following.create(f"topic-{number % 7}", number // 7) for number in range(60)]
    for _, led in pairs:
        fill(led, 5)
    following.start()
    for slot, led in pairs:
        following.until_equal(slot, led)
    removed = pairs[::3]
    for slot, led in removed:
        following.fetcher.remove(slot)
        following.leader.append(led, sent(led.log_end))
    kept = [pair for pair in pairs if pair not in removed]
    for slot, led in kept:
        following.leader.append(led, sent(led.log_end))
        following.until_equal(slot, led)
    until(lambda: len(following.leader.sessions[1].wanted) == len(kept), "the session forgets the removed partitions")
    assert all(slot_facts.describe(slot).log_end_offset == 50 for slot, _ in removed)
    for slot, led in removed:
        following.broker.obey(slot, 2)
        led.leader_epoch = 2
        following.broker.table.announce([slot])
    following.look()
    for slot, led in removed:
        following.until_equal(slot, led)


@pytest.mark.parametrize("newest", [12, 13, 14, 15, 16, 17, 18])
def test_each_version_of_fetch(following: Following, newest: int) -> None:
    following.leader.fetch_versions = (4, newest)
    slot, led = following.create()
    fill(led, 5)
    following.start()
    following.until_equal(slot, led)
    assert {version for version, _ in following.leader.fetches} == {min(newest, 17)}


def test_a_leader_that_is_too_old_is_not_used(following: Following, caplog: pytest.LogCaptureFixture) -> None:
    following.leader.fetch_versions = (4, 11)
    following.create()
    following.start()
    until(lambda: "too old" in caplog.text, "the version is reported")
    assert following.leader.fetches == []


def test_a_leader_without_room_for_sessions(following: Following) -> None:
    following.leader.sessions_allowed = False
    slot, led = following.create()
    fill(led, 5)
    following.start()
    following.until_equal(slot, led)
    following.leader.append(led, sent(led.log_end))
    following.until_equal(slot, led)
    assert {request.session_epoch for _, request in following.leader.fetches} == {0}


def test_a_lost_session_is_replaced(following: Following) -> None:
    slot, led = following.create()
    following.start()
    until(lambda: following.leader.sessions, "there is a session")
    for _ in range(3):
        with following.leader.changed:
            following.leader.sessions.clear()
        following.leader.append(led, sent(led.log_end))
        following.until_equal(slot, led)
    assert following.leader.connections == 1


def test_a_cut_connection_is_made_again(following: Following) -> None:
    slot, led = following.create()
    following.start()
    for number in range(5):
        following.leader.append(led, sent(led.log_end))
        following.until_equal(slot, led)
        following.leader.cut()
        until(lambda number=number: following.leader.connections > number + 1, "it connects again")


def test_a_leader_that_moves_is_found(following: Following) -> None:
    slot, led = following.create()
    following.start()
    following.leader.append(led, sent(led.log_end))
    following.until_equal(slot, led)
    with FakeLeader() as other:
        other.logs = following.leader.logs
        following.port = other.port
        following.fetcher.look()
        other.append(led, sent(led.log_end))
        following.until_equal(slot, led)
        following.fetcher.stop()
        following.fetcher.join(30)


def test_a_leader_whose_address_is_not_known_is_waited_for(following: Following) -> None:
    slot, led = following.create()
    fill(led, 1)
    following.port = None
    following.start()
    following.port = following.leader.port
    following.fetcher.look()
    following.until_equal(slot, led)


def test_a_leader_that_is_not_registered_any_more_is_still_fetched(following: Following) -> None:
    slot, led = following.create()
    fill(led, 1)
    following.start()
    following.until_equal(slot, led)
    following.port = None
    following.fetcher.look()
    following.leader.append(led, sent(led.log_end))
    following.until_equal(slot, led)
    following.leader.cut()
    following.leader.append(led, sent(led.log_end))
    following.until_equal(slot, led)


def test_batches_that_are_larger_than_what_it_requests(following: Following) -> None:
    slot, led = following.create(max_message_bytes=16 << 20, segment_bytes=64 << 20)
    for _ in range(3):
        led.batches.append(sent(led.log_end, 40, value=os.urandom(100_000)))
    following.start()
    following.until_equal(slot, led)
    for _ in range(40):  # the receive buffer shrinks again
        following.leader.append(led, sent(led.log_end))
        following.until_equal(slot, led)
    following.leader.append(led, sent(led.log_end, 40, value=os.urandom(100_000)))
    following.until_equal(slot, led)


# -- truncation ---------------------------------------------------------------------------------------------------------


def test_a_batch_that_needs_longer_than_the_time_out_arrives_over_a_slow_line(following: Following) -> None:
    slot, led = following.create(max_message_bytes=1 << 20)
    led.batches.append(sent(0, value=os.urandom(20_000)))

    def slow(connection: socket.socket, answer: bytes) -> None:
        for at in range(0, len(answer), 25_000):
            if at:
                time.sleep(0.3)
            connection.sendall(answer[at : at + 25_000])

    following.leader.deliver = slow
    following.start(socket_timeout_ms=1000)
    following.until_equal(slot, led)
    assert not following.leader.complaints


def test_a_leader_that_sends_single_bytes_is_left(following: Following) -> None:
    slot, led = following.create(max_message_bytes=1 << 20)
    led.batches.append(sent(0, value=os.urandom(20_000)))
    ended = threading.Event()

    def drips(connection: socket.socket, answer: bytes) -> None:
        if len(answer) < 100_000 or ended.is_set():
            connection.sendall(answer)
            return
        try:
            for byte in answer[:10_000]:
                time.sleep(0.005)
                connection.sendall(bytes((byte,)))
        finally:
            ended.set()  # the follower has closed the connection

    following.leader.deliver = drips
    following.start(socket_timeout_ms=200)
    following.until_equal(slot, led)
    assert ended.is_set() and not following.leader.complaints


def test_a_diverging_tail_is_cut(following: Following) -> None:
    slot, led = following.create(epoch=3)
    for data in (sent(0), sent(10), sent(20, epoch=2), sent(30, epoch=2)):
        slots.follow(slot, data, 10)
    led.batches = [sent(0), sent(10), sent(20, 5, epoch=3), sent(25, 5, epoch=3)]
    following.start()
    following.until_equal(slot, led)
    assert slot_facts.describe(slot).epochs == [(1, 0), (3, 20)]


def test_a_tail_of_several_epochs_is_cut_in_steps(following: Following) -> None:
    slot, led = following.create(epoch=7)
    for at, epoch in enumerate((1, 2, 4, 6)):
        slots.follow(slot, sent(at * 10, epoch=epoch), 0)
    led.batches = [sent(0), sent(10, epoch=3), sent(20, epoch=5), sent(30, epoch=7)]
    following.start()
    following.until_equal(slot, led)
    assert slot_facts.describe(slot).epochs == [(1, 0), (3, 10), (5, 20), (7, 30)]


def test_a_leader_that_lost_records_cuts_committed_records_with_a_warning(
    following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    slot, led = following.create(epoch=2)
    for at in range(4):
        slots.follow(slot, sent(at * 10), 40)
    led.batches = [sent(0), sent(10, epoch=2)]
    following.start()
    following.until_equal(slot, led)
    assert "removes records below the high watermark 40" in caplog.text


def test_a_leader_that_begins_later_begins_the_log_again(following: Following) -> None:
    slot, led = following.create()
    slots.follow(slot, sent(0), 10)
    led.log_start, led.batches = 500, [sent(500), sent(510)]
    following.start()
    following.until_equal(slot, led)
    assert slot_facts.describe(slot).log_start_offset == 500


def test_a_leader_that_begins_within_a_batch(following: Following) -> None:
    slot, led = following.create()
    slots.follow(slot, sent(0), 10)
    led.log_start, led.batches = 505, [sent(500), sent(510)]
    following.start()
    following.until_equal(slot, led)
    until(lambda: slot_facts.describe(slot).log_start_offset == 505, "the log start follows")


def test_a_new_epoch_is_fetched_while_another_partition_goes_on(following: Following) -> None:
    pairs = [following.create("t", number) for number in range(3)]
    following.start()
    for epoch in range(2, 12):
        for number, (slot, led) in enumerate(pairs):
            following.leader.append(led, sent(led.log_end, epoch=led.leader_epoch))
            if number == epoch % 3:
                following.obey(slot, led, led.leader_epoch + 1)
                following.leader.append(led, sent(led.log_end, epoch=led.leader_epoch))
        for slot, led in pairs:
            following.until_equal(slot, led)


# -- a leader that misbehaves -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ],
)
def test_a_refused_partition_is_tried_again_and_the_others_go_on(following: Following, code: ErrorCode) -> None:
    (slot, led), (other_slot, other) = following.create("t", 0), following.create("t", 1)
    fill(led, 2)
    fill(other, 2)
    led.error = code
    following.start()
    following.until_equal(other_slot, other)
    following.leader.append(other, sent(other.log_end))
    following.until_equal(other_slot, other)
    assert slot_facts.describe(slot).log_end_offset == 0
    with following.leader.changed:
        led.error = 0
    following.until_equal(slot, led)


def test_a_fenced_partition_waits_for_its_new_epoch(following: Following) -> None:
    slot, led = following.create()
    fill(led, 1)
    led.leader_epoch = 2
    following.start()
    until(lambda: describe_role(slot).fetch_error == ErrorCode.FENCED_LEADER_EPOCH, "the error is noted")
    following.obey(slot, led, 2)
    following.until_equal(slot, led)
    assert describe_role(slot).fetch_error == 0


def test_an_error_that_is_usual_after_a_change_is_reported_only_if_it_lasts(
    following: Following, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot, led = following.create()
    fill(led, 1)
    led.error = ErrorCode.UNKNOWN_LEADER_EPOCH
    following.start()
    until(lambda: len(following.leader.fetches) > 5, "it fetches again")
    assert "UNKNOWN_LEADER_EPOCH" not in caplog.text
    monkeypatch.setattr(fetcher, "USUAL_MS", 1)
    until(lambda: "UNKNOWN_LEADER_EPOCH" in caplog.text, "the error is reported")
    with following.leader.changed:
        led.error = 0
    following.until_equal(slot, led)


def test_failures_of_many_partitions_are_not_reported_each(
    following: Following, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        _, led = following.create("t", number)
        led.error = ErrorCode.KAFKA_STORAGE_ERROR
    following.start()
    until(lambda: len(following.leader.fetches) > 5, "it fetches again")
    until(lambda: caplog.text.count("KAFKA_STORAGE_ERROR") == fetcher.REPORTS, "some are reported")
    monkeypatch.setattr(fetcher, "REPORTS_MS", 1)
    monkeypatch.setattr(fetcher, "REPORT_AGAIN_MS", 1)
    until(lambda: "30 more messages about partitions of broker 2" in caplog.text, "the others are counted")


def damaged(data: bytes) -> bytes:
    copy = bytearray(data)
    copy[-1] ^= 1
    return bytes(copy)


def test_a_damaged_batch_is_not_appended(following: Following, caplog: pytest.LogCaptureFixture) -> None:
    slot, led = following.create()
    other_slot, other = following.create("t", 1)
    good = [sent(0), sent(10), sent(20)]
    led.batches = [good[0], damaged(good[1]), good[2]]
    fill(other, 3)
    following.start()
    following.until_equal(other_slot, other)
    until(lambda: "the leader sent a damaged batch" in caplog.text, "the damage is reported")
    assert following.broker.log_bytes(slot) == good[0]
    with following.leader.changed:
        led.batches = good
    following.until_equal(slot, led)


def test_a_batch_of_a_newer_epoch_than_the_followers_is_not_appended(following: Following) -> None:
    slot, led = following.create()
    led.batches = [sent(0), sent(10, epoch=5)]
    following.start()
    until(lambda: slot_facts.describe(slot).log_end_offset == 10, "the first batch is appended")
    until(lambda: len(following.leader.fetches) > 5, "it fetches again")
    assert slot_facts.describe(slot).log_end_offset == 10
    assert slot_facts.describe(slot).epochs == [(1, 0)]


def test_a_batch_before_the_log_end_is_not_appended(following: Following) -> None:
    slot, led = following.create()
    fill(led, 3)
    following.start()
    following.until_equal(slot, led)

    def repeats(version: int, request: Any) -> Any:
        data = led.answer(fetch.Request.FetchPartition(current_leader_epoch=1, partition_max_bytes=1 << 20))
        return fetch.Response(session_id=9, responses=[following.leader.topic(version, (led.topic_id, 0), data)])

    with following.leader.changed:
        following.leader.answer_fetch = repeats
        seen = len(following.leader.fetches)
    until(lambda: len(following.leader.fetches) > seen + 3, "it fetches again")
    with following.leader.changed:
        following.leader.answer_fetch = following.leader.good_fetch
    following.leader.append(led, sent(led.log_end))
    following.until_equal(slot, led)


def test_parts_for_partitions_that_were_not_requested_are_ignored(following: Following) -> None:
    slot, led = following.create()
    fill(led, 2)
    stranger = PartitionData(partition_index=900, high_watermark=5, records=sent(0))
    good = following.leader.good_fetch

    def with_strangers(version: int, request: Any) -> Any:
        response = good(version, request)
        topic = fetch.Response.FetchableTopicResponse
        response.responses.append(topic(topic="x", topic_id=os.urandom(16), partitions=[stranger]))
        response.responses.append(topic(topic=led.topic, topic_id=led.topic_id, partitions=[stranger]))
        return response

    following.leader.answer_fetch = with_strangers
    following.start()
    following.until_equal(slot, led)


GARBAGE: dict[str, Callable[[bytes], bytes]] = {
    "short": lambda frame: frame[:-5],
    "too long": lambda frame: struct.pack(">i", len(frame) + 1) + frame[4:] + b"\0\0\0\0\0",
    "negative size": lambda frame: b"\xff\xff\xff\xff" + frame[4:],
    "zero size": lambda frame: b"\0\0\0\0" + frame[4:],
    "huge size": lambda frame: b"\x7f\xff\xff\xff" + frame[4:],
    "other correlation id": lambda frame: frame[:4] + b"\x11\x22\x33\x44" + frame[8:],
    "random": lambda frame: frame[:8] + os.urandom(len(frame) - 8),
    "text": lambda frame: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "many topics": lambda frame: frame[:19] + b"\xff\xff\xff\xff\x07" + frame[24:],
    "nothing": lambda frame: b"",
}


@pytest.mark.parametrize("kind", list(GARBAGE))
def test_garbage_of_the_leader(following: Following, kind: str) -> None:
    slot, led = following.create()
    fill(led, 20)
    following.start(socket_timeout_ms=300)
    following.until_equal(slot, led)
    with following.leader.changed:
        connections = following.leader.connections
        following.leader.frame = GARBAGE[kind]
        led.batches.append(sent(led.log_end))
        following.leader.changed.notify_all()
    until(lambda: following.leader.connections > connections + 1, "it connects again after the garbage")
    assert b"".join(led.batches).startswith(following.broker.log_bytes(slot))
    assert slots.state_of(slot) == SlotState.SLOT_ONLINE
    with following.leader.changed:
        following.leader.frame = lambda frame: frame
    following.until_equal(slot, led)


def test_a_partition_is_removed_after_a_response_that_ends_as_garbage(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part of the partition requires a truncation; the part behind it is damaged. The newest partition is named first."""
    second, first = (following.create(partition=number, epoch=2) for number in range(2))
    slots.follow(first[0], sent(0) + sent(10), 0)
    first[1].batches = [sent(0), sent(10, 5, epoch=2)]
    second[1].batches = [sent(0, epoch=2)]
    damaged = 0

    def cut_end(frame: bytes) -> bytes:
        nonlocal damaged
        damaged += 1
        return struct.pack(">i", len(frame) - 4 - 5) + frame[4:-5] if damaged == 1 else frame

    lost = Fetcher._lost

    def remove_then(*arguments: Any) -> None:
        following.fetcher.remove(first[0])
        lost(*arguments)

    following.port, port = None, following.port
    following.start()
    monkeypatch.setattr(Fetcher, "_lost", remove_then)
    following.leader.frame = cut_end
    following.port = port  # both partitions are added now: the first request names both
    following.fetcher.look()
    until(lambda: damaged > 1 or following.fetcher.ended, "it fetches again")
    assert not following.fetcher.ended
    following.until_equal(*second)
    following.obey(*first, 3)
    following.until_equal(*first)


def test_a_topic_that_is_created_again_is_fetched_by_its_name(following: Following) -> None:
    """A request without topic ids must not name it as a new partition and as one that the leader is to forget."""
    following.leader.fetch_versions = (4, 12)
    slot, led = following.create()
    fill(led, 2)
    following.start()
    following.until_equal(slot, led)
    with following.leader.changed:
        following.leader.logs.clear()
        following.broker.table.retire(slot)
        topic_id = uuid.uuid4().bytes
        again = following.broker.create("t", 0, topic_id=topic_id, alone=False)
        following.broker.obey(again, 1)
        following.broker.table.announce([slot, again])
        second = following.leader.logs[topic_id, 0] = Led("t", topic_id, 0)
        fill(second, 1)
        following.look()
    following.until_equal(again, second)
    with following.leader.changed:
        fill(second, 1)
        following.leader.changed.notify_all()
    following.until_equal(again, second)


def test_a_fetcher_that_lost_a_partition_does_not_truncate_it(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another fetcher may have appended records meanwhile that the leader counts as replicated."""
    slot, led = following.create(epoch=2)
    slots.follow(slot, sent(0) + sent(10), 0)
    led.batches = [sent(0)]
    asked, removed = threading.Event(), threading.Event()
    carry_out = Fetcher._log_truncation

    def wait(*arguments: Any) -> None:
        carry_out(*arguments)
        asked.set()
        assert removed.wait(30)

    monkeypatch.setattr(Fetcher, "_log_truncation", wait)
    following.start()
    assert asked.wait(30)
    following.fetcher.remove(slot)
    removed.set()
    following.fetcher.stop()
    following.fetcher.join(30)
    assert following.fetcher.ended and slot_facts.describe(slot).log_end_offset == 20


BASE_OFFSET_BYTES = 8


@pytest.mark.parametrize("at", range(1, 140, 3))
def test_a_response_with_one_wrong_byte(following: Following, at: int) -> None:
    """Wherever the byte is, nothing is appended that the leader does not have. A batch's checksum does not cover its base
    offset: an offset that is too high looks like a gap that compaction left."""
    slot, led = following.create()
    fill(led, 3)
    original = b"".join(led.batches)

    def spoil(frame: bytes) -> bytes:
        in_records = at - frame.find(original)
        if len(following.leader.fetches) > 2 or at >= len(frame) or 0 <= in_records < BASE_OFFSET_BYTES:
            return frame
        return frame[:at] + bytes([frame[at] ^ 0x55]) + frame[at + 1 :]

    following.leader.frame = spoil
    following.start(socket_timeout_ms=300)
    until(lambda: len(following.leader.fetches) > 3, "it fetches again")
    assert original.startswith(following.broker.log_bytes(slot))
    following.until_equal(slot, led)
