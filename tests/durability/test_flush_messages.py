"""`flush.messages=1`: no acknowledgement before the device has the records, and many producers share one sync."""

import os
import signal
import socket

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import produce
from odradek.storage.batch import Record, build_batch
from tests.waiting import until
from tests.wire import PRODUCE_VERSION, TIMEOUT_S, Wire

TOPIC = "kept"
SYNCED = {"partitions": "1", "flush.messages": "1"}
BATCH = build_batch([Record(value=b"x" * 100, timestamp=1000)])
CONNECTIONS = 8

pytestmark = [pytest.mark.timeout(300)]


def send(connection, topic=TOPIC, acks=1, batch=BATCH, partition=0, timeout_ms=30_000):
    request = produce.Request
    part = request.PartitionProduceData(index=partition, records=batch)
    topics = [request.TopicProduceData(name=topic, partition_data=[part])]
    return connection.send(
        request(acks=acks, timeout_ms=timeout_ms, topic_data=topics), produce.API_KEY, PRODUCE_VERSION
    )


def told(connection, sent):
    """(error, base offset) of the response."""
    one = connection.receive(sent).responses[0].partition_responses[0]
    return one.error_code, one.base_offset


def nothing_came(connection):
    connection.socket.setblocking(False)
    try:
        connection.socket.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        connection.socket.settimeout(TIMEOUT_S)
    return False


def until_appended(connection, offset, topic=TOPIC, partition=0):
    """Wait until records up to `offset` are in the log; consumers may not see them before they are synced."""
    until(lambda: connection.log_end(topic, partition) > offset, f"{topic}-{partition} reaches beyond offset {offset}")


@pytest.mark.parametrize("acks", [1, -1])
def test_every_acknowledgement_has_its_sync_before_it(start, syncs, acks):
    broker = start({TOPIC: SYNCED})
    with Wire.to(broker) as connection:
        for number in range(20):
            assert told(connection, send(connection, acks=acks)) == (0, number)
            assert syncs.bytes_on_device(f"{TOPIC}-0/") >= (number + 1) * len(BATCH)


@pytest.mark.parametrize("acks", [1, -1])
def test_producers_on_all_workers_share_syncs(start, syncs, acks):
    broker = start({TOPIC: SYNCED})
    connections = [Wire.to(broker) for _ in range(CONNECTIONS)]
    with Wire.to(broker) as reader:
        syncs.hold()
        sent = [send(connection, acks=acks) for connection in connections]
        until_appended(reader, CONNECTIONS - 1)
        assert all(nothing_came(connection) for connection in connections)
        syncs.release()
        answers = [told(*pair) for pair in zip(connections, sent, strict=True)]
    assert sorted(answers) == [(0, number) for number in range(CONNECTIONS)]
    assert sum(n for file, n in syncs.counts().items() if file.endswith(f"{TOPIC}-0/{0:020d}.log")) <= 2
    for connection in connections:
        connection.socket.close()


def test_a_workers_other_connections_are_served_while_the_device_works(start, syncs):
    broker = start({TOPIC: SYNCED, "quick": {"partitions": "1"}}, num_network_threads=1)
    with Wire.to(broker) as waiting, Wire.to(broker) as other:
        syncs.hold()
        sent = send(waiting)
        until_appended(other, 0)
        for number in range(10):
            assert told(other, send(other, "quick")) == (0, number)
        assert nothing_came(waiting)
        syncs.release()
        assert told(waiting, sent) == (0, 0)


def test_only_the_append_that_reaches_flush_messages_waits(start, syncs):
    broker = start({TOPIC: {"partitions": "1", "flush.messages": "3"}})
    with Wire.to(broker) as connection:
        for number in range(2):
            assert told(connection, send(connection)) == (0, number)
        assert syncs.bytes_on_device(f"{TOPIC}-0/") == 0
        assert told(connection, send(connection)) == (0, 2)
        assert syncs.bytes_on_device(f"{TOPIC}-0/") == 3 * len(BATCH)
        assert told(connection, send(connection)) == (0, 3)
        assert syncs.bytes_on_device(f"{TOPIC}-0/") == 3 * len(BATCH)


def test_acks_0_has_it_synced_and_waits_for_nothing(start, syncs):
    broker = start({TOPIC: SYNCED})
    with Wire.to(broker) as connection, Wire.to(broker) as other:
        syncs.hold()
        send(connection, acks=0)
        until_appended(other, 0)
        syncs.release()  # waits for the sync to come
        assert syncs.counts("begin")


