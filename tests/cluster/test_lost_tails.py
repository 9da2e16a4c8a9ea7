"""A broker whose log lost its end while it was down [R 13]: what it reports before it follows, and when it must lead."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing.broker_process import Broker
from tests.cluster import our_brokers, shown
from tests.metrics.scraping import Scrape, get
from tests.waiting import until
from tests.wire import Wire, batch
from tests.zookeeper import chroot

FIRST, SECOND = 1, 2
TOPIC = "t"
TORN_BYTES = 10
pytestmark = pytest.mark.xdist_group("lost-tails")


class Pair:
    """Two brokers, and a topic of one partition with a replica in each."""

    def __init__(self, brokers: dict[int, Broker]) -> None:
        self.brokers = brokers

    def create(self) -> None:
        servers = ",".join(broker.bootstrap_servers for broker in self.brokers.values())
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

        def created() -> bool:
            try:
                admin.create_topics([NewTopic(TOPIC, 1, 2)], request_timeout=10)[TOPIC].result()
            except KafkaException as error:
                return error.args[0].name() == "TOPIC_ALREADY_EXISTS"
            return True

        until(created, "the topic is created")

    def until_led(self, leader: int, *in_sync: int) -> None:
        """Wait until the running brokers show this leader and these in-sync replicas."""
        running = [broker for broker in self.brokers.values() if broker.running]

        def rows() -> list[shown.Shown | None]:
            return [shown.partitions(broker.bootstrap_servers, TOPIC).get(0) for broker in running]

        expected = shown.Shown(leader, frozenset(in_sync))
        until(lambda: rows() == [expected] * len(running), lambda: f"{expected} is shown: {rows()}")

    def produce(self, leader: int, count: int) -> None:
        """Append batches that all in-sync replicas have."""
        with Wire.to(self.brokers[leader]) as wire:
            for number in range(count):
                until(lambda: wire.produce(TOPIC, batch(b"x" * 50)).error_code == 0, f"record {number} is accepted")

    def lose_tail(self, broker_id: int) -> None:
        """Cut the last bytes off the log of a broker that does not run."""
        assert not self.brokers[broker_id].running
        (path,) = (self.brokers[broker_id].data_dir / f"{TOPIC}-0").glob("*.log")
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size - TORN_BYTES)

    def lost(self, broker_id: int) -> tuple[float | None, float | None]:
        """(partitions that are not in sync again, partitions that are led without their ends), as the metrics contain them."""
        scrape = Scrape(get(self.brokers[broker_id], "/metrics")[1].decode())
        return scrape.value("odradek_lost_tail_partitions"), scrape.value("odradek_lost_tail_led_partitions")

    def explained(self) -> str:
        servers = ",".join(broker.bootstrap_servers for broker in self.brokers.values() if broker.running)
        command = [sys.executable, "-m", "odradek.cli.main", "partition", "explain", "-b", servers, f"{TOPIC}-0"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def doctor(self, broker_id: int) -> str:
        broker = self.brokers[broker_id]
        command = [sys.executable, "-m", "odradek.cli.main", "doctor", "-b", broker.bootstrap_servers]
        return subprocess.run(
            [*command, "--data-dir", str(broker.data_dir)], capture_output=True, text=True, check=False
        ).stdout


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    settings = {
        "zookeeper.connect": chroot(),
        "metrics.listener": "127.0.0.1:0",
        "offsets.topic.replication.factor": 1,
        "auto.leader.rebalance.enable": "false",
    }
    with our_brokers.started(tmp_path, (FIRST, SECOND), settings) as brokers:
        yield Pair(brokers)


def lines(broker: Broker) -> list[str]:
    return [line for line in broker.log_file.read_text().splitlines() if "although its log lost its end" in line]


def test_a_log_that_lost_its_end_is_reported_until_it_follows_or_leads(pair: Pair) -> None:
    first, second = pair.brokers[FIRST], pair.brokers[SECOND]
    pair.create()
    until(lambda: shown.in_sync(first.bootstrap_servers, TOPIC).get(0) == {FIRST, SECOND}, "both replicas are in sync")
    leader = shown.leaders(first.bootstrap_servers, TOPIC)[0]
    pair.produce(leader, 20)
    # The first broker loses the end of its log. It may not lead, because the second one was the last in sync.
    first.stop()
    pair.until_led(SECOND, SECOND)
    second.stop()
    pair.lose_tail(FIRST)
    first.start()
    until(lambda: pair.lost(FIRST) == (1, 0), lambda: f"the loss is counted: {pair.lost(FIRST)}")
    second.start()
    pair.until_led(SECOND, FIRST, SECOND)
    until(lambda: pair.lost(FIRST) == (0, 0), lambda: f"the log is complete again: {pair.lost(FIRST)}")
    assert lines(first) == []
    # Now it is the last in sync, and must lead without the end of its log.
    second.stop()
    pair.until_led(FIRST, FIRST)
    pair.produce(FIRST, 20)
    first.kill_group()
    pair.lose_tail(FIRST)
    first.start()
    pair.until_led(FIRST, FIRST)
    until(lambda: pair.lost(FIRST) == (0, 1), lambda: f"the leader is counted: {pair.lost(FIRST)}")
    (line,) = lines(first)
    assert "ERROR" in line and "leading t-0 from offset 39 on" in line
    assert "this broker became the leader without these records" in pair.explained()
    assert "leads although their logs had lost records" in pair.doctor(FIRST)
    second.start()
    pair.until_led(FIRST, FIRST, SECOND)
    assert pair.lost(SECOND) == (0, 0)
    first.stop()
    pair.until_led(SECOND, SECOND)
    first.start()
    pair.until_led(SECOND, FIRST, SECOND)
    assert pair.lost(FIRST) == (0, 0)
