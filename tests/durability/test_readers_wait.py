"""If a topic has flush.messages, consumers see no record that a power loss could remove."""

import os
import signal

import pytest

from odradek.protocol.schemas import fetch, incremental_alter_configs
from odradek.storage.batch import Record, build_batch
from tests.durability.test_flush_messages import BATCH, SYNCED, TOPIC, nothing_came, send, told, until_appended
from tests.waiting import until
from tests.wire import FETCH_VERSION, Wire, fetch_request

pytestmark = [pytest.mark.timeout(300)]


def send_fetch(connection, offset, topic=TOPIC):
    """A Fetch that waits for records."""
    return connection.send(fetch_request([(topic, 0, offset)], wait_ms=60_000), fetch.API_KEY, FETCH_VERSION)


def fetched(connection, sent):
    """(high watermark, bytes of records) of its response."""
    part = connection.receive(sent).responses[0].partitions[0]
    assert part.error_code == 0
    return part.high_watermark, len(part.records or b"")


def seen(connection, offset, topic=TOPIC):
    """What a Fetch that waits for nothing returns from `offset`: (high watermark, bytes of records)."""
    part = connection.fetch(topic, offset)
    assert part.error_code == 0
    return part.high_watermark, len(part.records or b"")


def set_flush_messages(connection, topic, value):
    make = incremental_alter_configs.Request
    change = make.AlterableConfig(name="flush.messages", config_operation=0, value=str(value))
    resource = make.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
    (answer,) = connection.ask(make(resources=[resource]), incremental_alter_configs.API_KEY, 1).responses
    assert answer.error_code == 0, answer


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_a_record_whose_sync_is_under_way_is_read_when_it_has_ended(start, syncs, acks):
    broker = start({TOPIC: SYNCED})
    with Wire.to(broker) as writer, Wire.to(broker) as reader, Wire.to(broker) as other:
        assert told(writer, send(writer)) == (0, 0)
        assert seen(reader, 0) == (1, len(BATCH))
        waiting = send_fetch(reader, 1)
        syncs.hold()
        send(writer, acks=acks)
        until_appended(other, 1)
        assert seen(other, 0) == (1, len(BATCH))
        assert seen(other, 1) == (1, 0)
        assert other.latest(TOPIC, 0) == 1
        assert nothing_came(reader)
        syncs.release()
        assert fetched(reader, waiting) == (2, len(BATCH))
        assert other.latest(TOPIC, 0) == 2


def test_records_below_flush_messages_are_read_at_once_and_the_one_that_reaches_it_after_the_sync(start, syncs):
    broker = start({TOPIC: {"partitions": "1", "flush.messages": "3"}})
    with Wire.to(broker) as writer, Wire.to(broker) as reader:
        syncs.hold()
        for number in range(2):
            assert told(writer, send(writer)) == (0, number)
        assert seen(reader, 0) == (2, 2 * len(BATCH))
        send(writer)
        until_appended(reader, 2)
        assert seen(reader, 2) == (2, 0)
        waiting = send_fetch(reader, 2)
        syncs.release()
        assert fetched(reader, waiting) == (3, len(BATCH))


def test_what_is_appended_while_a_sync_runs_is_read_after_the_next(start, syncs):
    broker = start({TOPIC: SYNCED}, num_network_threads=1)
    with Wire.to(broker) as writer, Wire.to(broker) as reader:
        syncs.hold()
        syncs.ask_who_comes()
        send(writer)
        syncs.who_came()
        for _ in range(5):
            send(writer)
        until_appended(reader, 5)
        assert seen(reader, 0) == (0, 0)
        syncs.release()
        until(lambda: seen(reader, 0) == (6, 6 * len(BATCH)), "all records are readable")
        assert syncs.bytes_on_device(f"{TOPIC}-0/") == 6 * len(BATCH)