def test_a_repeated_batch_waits_for_the_sync_of_the_first(start, syncs):
    broker = start({TOPIC: SYNCED})
    batch = build_batch([Record(value=b"once", timestamp=1000)], producer_id=7, producer_epoch=0, base_sequence=0)
    with Wire.to(broker) as reader, Wire.to(broker) as again:
        with Wire.to(broker) as first:
            syncs.hold()
            send(first, batch=batch)
            until_appended(reader, 0)
        sent = send(again, batch=batch)
        # The repeated one was looked at once the request behind it, on the same connection, is in the log.
        behind = send(again)
        until_appended(reader, 1)
        assert nothing_came(again)
        syncs.release()
        assert told(again, sent) == (0, 0)
        assert told(again, behind) == (0, 1)
        assert syncs.bytes_on_device(f"{TOPIC}-0/") >= len(batch)


def test_the_death_of_the_worker_that_syncs_leaves_no_producer_waiting(start, syncs):
    broker = start({TOPIC: SYNCED})
    connections = [Wire.to(broker) for _ in range(CONNECTIONS)]
    with Wire.to(broker) as reader:
        syncs.hold()
        syncs.ask_who_comes()
        sent = [send(connections[0])]
        flusher = syncs.who_came()  # it holds the flusher word that all others wait for
        sent += [send(connection) for connection in connections[1:]]
        until_appended(reader, CONNECTIONS - 1)
        assert all(nothing_came(connection) for connection in connections)
        os.kill(flusher, signal.SIGKILL)
        answered = 0
        syncs.release()  # the other worker's, which takes the word over
        for connection, correlation_id in zip(connections, sent, strict=True):
            try:
                assert told(connection, correlation_id)[0] == 0
                answered += 1
            except (ConnectionError, EOFError):
                continue  # of the worker that was killed
    assert 0 < answered < CONNECTIONS
    assert syncs.bytes_on_device(f"{TOPIC}-0/") == CONNECTIONS * len(BATCH)
    for connection in connections:
        connection.socket.close()


def test_a_sync_that_fails_takes_its_directory_out_of_use_and_no_other(start, syncs, tmp_path):
    dirs = [tmp_path / "broker" / name for name in ("one", "two")]
    broker = start({TOPIC: SYNCED | {"partitions": "4"}}, log_dirs=",".join(map(str, dirs)))
    places = {int(path.name.rsplit("-")[-1]): path.parent for one in dirs for path in one.glob(f"{TOPIC}-*")}
    broken = [number for number, parent in places.items() if parent == dirs[0]]
    sound = [number for number, parent in places.items() if parent == dirs[1]]
    assert broken and sound
    with Wire.to(broker) as connection, Wire.to(broker) as other:
        for partition in broken + sound:
            assert told(connection, send(connection, partition=partition)) == (0, 0)
        syncs.hold()
        sent = [send(connection, partition=partition, acks=acks) for partition in broken for acks in (1, -1)]
        until_appended(other, 2, partition=broken[0])
        syncs.fail(str(dirs[0]))
        syncs.release()
        assert {told(connection, one)[0] for one in sent} == {ErrorCode.KAFKA_STORAGE_ERROR}
        until(
            lambda: syncs.counts("begin") == syncs.counts("end") + syncs.counts("failed"),
            "every sync under way has its answer",
        )
        failures = syncs.counts("failed")
        for partition in broken:
            assert told(other, send(other, partition=partition))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        for partition in sound:
            assert told(other, send(other, partition=partition)) == (0, 1)
        assert syncs.counts("failed") == failures  # the device is not asked again
    until(lambda: "cannot sync the log of " in broker.log_file.read_text(), "the log reports it")


def test_a_stop_answers_who_waits_for_the_device(start, syncs):
    broker = start({TOPIC: SYNCED})
    with Wire.to(broker) as connection, Wire.to(broker) as other:
        syncs.hold()
        sent = send(connection)
        until_appended(other, 0)
        os.kill(broker.pid, signal.SIGTERM)
        syncs.release()
        assert told(connection, sent) == (0, 0)
        assert connection.to_end() == b""


def test_flush_ms_is_kept_without_a_schedule_being_set(start, syncs):
    broker = start({TOPIC: {"partitions": "1", "flush.ms": "1"}})
    with Wire.to(broker) as connection:
        syncs.hold()
        assert told(connection, send(connection)) == (0, 0)
        syncs.release()  # waits for the cleaner's sync
