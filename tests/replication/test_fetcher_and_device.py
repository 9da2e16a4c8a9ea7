"""A follower reports its log end to the leader, which acknowledges records by that, only when flush.messages allows it."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import flushing
from odradek._ext.partition.flusher import SharedFlusher
from odradek._ext.testing import replica_probe
from tests.replication.fake_leader import Led
from tests.replication.following import Following, fill, sent
from tests.waiting import readable, until

PARTITIONS = 12


def log_end(slot: int) -> int:
    return int(slot_facts.describe(slot).log_end_offset)


def flushed(slot: int) -> int:
    return int(slot_facts.describe(slot).flushed_offset)


def reported(following: Following, led: Led) -> list[int]:
    """The offsets from which the follower has fetched a partition, in order."""
    with following.leader.changed:
        return [
            partition.fetch_offset
            for _, request in following.leader.fetches
            for topic in request.topics
            if topic.topic_id == led.topic_id
            for partition in topic.partitions
            if partition.partition == led.partition
        ]


def go_on(following: Following, slot: int, led: Led) -> None:
    """Replicate some records of a partition."""
    for _ in range(3):
        following.leader.append(led, sent(led.log_end))
        following.until_equal(slot, led)


@contextmanager
def syncing(following: Following) -> Iterator[None]:
    """Sync logs as the replicator does: its flush threads wake its main thread, which wakes the fetchers."""
    following.flusher = SharedFlusher()
    ended = threading.Event()

    def main() -> None:
        while not ended.is_set():
            if readable(following.broker.shm.event_fd(), 0.05):
                following.broker.shm.drain_event()
                following.fetcher.flushed()

    thread = threading.Thread(target=main)
    following.start()
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        following.fetcher.stop()
        following.fetcher.join(30)
        following.flusher.close()


def test_records_are_acknowledged_when_they_are_on_the_device(following: Following) -> None:
    """No process syncs the log until the test does. Meanwhile the other partition of the same fetcher is replicated."""
    slot, led = following.create("synced", flush_messages=1)
    other = following.create("other")
    fill(led, 1)
    following.start()
    until(lambda: log_end(slot) == 10, "the records are appended")
    assert not replica_probe.position(slot)["on_device"]
    go_on(following, *other)
    following.leader.append(led, sent(10))
    go_on(following, *other)
    assert set(reported(following, led)) == {0} and log_end(slot) == 10
    flushing.flush(slot)
    following.fetcher.flushed()
    until(lambda: log_end(slot) == 20, "the next records are fetched")
    go_on(following, *other)
    assert set(reported(following, led)) == {0, 10}


def test_fewer_records_than_flush_messages_are_acknowledged_at_once(following: Following) -> None:
    slot, led = following.create("synced", flush_messages=25)
    other = following.create("other")
    following.start()
    for end in (10, 20, 30):
        following.leader.append(led, sent(led.log_end))
        until(lambda end=end: log_end(slot) == end, f"the log ends at {end}")
    go_on(following, *other)
    assert set(reported(following, led)) == {0, 10, 20}
    flushing.flush(slot)
    following.fetcher.flushed()
    until(lambda: 30 in reported(following, led), "everything is acknowledged")


def test_a_topic_that_no_longer_needs_syncs_is_fetched_without_one(following: Following) -> None:
    slot, led = following.create("synced", flush_messages=1)
    fill(led, 1)
    following.start()
    until(lambda: log_end(slot) == 10, "the records are appended")
    following.broker.table.configure(slot, {"flush_messages": 1 << 62})
    following.leader.append(led, sent(10))
    following.until_equal(slot, led)
    assert flushed(slot) == 0


def test_many_logs_are_synced_while_they_are_replicated(following: Following) -> None:
    """Each reported offset is on the device when the leader receives it."""
    made = [following.create("synced", number, flush_messages=1) for number in range(PARTITIONS)]
    others = [following.create("other", number) for number in range(2)]
    slots = {(led.topic_id, led.partition): slot for slot, led in made}
    early: list[tuple[int, int]] = []
    answer = following.leader.answer_fetch

    def checked(version: int, request: Any) -> Any:
        for topic in request.topics:
            for partition in topic.partitions:
                slot = slots.get((topic.topic_id, partition.partition))
                if slot is not None and partition.fetch_offset > flushed(slot):
                    early.append((slot, partition.fetch_offset))
        return answer(version, request)

    following.leader.answer_fetch = checked
    with syncing(following):
        for _ in range(10):
            for _, led in (*made, *others):
                following.leader.append(led, sent(led.log_end))
        for slot, led in (*made, *others):
            following.until_equal(slot, led)
        for slot, led in made:
            until(lambda slot=slot, led=led: flushed(slot) == led.log_end, "everything is on the device")
            until(lambda led=led: led.log_end in reported(following, led), "everything is acknowledged")
    assert early == []


def test_a_log_whose_device_hangs_and_then_fails_is_never_acknowledged(following: Following) -> None:
    """A FIFO takes the place of the log's file: a thread that opens it to sync it waits until somebody opens it for writing,
    and cannot sync it then."""
    slot, led = following.create("synced", flush_messages=1)
    other = following.create("other")
    file = following.broker.table.path(slot) / f"{0:020d}.log"
    with syncing(following):
        following.leader.append(led, sent(0))  # the file stays open for the next append
        until(lambda: 10 in reported(following, led), "the first records are acknowledged")
        file.unlink()
        os.mkfifo(file)
        following.leader.append(led, sent(10))
        until(lambda: log_end(slot) == 20, "the records are appended")
        go_on(following, *other)
        assert set(reported(following, led)) == {0, 10}
        os.close(os.open(file, os.O_WRONLY))
        until(lambda: following.broker.shm.log_dir_offline(0), "the log directory is out of use")
    assert set(reported(following, led)) == {0, 10}
