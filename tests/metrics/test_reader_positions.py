"""Where readers are, and which have ended: a position is the end of what was sent, a closed connection is no reader."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.clock import now_ms
from odradek.metrics import pages
from odradek.testing import Broker
from tests.metrics.outside import Totals, memory_of, until
from tests.waiting import until as wait_until
from tests.wire import Wire, batch, fetch_request, offsets

pytestmark = [pytest.mark.xdist_group("reader-positions"), pytest.mark.timeout(300)]

FETCH = 1
RECORDS = batch(*[b"x" * 100] * 10)
CONFIG = {"num.network.threads": 2, "metrics.listener": "127.0.0.1:0"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(CONFIG, directory=tmp_path_factory.mktemp("readers")) as made:
        yield made


@pytest.fixture
def shm(broker: Broker) -> Any:
    return memory_of(broker)


class Reader(Wire):
    """A connection with a separate client id."""

    def __init__(self, broker: Broker, client_id: str) -> None:
        super().__init__(broker.host, broker.port)
        self.client_id = client_id


def filled(broker: Broker, topic: str, partitions: int = 1, batches: int = 10, **configs: object) -> None:
    """A topic with ten records a batch in each partition."""
    with Wire(broker.host, broker.port) as writer:
        writer.create(topic, partitions, **configs)
        for partition in range(partitions):
            for _ in range(batches):
                assert writer.produce(topic, RECORDS, partition, version=9).error_code == 0


def positions(shm: Any, client_id: str) -> list[pages.PositionRow]:
    """Those of a client in all workers, by offset."""
    return sorted((row for row in Totals(shm).positions if row.client_id == client_id), key=lambda row: row.offset)


def read(shm: Any, client_id: str) -> list[tuple[int, int]]:
    """(offset, readers) of a client's positions."""
    return [(row.offset, row.readers) for row in positions(shm, client_id)]


def records_out(shm: Any, client_id: str) -> int:
    return Totals(shm).of(client_id=client_id, api_key=FETCH)["records_out"]


@pytest.mark.parametrize("version", [2, 3, 4, 12])
def test_a_reader_that_fetched_once_is_at_the_end_of_what_it_was_sent(broker: Broker, shm: Any, version: int) -> None:
    client, topic = f"once-{version}", f"once-{version}"
    filled(broker, topic)
    with Reader(broker, client) as reader:
        reader.fetch(topic, 5, version=version)
        assert read(shm, client) == [(100, 1)]
        assert records_out(shm, client) == 95
    wait_until(lambda: read(shm, client) == [(100, 0)], lambda: f"a reader that ended: {read(shm, client)}")
    assert records_out(shm, client) == 95


def test_a_fetch_that_waited_moves_the_position_to_the_end_of_what_came(broker: Broker, shm: Any) -> None:
    filled(broker, "waited", batches=1)
    with Reader(broker, "waiter") as reader, Reader(broker, "writer") as writer:
        reader.send(fetch_request([("waited", 0, 10)], wait_ms=60_000), FETCH, 12)
        wait_until(lambda: read(shm, "waiter") == [(10, 1)], lambda: f"{read(shm, 'waiter')}")
        writer.produce("waited", RECORDS, version=9)
        reader.receive()
        assert read(shm, "waiter") == [(20, 1)]
        assert records_out(shm, "waiter") == 10


def test_of_a_response_that_was_cut_the_first_batch_counts_at_once_and_the_rest_with_the_next_request(
    broker: Broker, shm: Any
) -> None:
    filled(broker, "cut")
    with Reader(broker, "cutter") as reader:
        answer = reader.fetch("cut", 0, partition_max_bytes=3 * len(RECORDS) + 7)
        assert len(offsets(answer.records[: 3 * len(RECORDS)])) == 30
        assert (read(shm, "cutter"), records_out(shm, "cutter")) == ([(10, 1)], 10)
        reader.fetch("cut", 30, partition_max_bytes=10)  # the next batch is larger than that, and is given whole
        assert (read(shm, "cutter"), records_out(shm, "cutter")) == ([(40, 1)], 40)
        reader.fetch("cut", 40)
        assert (read(shm, "cutter"), records_out(shm, "cutter")) == ([(100, 1)], 100)
        reader.fetch("cut", 90)  # it goes back, and is given some once more
        assert (read(shm, "cutter"), records_out(shm, "cutter")) == ([(100, 1)], 110)
        reader.fetch("cut", 100)
        assert (read(shm, "cutter"), records_out(shm, "cutter")) == ([(100, 1)], 110)


def test_a_response_that_ends_with_a_segment_is_known_to_its_end(broker: Broker, shm: Any) -> None:
    filled(broker, "rolled", batches=3, segment_bytes=2 * len(RECORDS) + 10)
    with Reader(broker, "roller") as reader:
        assert len(reader.fetch("rolled", 0).records) == 2 * len(RECORDS)
        assert (read(shm, "roller"), records_out(shm, "roller")) == ([(20, 1)], 20)
        reader.fetch("rolled", 20)
        assert (read(shm, "roller"), records_out(shm, "roller")) == ([(30, 1)], 30)


def test_a_reader_has_ended_when_its_last_connection_is_closed(broker: Broker, shm: Any) -> None:
    """In each worker by itself; connections are given to one of them or the other."""
    filled(broker, "shared")
    readers = [Reader(broker, "several") for _ in range(6)]
    for reader in readers:
        reader.fetch("shared", 0)
    for left in range(6, 0, -1):
        wait_until(
            lambda left=left: sum(row.readers for row in positions(shm, "several")) == left,
            lambda left=left: f"{left} readers: {read(shm, 'several')}",
        )
        readers[left - 1].socket.close()
    until(shm, lambda now: not any(row.readers for row in now.positions if row.client_id == "several"))


