"""An idempotent producer repeats its last request after the broker was killed or stopped: it receives the first offset."""

import time
from pathlib import Path

import pytest

from odradek.protocol.schemas import produce
from odradek.storage.batch import Record, build_batch
from odradek.testing import Broker
from tests.wire import Wire, produce_request

pytestmark = [pytest.mark.timeout(300)]

HOUR_MS = 3_600_000
PARTITIONS, PRODUCERS = 20, 3
AGES_H = {"of 1970": None, "two days old": 48, "an hour old": 1, "a year ahead": -24 * 365}


def batches(age_h: int | None) -> list[tuple[int, bytes]]:
    timestamp = 1000 if age_h is None else int(time.time() * 1000) - age_h * HOUR_MS
    return [
        (
            partition,
            build_batch(
                [Record(value=b"x", timestamp=timestamp)] * 3, producer_id=number, producer_epoch=0, base_sequence=0
            ),
        )
        for number in range(PRODUCERS)
        for partition in range(PARTITIONS)
    ]


def send(broker: Broker, topic: str, sent: list[tuple[int, bytes]]) -> list[tuple[int, int]]:
    with Wire(broker.host, broker.port) as wire:
        response = wire.ask(produce_request([(topic, sent)]), produce.API_KEY, 9)
    return [(one.error_code, one.base_offset) for one in response.responses[0].partition_responses]


@pytest.mark.parametrize("how", ["kill", "stop", "stop and kill"])
def test_whatever_the_timestamps_of_its_records_are(tmp_path: Path, how: str) -> None:
    config = {"num.network.threads": 1, "num.recovery.threads.per.data.dir": 4}
    settings = {"partitions": str(PARTITIONS), "retention.ms": "-1", "message.timestamp.after.max.ms": str(1 << 62)}
    topics = {name.replace(" ", "-"): settings for name in AGES_H}
    with Broker(config, topics=topics, directory=tmp_path) as broker:
        sent = {name.replace(" ", "-"): batches(age) for name, age in AGES_H.items()}
        told = {name: send(broker, name, each) for name, each in sent.items()}
        assert all(
            told[name] == [(0, 3 * number) for number in range(PRODUCERS) for _ in range(PARTITIONS)] for name in told
        )
        for _ in range(2):
            if how.startswith("stop"):
                broker.stop()
            else:
                broker.kill_group()
            broker.start()
            if how == "stop and kill":
                broker.kill_group()
                broker.start()
            assert {name: send(broker, name, each) for name, each in sent.items()} == told


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_all_five_requests_that_a_producer_may_have_in_flight(tmp_path: Path, how: str) -> None:
    """Their responses are lost with the broker, so the producer repeats all of them."""
    sent = [
        build_batch([Record(value=b"x")] * 3, producer_id=7, producer_epoch=0, base_sequence=3 * number)
        for number in range(6)
    ]
    with Broker({"num.network.threads": 1}, topics={"t": 1}, directory=tmp_path) as broker:
        told = [send(broker, "t", [(0, one)]) for one in sent]
        assert told == [[(0, 3 * number)] for number in range(6)]
        if how == "stop":
            broker.stop()
        else:
            broker.kill_group()
        broker.start()
        assert [send(broker, "t", [(0, one)]) for one in sent[1:]] == told[1:]


def test_snapshots_do_not_pile_up_over_starts(tmp_path: Path) -> None:
    with Broker({"num.network.threads": 1}, topics={"t": 1}, directory=tmp_path) as broker:
        path = broker.data_dir / "t-0"
        for number in range(5):
            one = build_batch([Record(value=b"x")], producer_id=number, producer_epoch=0, base_sequence=0)
            assert send(broker, "t", [(0, one)]) == [(0, number)]
            broker.kill_group()
            broker.start()
        assert list(path.glob("*snapshot*")) == []
        broker.stop()
        assert [one.name for one in path.glob("*snapshot*")] == [f"{5:020d}.snapshot"]
        broker.start()
        assert send(broker, "t", [(0, one)]) == [(0, 4)]
