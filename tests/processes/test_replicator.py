"""The replicator with a leader: it finds the leader at a new address."""

import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.shm.brokers as brokers
from odradek._ext.testing import replica_probe
from odradek.config.broker_config import BrokerConfig
from odradek.processes.replicator import Replicator
from odradek.shm.replication_quotas import begin_quotas
from tests.replication.fake_leader import FakeLeader, Led
from tests.shm.one_broker import OneBroker, batch
from tests.waiting import until

LEADER = 2


class Replicating:
    """A broker, its replicator in the test's main thread, and steps that run beside it."""

    def __init__(self, broker: OneBroker) -> None:
        self.broker = broker
        config = BrokerConfig({})
        begin_quotas(config)
        running = SimpleNamespace(changed=False)
        context = SimpleNamespace(config=config, shm=broker.shm, log_dirs=[broker.path], running=running)
        self.listener = config.inter_broker_listener.name
        self.replicator = Replicator(cast(Any, context))

    def publish(self, port: int) -> None:
        endpoint = brokers.Endpoint(self.listener, "127.0.0.1", port)
        brokers.publish_brokers([brokers.BrokerInfo(LEADER, 1, None, (endpoint,))])

    def follow(self, leader: FakeLeader, topic: str) -> tuple[int, Led]:
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, topic).bytes
        slot = self.broker.create(topic, 0, topic_id=topic_id, alone=False)
        self.broker.obey(slot, 1)
        self.broker.table.announce([slot])
        return slot, leader.lead(topic, topic_id, 0, leader_epoch=1)

    def until_equal(self, slot: int, led: Led) -> None:
        until(lambda: self.broker.log_bytes(slot) == b"".join(led.batches), "the logs are equal")
        assert slot_facts.describe(slot).log_end_offset == led.log_end

    def run(self, steps: Callable[[], None]) -> None:
        """Run the replicator until `steps` have ended; their error is the test's."""
        errors: list[BaseException] = []

        def drive() -> None:
            try:
                steps()
            except BaseException as error:
                errors.append(error)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        driver = threading.Thread(target=drive)
        driver.start()
        self.replicator.run()
        driver.join()
        if errors:
            raise errors[0]


@pytest.fixture
def replicating(tmp_path: Path) -> Iterator[Replicating]:
    data = tmp_path / "data"
    data.mkdir()
    former = signal.getsignal(signal.SIGTERM)
    with OneBroker(data) as broker:
        replica_probe.cluster([1, LEADER])
        brokers.set_broker_epoch(77)
        try:
            yield Replicating(broker)
        finally:
            os.close(signal.set_wakeup_fd(-1))
            signal.signal(signal.SIGTERM, former)


def test_a_leader_with_a_new_address_is_found(replicating: Replicating) -> None:
    with FakeLeader() as first, FakeLeader() as second:
        slot, led = replicating.follow(first, "t")
        second.logs = first.logs
        replicating.publish(first.port)

        def steps() -> None:
            first.append(led, batch(10, base_offset=0, partition_leader_epoch=1))
            replicating.until_equal(slot, led)
            assert second.connections == 0
            replicating.publish(second.port)
            second.append(led, batch(10, base_offset=led.log_end, partition_leader_epoch=1))
            until(lambda: second.connections, "the fetcher connects to the new address")
            replicating.until_equal(slot, led)

        replicating.run(steps)
        assert first.complaints == second.complaints == []
