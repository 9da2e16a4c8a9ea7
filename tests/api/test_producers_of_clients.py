"""Made-up producer ids of one client evict only that client's own producers. Real brokers with small limits."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.cli.health.local import judge_status
from odradek.protocol.schemas import add_partitions_to_txn, find_coordinator, init_producer_id, produce
from odradek.storage.batch import TRANSACTIONAL, Record, build_batch
from odradek.testing import Broker
from tests.metrics.scraping import scrape
from tests.waiting import until
from tests.wire import Wire, produce_request

pytestmark = [pytest.mark.xdist_group("api-producers-of-clients"), pytest.mark.timeout(300)]

NOT_ENOUGH_REPLICAS = 19
HONEST, HOSTILE = "127.0.0.1", "127.0.0.2"
PARTITIONS = 12
AT_ONCE = 48


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """1 MiB: 512 producers of a client, 64 of them in a partition."""
    config = {
        "num.network.threads": 1,
        "odradek.producer.state.max.bytes": 1 << 20,
        "metrics.listener": "127.0.0.1:0",
    }
    with Broker(
        config, topics={"shop": 1, "other": 1, "evil": PARTITIONS}, directory=tmp_path_factory.mktemp("limited")
    ) as made:
        yield made


def connect(broker: Broker, address: str) -> Wire:
    return Wire.over(socket.create_connection((broker.host, broker.port), timeout=90, source_address=(address, 0)))


def first(producer_id: int, sequence: int = 0) -> bytes:
    return build_batch([Record(value=b"x")], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def send(wire: Wire, topic: str, batches: list[tuple[int, bytes]]) -> list[tuple[int, int, str | None]]:
    """(error, base offset, message) of each batch."""
    response = wire.ask(produce_request([(topic, batches)]), produce.API_KEY, 9)
    return [(p.error_code, p.base_offset, p.error_message) for p in response.responses[0].partition_responses]


def flood(wire: Wire, count: int, start: int = 1_000_000) -> list[tuple[int, int, str | None]]:
    """Ids that nobody gave out, over all partitions; what became of the last ones."""
    told: list[tuple[int, int, str | None]] = []
    for at in range(start, start + count, AT_ONCE):
        told = send(wire, "evil", [(number % PARTITIONS, first(number)) for number in range(at, at + AT_ONCE)])
    return told


def test_a_flood_of_ids_takes_nothing_from_other_clients(broker: Broker) -> None:
    with connect(broker, HONEST) as honest, connect(broker, HOSTILE) as hostile:
        known = [(0, first(number)) for number in range(5)]
        assert [error for error, *_ in send(honest, "shop", known)] == [0] * 5
        in_the_flood = [(partition, first(50 + partition)) for partition in range(PARTITIONS)]
        assert [error for error, *_ in send(honest, "evil", in_the_flood)] == [0] * PARTITIONS
        flood(hostile, 3000)
        assert [at for _, at, _ in send(honest, "shop", known)] == list(range(5)), (
            "a repeated request got another offset"
        )
        assert [at for _, at, _ in send(honest, "evil", in_the_flood)] == [0] * PARTITIONS
        fresh = [(0, first(100 + number)) for number in range(20)]
        assert [error for error, *_ in send(honest, "shop", fresh)] == [0] * 20
        fresh = [(number % PARTITIONS, first(200 + number)) for number in range(60)]
        assert {error for error, *_ in send(honest, "evil", fresh)} == {0}


def test_who_shares_an_address_with_a_flood_still_gets_in(broker: Broker) -> None:
    with connect(broker, HOSTILE) as hostile, connect(broker, HOSTILE) as neighbour:
        flood(hostile, 3000, 2_000_000)
        mine = [(0, first(300)), (0, first(301))]
        told = send(neighbour, "shop", mine)
        assert {error for error, *_ in told} == {0}
        flood(hostile, 1000, 2_500_000)
        assert send(neighbour, "shop", mine) == told


def test_a_client_beyond_its_share_is_refused_where_memory_is_short(broker: Broker) -> None:
    with connect(broker, HONEST) as honest, connect(broker, HOSTILE) as hostile:
        flood(hostile, 3000, 3_000_000)
        state = broker.status()["producer_state"]
        for number in range(3, 100):
            if state["used_bytes"] > 0.75 * state["max_bytes"]:
                break
            with connect(broker, f"127.0.0.{number}") as other:
                flood(other, 1000, 1_000_000 * number)
            state = broker.status()["producer_state"]
        before = state["refused_client"]
        ((error, offset, message),) = send(hostile, "other", [(0, first(3_900_000))])
        assert (error, offset) == (NOT_ENOUGH_REPLICAS, -1)
        assert message is not None
        assert "odradek.producer.state.client.max.percent" in message
        plain = build_batch([Record(value=b"x")])
        assert send(hostile, "other", [(0, plain)])[0][0] == 0, "batches without producer id need no room"
        assert send(honest, "other", [(0, first(300))])[0][0] == 0
        state = broker.status()["producer_state"]
        assert state["refused_client"] == before + 1
        assert state["evicted_for_client"] > 0
        assert state["used_bytes"] <= state["max_bytes"] == 1 << 20
        assert any("odradek.producer.state.client.max.percent" in one.what for one in judge_status(broker.status()))
    until(lambda: "new idempotent producers, the last one from" in broker.log_tail(), "a line in the log")
    (line, *_) = [line for line in broker.log_tail().splitlines() if "new idempotent producers" in line]
    assert "the last one from 127.0.0.2:" in line or "the last one from a closed connection" in line
    assert "(client id 'wire')" in line
    samples = scrape(broker)
    assert samples.value("odradek_producer_state_bytes") == state["used_bytes"]
    assert samples.value("odradek_producer_state_max_bytes") == 1 << 20
    assert samples.value("odradek_producer_state_producers") == state["producers"]
    assert samples.value("odradek_producer_batches_refused_total", reason="client") == state["refused_client"]
    assert samples.value("odradek_producers_evicted_total", reason="client") == state["evicted_for_client"]


def test_a_start_after_a_flood_keeps_what_others_wrote(tmp_path: Path) -> None:
    """kill -9: the log brings back the ids that were evicted, more than fit."""
    config = {"num.network.threads": 1, "odradek.producer.state.max.bytes": 1 << 20}
    with Broker(config, topics={"shop": 8, "evil": PARTITIONS}, directory=tmp_path) as broker:
        with connect(broker, HONEST) as honest, connect(broker, HOSTILE) as hostile:
            known = [(number % 8, first(number)) for number in range(16)]
            told = send(honest, "shop", known)
            assert {error for error, *_ in told} == {0}
            flood(hostile, 6000)
        for _ in range(2):
            broker.kill_group()
            broker.start()
            with connect(broker, HONEST) as honest:
                assert send(honest, "shop", known) == told, "a repeated request got another offset"
                assert send(honest, "shop", [(0, first(500))])[0][0] == 0
            told_log = broker.log_tail()
            assert "newest producers" in told_log
            assert "shop" not in "".join(line for line in told_log.splitlines() if "dropped the" in line)


IDS = 140
"""More transactional ids than a partition of the broker below has room for."""
FIRST_THAT_ADDS = 12
"""The first version of Produce with which the leader adds a partition to the transaction."""


def begun(wire: Wire, number: int) -> tuple[str, int]:
    """A transactional id, and the producer id that it got."""
    name = f"id-{number}"
    find = find_coordinator.Request(key_type=1, coordinator_keys=[name])
    request = init_producer_id.Request(transactional_id=name, transaction_timeout_ms=60_000)
    answers = []

    def found() -> bool:
        return wire.ask(find, find_coordinator.API_KEY, 4).coordinators[0].error_code == 0

    def got() -> bool:
        answers.append(wire.ask(request, init_producer_id.API_KEY, 4))
        return answers[-1].error_code == 0

    until(found, "the coordinator of an id")
    until(got, "a producer id")
    return name, answers[-1].producer_id


def add_shop(wire: Wire, name: str, producer_id: int) -> None:
    """The client adds the partition to a transaction."""
    make = add_partitions_to_txn.Request
    request = make(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[make.AddPartitionsToTxnTopic(name="shop", partitions=[0])],
    )
    response = wire.ask(request, add_partitions_to_txn.API_KEY, 3)
    assert response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0


def write_shop(wire: Wire, name: str, producer_id: int) -> None:
    """The leader adds the partition to a transaction, with the first batch."""
    data = build_batch(
        [Record(value=b"x")], producer_id=producer_id, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL
    )
    request = produce_request([("shop", [(0, data)])], transactional_id=name)
    response = wire.ask(request, produce.API_KEY, FIRST_THAT_ADDS)
    assert response.responses[0].partition_responses[0].error_code in (0, NOT_ENOUGH_REPLICAS)


@pytest.mark.parametrize("use", [add_shop, write_shop])
def test_many_transactional_ids_of_one_client_take_nothing_from_other_clients(
    tmp_path: Path, use: Callable[[Wire, str, int], None]
) -> None:
    """After a start the broker does not know which clients use the producers of its logs."""
    config = {"num.network.threads": 1, "odradek.producer.state.partition.max.producers": 128}
    with Broker(config, topics={"shop": 1}, directory=tmp_path) as broker:
        known = [(0, first(900_000 + number)) for number in range(10)]
        with connect(broker, HONEST) as honest:
            told = send(honest, "shop", known)
            assert {error for error, *_ in told} == {0}
        broker.stop()
        broker.start()
        with connect(broker, HONEST) as honest, connect(broker, HOSTILE) as hostile:
            for number in range(IDS):
                use(hostile, *begun(hostile, number))
            assert send(honest, "shop", known) == told, "a repeated request got another offset"
            assert send(honest, "shop", [(0, first(910_000))])[0][0] == 0
