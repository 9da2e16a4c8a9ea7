"""The conversations in which markers are held back, with two of our brokers: one coordinates, the other leads what is held.

The gate is in front of the second broker's listener for brokers. `__transaction_state` and `__consumer_offsets` are of the
first one, because they are created before the second one starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.schemas import create_topics
from odradek.testing import Broker
from tests.ports import reserved
from tests.transactions_against_kafka import exhausting, recorded
from tests.transactions_against_kafka.marker_gate import MarkerGate
from tests.transactions_against_kafka.sides import CONFIG, Row, Side
from tests.transactions_against_kafka.table import EXHAUSTED, TABLE
from tests.transactions_against_kafka.transaction_talk import TransactionTalk
from tests.waiting import until
from tests.zookeeper import chroot

pytestmark = [pytest.mark.xdist_group("held-markers"), pytest.mark.timeout(300)]
COORDINATOR, LEADER = 1, 2
record = cache(recorded.read)


class Pair(Side):
    """The first broker, whose markers for `held_topic` go through the gate to the second one."""

    def __init__(self, first: Broker, second: Broker, gate: MarkerGate, stack: ExitStack) -> None:
        self._second = second
        super().__init__(first.host, first.port, first, stack, gate)

    def topic(self, name: str, partitions: int = 1, **configs: object) -> str:
        assert not configs
        self._create(name, COORDINATOR, partitions)
        self.talk.until_led(name, partitions)
        return name

    def held_topic(self, name: str) -> str:
        self._create(name, LEADER, 1)
        with TransactionTalk.to(self._second) as wire:
            wire.until_led(name)
        until(lambda: self._leader_of(name) == LEADER, f"the coordinator knows the leader of {name}")
        return name

    def _leader_of(self, name: str) -> int:
        (topic,) = self.talk.metadata(name).topics
        return topic.partitions[0].leader_id if topic.partitions else -1

    def _create(self, name: str, broker_id: int, partitions: int) -> None:
        make = create_topics.Request
        assigned = [
            make.CreatableReplicaAssignment(partition_index=partition, broker_ids=[broker_id])
            for partition in range(partitions)
        ]
        topic = make.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assigned)
        (result,) = self.talk.ask(make(topics=[topic], timeout_ms=60_000), create_topics.API_KEY, 7).topics
        assert result.error_code == 0, result
        self.topics[result.topic_id] = name
        self.ids[name] = result.topic_id


def settings(broker_id: int, connect: str, clients: int, brokers: int, advertised: int) -> dict[str, Any]:
    """Of one broker of the pair."""
    return CONFIG | {
        "broker.id": broker_id,
        "metadata.store": "zookeeper",
        "zookeeper.connect": connect,
        "listeners": f"CLIENTS://127.0.0.1:{clients},BROKERS://127.0.0.1:{brokers}",
        "advertised.listeners": f"CLIENTS://127.0.0.1:{clients},BROKERS://127.0.0.1:{advertised}",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "odradek.inter.broker.listener.only": "false",
        "num.network.threads": 1,
    }


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with ExitStack() as stack:
        connect = chroot()
        ports = [stack.enter_context(reserved()) for _ in range(4)]
        gate = stack.enter_context(MarkerGate(ports[3]))
        directory = tmp_path_factory.mktemp("pair")
        one = settings(COORDINATOR, connect, ports[0], ports[1], ports[1])
        first = stack.enter_context(Broker(one, directory=directory / "first"))
        held = [row for row in EXHAUSTED if row.holds]
        with ExitStack() as alone:
            names = exhausting.prepare(Side(first.host, first.port, first, alone), held)
        first.kill()
        exhausting.exhaust(Path(first.data_dir), names)
        first.start()
        two = settings(LEADER, connect, ports[2], ports[3], gate.port)
        second = stack.enter_context(Broker(two, directory=directory / "second"))
        yield Pair(first, second, gate, stack)


def cases() -> list[Any]:
    modules = TABLE | {"exhausting": EXHAUSTED}
    return [
        pytest.param(name, row, id=f"{name}-{row.name}") for name, rows in modules.items() for row in rows if row.holds
    ]


@pytest.mark.parametrize(("name", "row"), cases())
def test_the_responses_are_kafkas_while_a_transaction_ends(side: Side, name: str, row: Row) -> None:
    found = recorded.differences(row, side.transcript_of(row), record(name)[row.name])
    assert not found, "\n".join(found)