def test_a_session_reads_a_partition_until_it_forgets_it_or_its_connection_is_closed(broker: Broker, shm: Any) -> None:
    filled(broker, "session", 2)
    with Reader(broker, "incremental") as reader:
        made = reader.ask(fetch_request([("session", 0, 0), ("session", 1, 50)], session_epoch=0), FETCH, 12)
        held = {"session_id": made.session_id}
        assert sorted(read(shm, "incremental")) == [(100, 1), (100, 1)]
        reader.ask(fetch_request([("session", 0, 100)], session_epoch=1, **held), FETCH, 12)
        assert sorted(read(shm, "incremental")) == [(100, 1), (100, 1)]  # what it does not name it reads still
        reader.ask(fetch_request([], forget=[("session", 1)], session_epoch=2, **held), FETCH, 12)
        assert sorted(read(shm, "incremental")) == [(100, 0), (100, 1)]
        reader.ask(fetch_request([("session", 1, 70)], session_epoch=3, **held), FETCH, 12)
        assert sorted(read(shm, "incremental")) == [(100, 1), (100, 1)]
    wait_until(
        lambda: read(shm, "incremental") == [(100, 0), (100, 0)], lambda: f"no reader: {read(shm, 'incremental')}"
    )


def test_a_connection_without_session_reads_what_its_last_request_named(broker: Broker, shm: Any) -> None:
    filled(broker, "turns", 2)
    with Reader(broker, "turner") as reader:
        reader.fetch("turns", 0, 0)
        reader.fetch("turns", 0, 1)
        assert sorted(read(shm, "turner")) == [(100, 0), (100, 1)]
        reader.client_id = "renamed"
        reader.fetch("turns", 0, 1)
        assert (sorted(read(shm, "turner")), read(shm, "renamed")) == ([(100, 0), (100, 0)], [(100, 1)])


def test_the_readers_of_a_worker_that_died_have_ended(broker: Broker, shm: Any) -> None:
    filled(broker, "orphaned")
    readers = [Reader(broker, "orphan") for _ in range(6)]
    for reader in readers:
        reader.fetch("orphaned", 0)
    for victim in [one["pid"] for one in broker.processes() if one["kind"] == "worker"]:
        os.kill(victim, signal.SIGKILL)
    until(shm, lambda now: not any(row.readers for row in now.positions if row.client_id == "orphan"))
    assert {row.offset for row in positions(shm, "orphan")} == {100}
    for reader in readers:
        reader.socket.close()
    wait_until(lambda: all(one["state"] == "serving" for one in broker.processes()), "the successors of the workers")
    with Reader(broker, "orphan") as again:
        again.fetch("orphaned", 40)
        assert sum(row.readers for row in positions(shm, "orphan")) == 1


def coarse_ms() -> int:
    """The time of the clock that metering reads (CLOCK_REALTIME_COARSE): some milliseconds behind that of `now_ms`."""
    return time.clock_gettime_ns(5) // 1_000_000


def went_back(shm: Any, client_id: str) -> list[bool]:
    """Whether the position of a client has moved back, for each worker that has one."""
    return [row.back_ms > 0 for row in positions(shm, client_id)]


def test_a_reader_that_requests_an_earlier_offset_has_gone_back(broker: Broker, shm: Any) -> None:
    filled(broker, "back")
    before_ms = coarse_ms()
    with Reader(broker, "exporter") as reader:
        for offset in (0, 50, 50, 100):
            reader.fetch("back", offset)
        assert went_back(shm, "exporter") == [False], "the end of a response is no request"
        reader.fetch("back", 0)
        assert went_back(shm, "exporter") == [True]
        [row] = positions(shm, "exporter")
        assert before_ms <= row.back_ms <= now_ms()
        reader.fetch("back", 100)
        assert positions(shm, "exporter")[0].back_ms == row.back_ms, "the time of the return stays"


def test_a_reader_that_connects_again_and_begins_again_has_gone_back(broker: Broker, shm: Any) -> None:
    filled(broker, "again")
    # each connection may go to another worker, which knows only the readings that it served
    for _ in range(CONFIG["num.network.threads"] + 1):
        with Reader(broker, "again") as reader:
            reader.fetch("again", 0)
            reader.fetch("again", 100)
        wait_until(lambda: all(not row.readers for row in positions(shm, "again")), lambda: f"{read(shm, 'again')}")
    assert any(went_back(shm, "again"))


def test_several_connections_of_a_client_at_different_offsets_do_not_go_back(broker: Broker, shm: Any) -> None:
    filled(broker, "fan")
    readers = [Reader(broker, "fan") for _ in range(6)]
    for reader in readers:
        reader.fetch("fan", 10)
    for _ in range(2):
        for offset, reader in enumerate(reversed(readers)):
            reader.fetch("fan", 90 - 10 * offset)
    assert sum(row.readers for row in positions(shm, "fan")) == 6 and not any(went_back(shm, "fan"))
    for reader in readers:
        reader.socket.close()


def test_a_short_connection_with_the_same_client_id_does_not_move_a_reader_back(broker: Broker, shm: Any) -> None:
    filled(broker, "beside")
    with Reader(broker, "beside") as reader:
        reader.fetch("beside", 10)
        for _ in range(8 * CONFIG["num.network.threads"]):  # some are served by the worker of the first
            with Reader(broker, "beside") as short:
                short.fetch("beside", 100)
            wait_until(
                lambda: sum(row.readers for row in positions(shm, "beside")) == 1, lambda: f"{read(shm, 'beside')}"
            )
            reader.fetch("beside", 10)
    assert not any(went_back(shm, "beside"))