def test_a_topic_without_flush_messages_is_read_at_once_beside_one_that_has_it(start, syncs):
    broker = start({TOPIC: SYNCED, "quick": {"partitions": "1"}})
    with Wire.to(broker) as writer, Wire.to(broker) as reader:
        syncs.hold()
        send(writer)
        until_appended(reader, 0)
        assert told(reader, send(reader, "quick")) == (0, 0)
        assert seen(reader, 0, "quick") == (1, len(BATCH))
        assert seen(reader, 0) == (0, 0)
        syncs.release()


def test_readers_need_not_wait_for_a_worker_that_died_amid_the_sync(start, syncs):
    """No request waits for the sync any more: the cleaner runs it."""
    broker = start({TOPIC: SYNCED})
    connections = [Wire.to(broker) for _ in range(8)]
    syncs.hold()
    syncs.ask_who_comes()
    send(connections[0])
    os.kill(syncs.who_came(), signal.SIGKILL)
    with Wire.to(broker) as reader:
        waiting = send_fetch(reader, 0)
        syncs.release()  # waits for the next sync to come
        assert fetched(reader, waiting) == (1, len(BATCH))
    for connection in connections:
        connection.socket.close()


def test_a_topic_whose_flush_messages_is_raised_shows_what_it_has_without_another_sync(start, syncs):
    broker = start({TOPIC: SYNCED})
    with Wire.to(broker) as writer, Wire.to(broker) as reader:
        syncs.hold()
        send(writer)
        until_appended(reader, 0)
        waiting = send_fetch(reader, 0)
        with Wire.to(broker) as admin:
            set_flush_messages(admin, TOPIC, 1000)
        assert fetched(reader, waiting) == (1, len(BATCH))
        assert syncs.bytes_on_device(f"{TOPIC}-0/") == 0
        syncs.release()


def test_readers_of_a_directory_whose_sync_failed_are_told_so_and_others_go_on(start, syncs, tmp_path):
    dirs = [tmp_path / "broker" / name for name in ("one", "two")]
    broker = start({TOPIC: SYNCED | {"partitions": "2"}}, log_dirs=",".join(map(str, dirs)))
    (broken,) = [int(path.name.rsplit("-")[-1]) for path in dirs[0].glob(f"{TOPIC}-*")]
    sound = 1 - broken
    with Wire.to(broker) as writer, Wire.to(broker) as reader:
        for partition in (broken, sound):
            assert told(writer, send(writer, partition=partition)) == (0, 0)
        syncs.fail(str(dirs[0]))
        request = fetch_request([(TOPIC, broken, 1)], wait_ms=300_000)  # longer than `receive` waits
        waiting = reader.send(request, fetch.API_KEY, FETCH_VERSION)
        send(writer, partition=broken)
        part = reader.receive(waiting).responses[0].partitions[0]
        assert (part.error_code, part.records or b"") == (56, b"")
        assert told(reader, send(reader, partition=sound)) == (0, 1)
        assert reader.fetch(TOPIC, 0, sound).high_watermark == 2


def test_what_a_start_recovers_is_synced_before_it_is_read(start, syncs):
    broker = start({TOPIC: SYNCED, "quick": {"partitions": "1"}}, num_network_threads=1)
    batch = build_batch([Record(value=b"y" * 50, timestamp=1000)])
    with Wire.to(broker) as writer:
        assert told(writer, send(writer)) == (0, 0)
        assert told(writer, send(writer, "quick")) == (0, 0)
        syncs.hold()
        syncs.ask_who_comes()
        send(writer, batch=batch)
        syncs.who_came()  # it is in the log
        broker.kill_group()
    syncs.close()
    before = syncs.counts()
    broker.start()
    assert syncs.bytes_on_device(f"{TOPIC}-0/") == len(BATCH) + len(batch)
    assert not [file for file, n in syncs.counts().items() if "quick-0" in file and n > before[file]]
    with Wire.to(broker) as reader:
        assert seen(reader, 0) == (2, len(BATCH) + len(batch))
