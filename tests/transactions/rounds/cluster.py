"""Three brokers of Odradek that form a cluster, as surroundings of rounds; clients reach each of them through a
relay.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.failures import FAILURES, FailingCluster, Progressing, possible, three_brokers
from tests.frame_relay import FrameRelay
from tests.transactions.rounds.one_round import Fault
from tests.transactions.rounds.surroundings import Surroundings, of_network, unwanted_lines
from tests.waiting import until

IN_CLUSTER: dict[str, object] = {
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "group.initial.rebalance.delay.ms": 0,
    "min.insync.replicas": 2,
}
LEFT_OUT = {"restart_zookeeper", "fail_log_dir"}
"""Failures of `tests.cluster.failures` that are not of transactions, or that need the load of those tests."""
ADMIN_S = 60


@contextmanager
def cluster(directory: Path, answer_s: float, settings: Mapping[str, str | int] = {}) -> Iterator[Surroundings]:
    """A cluster, in which a broker may lose its power: what was acknowledged is at two others."""
    with ExitStack() as stack:
        relays: dict[int, FrameRelay] = {}

        def settings_of(broker_id: int, for_clients: int, for_brokers: int) -> dict[str, object]:
            relay = relays[broker_id] = stack.enter_context(FrameRelay(for_clients))
            return {"advertised.listeners": f"CLIENTS://127.0.0.1:{relay.port},BROKERS://127.0.0.1:{for_brokers}"}

        running = stack.enter_context(three_brokers(directory, IN_CLUSTER | dict(settings), settings_of))
        seen: dict[int, dict[str, int]] = {broker_id: {} for broker_id in running.brokers}
        admin = AdminClient({"bootstrap.servers": running.servers, "log_level": 0})

        def wrong() -> list[str]:
            return [line for number, broker in running.brokers.items() for line in unwanted_lines(broker, seen[number])]

        servers = [("127.0.0.1", relay.port) for relay in relays.values()]
        faults = of_network(list(relays.values()), answer_s) | _failures(running)

        def attach(load: Progressing) -> None:
            running.load = load

        yield Surroundings(servers, faults, _creator(admin), _deleter(admin), wrong, attach)


def _failures(running: FailingCluster) -> dict[str, Fault]:
    """The failures of a cluster as faults, after which all replicas are in sync again."""

    def fault_of(name: str) -> Fault:
        def fault(rng: random.Random) -> str:
            FAILURES[name](running, rng)
            running.wait_until_healed()
            return "all replicas are in sync"

        return fault

    return {name: fault_of(name) for name in FAILURES if possible(name) and name not in LEFT_OUT}


def _creator(admin: AdminClient) -> Callable[[str, int], None]:
    def create(name: str, partitions: int) -> None:
        topic = NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"})

        def created() -> bool:
            try:
                admin.create_topics([topic], request_timeout=10)[name].result(ADMIN_S)
            except KafkaException as error:
                return error.args[0].name() == "TOPIC_ALREADY_EXISTS"
            return True

        until(created, f"{name} is created")

        def led() -> bool:
            found = admin.list_topics(name, timeout=ADMIN_S).topics[name].partitions.values()
            return len(found) == partitions and all(row.leader >= 0 and len(row.isrs) == 3 for row in found)

        until(led, f"{name} has leaders")

    return create


def _deleter(admin: AdminClient) -> Callable[[str], None]:
    def delete(name: str) -> None:
        admin.delete_topics([name], request_timeout=30)[name].result(ADMIN_S)

    return delete
