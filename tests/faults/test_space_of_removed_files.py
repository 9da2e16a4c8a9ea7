"""Space of removed files: it is free once the delay is over, because no process of the broker keeps a deleted file open."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek.protocol.schemas import delete_records, fetch, incremental_alter_configs
from odradek.testing import Broker
from tests.faults.small_disk import SmallDisk
from tests.faults.unlinked_files import unlinked_files
from tests.waiting import until
from tests.wire import Wire, batch, fetch_request

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("space-of-removed-files")]

MIB = 1 << 20
WORKERS = 2
NOT_ENOUGH_REPLICAS = 19
SOON_S = 60.0
CONFIG = {
    "num.network.threads": WORKERS,
    "log.retention.check.interval.ms": 50,
    "log.segment.delete.delay.ms": 100,
    "log.retention.ms": -1,
    "log.cleaner.backoff.ms": 50,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(CONFIG, directory=tmp_path_factory.mktemp("space")) as made:
        yield made


@pytest.fixture
def clients(broker: Broker) -> Iterator[list[Wire]]:
    """A connection to each worker: the acceptor gives a new one to the worker that has the fewest."""
    with ExitStack() as stack:
        yield [stack.enter_context(Wire(broker.host, broker.port)) for _ in range(WORKERS)]


def used_by_all(clients: list[Wire], topic: str, value: bytes = b"v" * 1000) -> None:
    """Every worker appends to partition 0 and reads it, so that each has its files open. Keys are few, times in the past."""
    for number in range(2):
        for client in clients:
            data = batch(value, key=b"%d" % number, timestamp=int(time.time() * 1000) - 3_600_000)
            assert client.produce(topic, data).error_code == 0
    for client in clients:
        part = client.fetch(topic, 0)
        assert part.error_code == 0 and part.records
        assert client.offset_at(topic, 1).error_code == 0


def alter(client: Wire, topic: str, **settings: object) -> None:
    make = incremental_alter_configs.Request
    configs = [
        make.AlterableConfig(name=name.replace("_", "."), config_operation=0, value=str(value))
        for name, value in settings.items()
    ]
    resource = make.AlterConfigsResource(resource_type=2, resource_name=topic, configs=configs)
    (answer,) = client.ask(make(resources=[resource]), incremental_alter_configs.API_KEY, 1).responses
    assert answer.error_code == 0, answer


def delete_all_records(client: Wire, topic: str) -> int:
    make = delete_records.Request
    part = make.DeleteRecordsPartition(partition_index=0, offset=-1)
    request = make(topics=[make.DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=60_000)
    (answer,) = client.ask(request, delete_records.API_KEY, 2).topics[0].partitions
    assert answer.error_code == 0, answer
    return int(answer.low_watermark)


def is_compacted(broker: Broker, topic: str) -> bool:
    """Whether the record at offset 2, alone in its segment, was removed because the next one has its key."""
    path = broker.data_dir / f"{topic}-0" / f"{2:020d}.log"
    try:
        return path.stat().st_size < 1000
    except FileNotFoundError:
        return True  # merged into the segment before


def names(broker: Broker, topic: str) -> set[str]:
    return {path.name for path in broker.data_dir.glob(f"{topic}-0*/*") if path.suffix in (".log", ".deleted")}


def nothing_is_kept(broker: Broker) -> None:
    """No process has a deleted file open, soon after the last name is removed and without any request."""
    until(lambda: not unlinked_files(broker), lambda: f"still open: {unlinked_files(broker)}", SOON_S)


def test_retention_of_a_partition_that_nobody_uses_any_more(broker: Broker, clients: list[Wire]) -> None:
    clients[0].create("retained")
    used_by_all(clients, "retained")
    alter(clients[0], "retained", retention_ms=1)
    until(lambda: names(broker, "retained") == {f"{2 * WORKERS:020d}.log"}, lambda: f"{names(broker, 'retained')}")
    nothing_is_kept(broker)


def test_records_deleted_up_to_the_end_free_the_active_segment(broker: Broker, clients: list[Wire]) -> None:
    clients[0].create("truncated")
    used_by_all(clients, "truncated")
    end = delete_all_records(clients[0], "truncated")
    assert end == 2 * WORKERS
    until(lambda: names(broker, "truncated") == {f"{end:020d}.log"}, lambda: f"{names(broker, 'truncated')}")
    nothing_is_kept(broker)
    assert clients[1].offset_at("truncated", -2).offset == clients[1].offset_at("truncated", -1).offset == end
    assert clients[1].produce("truncated", batch(b"next")).base_offset == end
    assert clients[0].fetch("truncated", end).records


def test_deletion_of_a_topic(broker: Broker, clients: list[Wire]) -> None:
    clients[0].create("deleted")
    used_by_all(clients, "deleted")
    clients[0].delete("deleted")
    until(lambda: not list(broker.data_dir.glob("deleted-0*")), "the directory is still there")
    nothing_is_kept(broker)


def test_compaction_replaces_segments(broker: Broker, clients: list[Wire]) -> None:
    clients[0].create("compacted", cleanup_policy="compact", segment_bytes=1500, min_cleanable_dirty_ratio=0.01)
    for _ in range(2):
        used_by_all(clients, "compacted")
    until(lambda: is_compacted(broker, "compacted"), lambda: f"{names(broker, 'compacted')}", SOON_S)
    until(lambda: not [name for name in names(broker, "compacted") if name.endswith("deleted")], "renamed files stay")
    nothing_is_kept(broker)


def test_a_fetch_that_waits_for_more_keeps_no_compacted_segment(broker: Broker, clients: list[Wire]) -> None:
    clients[0].create("awaited", cleanup_policy="compact", segment_bytes=1500, min_cleanable_dirty_ratio=0.01)
    used_by_all(clients, "awaited")
    clients[1].send(
        fetch_request([("awaited", 0, 0)], wait_ms=600_000, min_bytes=1 << 30, max_bytes=1 << 30), fetch.API_KEY, 12
    )
    for _ in range(4):
        assert clients[0].produce("awaited", batch(b"v" * 1000)).error_code == 0
    until(lambda: is_compacted(broker, "awaited"), lambda: f"{names(broker, 'awaited')}", SOON_S)
    until(lambda: not [name for name in names(broker, "awaited") if name.endswith("deleted")], "renamed files stay")
    nothing_is_kept(broker)


def test_a_client_that_does_not_read_its_response_is_disconnected(broker: Broker, clients: list[Wire]) -> None:
    clients[0].create("unread", segment_bytes=MIB)
    for _ in range(24):
        assert clients[0].produce("unread", batch(os.urandom(1000) * 900)).error_code == 0
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((broker.host, broker.port))
        wire = Wire.over(deaf)
        for offset in range(24):
            wire.send(fetch_request([("unread", 0, offset)]), fetch.API_KEY, 12)
        deaf.recv(1, socket.MSG_PEEK)  # it is being answered
        clients[0].delete("unread")
        until(lambda: not list(broker.data_dir.glob("unread-0*")), "the directory is still there")
        nothing_is_kept(broker)
        until(lambda: "the client did not read its response" in broker.log_file.read_text(), "no line says why")
        with pytest.raises(OSError):
            while deaf.recv(MIB):
                pass
            raise ConnectionResetError("an ordered end comes when the socket's buffer was sent")
    assert clients[0].metadata("truncated").brokers, "other connections go on"


# -- a disk that is full ----------------------------------------------------------------------------------------------

FULL_DISK = {
    "num.network.threads": WORKERS,
    "odradek.log.dir.reserve.bytes": 256 * 1024,
    "odradek.log.dir.hard.free.percent": 4,
    "odradek.log.dir.soft.free.percent": 20,
}


def set_retention(client: Wire) -> None:
    alter(client, "ballast", retention_ms=1)


def truncate(client: Wire) -> None:
    delete_all_records(client, "ballast")


def delete_topic(client: Wire) -> None:
    client.delete("ballast")


@pytest.mark.parametrize("remedy", [set_retention, truncate, delete_topic])
def test_a_full_disk_has_room_again_as_soon_as_records_are_removed(
    remedy: Callable[[Wire], None], tmp_path: Path
) -> None:
    """By the default delays of a minute, and without an append or a fetch of the partition whose records are removed."""
    with (
        SmallDisk(tmp_path / "disk", 48 * MIB) as disk,
        Broker(
            FULL_DISK | {"log.dirs": f"{disk.path}/data"}, {"t": 1, "ballast": 1}, directory=tmp_path / "b"
        ) as broker,
        Wire(broker.host, broker.port) as first,
        Wire(broker.host, broker.port) as second,
    ):
        old = batch(b"b" * 500_000, timestamp=int(time.time() * 1000) - 3_600_000)
        turns = 0
        while (answer := (first, second)[turns % 2].produce("ballast", old)).error_code == 0:
            turns += 1
        assert answer.error_code == NOT_ENOUGH_REPLICAS and turns > 50
        until(lambda: broker.status()["log_dirs"][0]["disk"] == "full", "the disk is not full")
        for client in (first, second):
            assert client.fetch("ballast", turns - 1).records
        remedy(first)
        until(lambda: disk.free() > 40 * MIB, lambda: f"{disk.free()} bytes free; {unlinked_files(broker)}", SOON_S)
        until(lambda: broker.status()["log_dirs"][0]["disk"] == "roomy", "the broker sees no room", SOON_S)
        assert unlinked_files(broker) == []
        assert second.produce("t", batch(b"after")).error_code == 0
