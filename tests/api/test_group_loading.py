"""A coordinator's successor loads the groups up to the log end; clients wait meanwhile; a failed load is repeated."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.metadata import znodes
from odradek.metadata.sqlite import FILE_NAME
from odradek.protocol.errors import ErrorCode
from odradek.testing import Broker
from tests.api.group_talk import BUSY, GroupTalk
from tests.children import kill
from tests.waiting import until

pytestmark = pytest.mark.xdist_group("groups-loading")

CONFIG = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1, "num.network.threads": 1}
GROUP, COMMITS = "loaded", 30


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(CONFIG, directory=tmp_path_factory.mktemp("loading")) as one:
        with GroupTalk(one.host, one.port) as wire:
            wire.create("topic", 3)
            wire.until_coordinated(GROUP)
        yield one


def kill_coordinator(broker: Broker) -> None:
    """And wait until it is gone."""
    (pid,) = [one["pid"] for one in broker.processes() if one["kind"] == "coordinator"]
    kill(pid)


def told(broker: Broker) -> tuple[int, dict[tuple[str, int], int]]:
    """What somebody who asks for the group's offsets is told: an error code, the offsets."""
    try:
        with GroupTalk(broker.host, broker.port) as wire:
            answer = wire.fetch_offsets(GROUP, None)
    except (OSError, EOFError):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, {}
    offsets = {(t.name, p.partition_index): p.committed_offset for t in answer.topics for p in t.partitions}
    return answer.error_code, offsets


def failed_loads(broker: Broker) -> int:
    """How often the log could not be read so far."""
    return broker.log_file.read_text().count("cannot read __consumer_offsets-")


def hidden(log: Path, aside: Path) -> None:
    """The file is not there."""
    log.rename(aside)


def shortened(log: Path, aside: Path) -> None:
    """A file in its place has whole batches, but not all."""
    log.rename(aside)
    data = aside.read_bytes()
    at = 0
    while (next_at := at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")) < len(data):
        at = next_at
    assert at > 0
    log.write_bytes(data[:at])


def spoilt(log: Path, aside: Path) -> None:
    """A file in its place has a byte of its last batch changed."""
    log.rename(aside)
    shutil.copy(aside, log)
    with log.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))


@pytest.mark.parametrize("harm", [hidden, shortened, spoilt])
def test_clients_wait_until_the_log_was_read_to_its_end(
    broker: Broker, tmp_path: Path, harm: Callable[[Path, Path], None]
) -> None:
    """While it cannot be, the load is tried again, and nobody is told offsets that were overtaken."""
    log = broker.data_dir / "__consumer_offsets-0" / f"{0:020}.log"
    with GroupTalk(broker.host, broker.port) as wire:
        for number in range(COMMITS):
            places = {("topic", 0): number, ("topic", 1): 100 + number, ("topic", 2): 200 + number}
            (topic,) = wire.commit(GROUP, places).topics
            assert {one.error_code for one in topic.partitions} == {ErrorCode.NONE}
    before = failed_loads(broker)
    aside = tmp_path / "aside.log"
    harm(log, aside)
    try:
        kill_coordinator(broker)
        seen: set[int] = set()

        def failed_twice() -> bool:
            error, offsets = told(broker)
            seen.add(error)
            assert error in BUSY, (error, offsets)
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in seen and failed_loads(broker) >= before + 2

        until(failed_twice, lambda: f"clients were told {seen}\n{broker.log_tail()}")
    finally:
        aside.replace(log)
    until(lambda: told(broker)[0] == ErrorCode.NONE, broker.log_tail)
    last = COMMITS - 1
    assert told(broker)[1] == {("topic", 0): last, ("topic", 1): 100 + last, ("topic", 2): 200 + last}


def test_a_topic_that_only_other_brokers_have_keeps_its_offsets_over_a_restart(tmp_path: Path) -> None:
    """As a directory that was taken over may name one: it is in the metadata and has no slot here."""
    path = znodes.topic_path("topic")
    with Broker(CONFIG, directory=tmp_path / "broker") as broker:
        with GroupTalk(broker.host, broker.port) as wire:
            wire.create("topic", 1)
            wire.until_coordinated(GROUP)
            (topic,) = wire.commit(GROUP, {("topic", 0): 7}).topics
            assert topic.partitions[0].error_code == ErrorCode.NONE
        broker.stop()
        with sqlite3.connect(broker.data_dir / FILE_NAME) as store:
            (data,) = store.execute("SELECT data FROM node WHERE path = ?", (path,)).fetchone()
            known = znodes.decode_topic("topic", data)
            moved = znodes.encode_topic(known._replace(partitions={0: [2]}))
            store.execute("UPDATE node SET data = ? WHERE path = ?", (moved, path))
        store.close()
        broker.start()
        until(lambda: told(broker)[0] == ErrorCode.NONE, broker.log_tail)
        assert told(broker)[1] == {("topic", 0): 7}
