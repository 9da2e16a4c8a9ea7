"""Three brokers of Odradek that form a cluster, as surroundings of rounds; clients reach each of them through a
relay.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import end_txn, update_features
from odradek.testing.broker_process import Broker
from tests.cluster import shown
from tests.cluster.failures import FAILURES, FailingCluster, Progressing, possible, three_brokers
from tests.frame_relay import FrameRelay
from tests.transactions.rounds import network_faults
from tests.transactions.rounds.one_round import Fault
from tests.transactions.rounds.surroundings import Surroundings, of_network, unwanted_lines
from tests.transactions.wire_calls import TRANSACTION_VERSION, transaction_version
from tests.waiting import until
from tests.wire import Wire

REQUEST_TIMEOUT_MS = 1500
IN_CLUSTER: dict[str, object] = {
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "group.initial.rebalance.delay.ms": 0,
    "min.insync.replicas": 2,
    "request.timeout.ms": REQUEST_TIMEOUT_MS,
}
LEFT_OUT = {"restart_zookeeper", "restore_zookeeper", "fail_log_dir"}
"""Failures of `tests.cluster.failures` that are not of transactions, or that need the load or the topic of those tests."""
ADMIN_S = 60


@contextmanager
def cluster(
    directory: Path, answer_s: float, settings: Mapping[str, str | int] = {}, level: int = 2
) -> Iterator[Surroundings]:
    """A cluster, in which a broker may lose its power: what was acknowledged is at two others.

    :param level: of the feature ``transaction.version``, to which the cluster is raised. It begins at 0.
    """
    with ExitStack() as stack:
        relays: dict[int, FrameRelay] = {}
        between: list[FrameRelay] = []

        def settings_of(broker_id: int, for_clients: int, for_brokers: int) -> dict[str, object]:
            relay = relays[broker_id] = stack.enter_context(FrameRelay(for_clients))
            between.append(stack.enter_context(FrameRelay(for_brokers)))
            return {"advertised.listeners": f"CLIENTS://127.0.0.1:{relay.port},BROKERS://127.0.0.1:{between[-1].port}"}

        running = stack.enter_context(three_brokers(directory, IN_CLUSTER | dict(settings), settings_of))
        seen: dict[int, dict[str, int]] = {broker_id: {} for broker_id in running.brokers}
        raise_level(running, level)

        def wrong() -> list[str]:
            return [line for number, broker in running.brokers.items() for line in unwanted_lines(broker, seen[number])]

        servers = [("127.0.0.1", relay.port) for relay in relays.values()]
        faults = of_network(list(relays.values()), answer_s) | _failures(running)
        faults["delay between brokers"] = lambda rng: network_faults.delay_between_brokers(
            between, rng, REQUEST_TIMEOUT_MS / 1000
        )

        def attach(load: Progressing) -> None:
            running.load = load

        yield Surroundings(servers, faults, _creator(running.servers), _deleter(running.servers), wrong, attach)
        ends = sum((relay.requests_of(end_txn.API_KEY) for relay in relays.values()), Counter())
        print(f"EndTxn requests by version: {dict(sorted(ends.items()))}", flush=True)


def raise_level(running: FailingCluster, level: int) -> None:
    """Raise ``transaction.version`` from 0, and wait until all brokers announce the level."""
    addresses = [_for_clients(broker) for broker in running.brokers.values()]
    assert [transaction_version(address) for address in addresses] == [0] * len(addresses)
    make = update_features.Request
    request = make(
        timeout_ms=30_000, feature_updates=[make.FeatureUpdateKey(feature=TRANSACTION_VERSION, max_version_level=level)]
    )

    def raised() -> bool:
        with Wire(*_for_clients(running.brokers[running.controller()])) as wire:
            code = ErrorCode(wire.ask(request, update_features.API_KEY, 1).error_code)
        assert code in (ErrorCode.NONE, ErrorCode.NOT_CONTROLLER), code.name
        return code is ErrorCode.NONE

    if level:
        until(raised, f"{TRANSACTION_VERSION} is raised to {level}")
    until(
        lambda: {transaction_version(address) for address in addresses} == {level},
        f"all brokers announce {TRANSACTION_VERSION} {level}",
    )
    print(f"all brokers announce {TRANSACTION_VERSION} {level}", flush=True)


def _for_clients(broker: Broker) -> tuple[str, int]:
    """The address of a broker's listener for clients, without a relay."""
    host, port = broker.bootstrap_servers.split(",")[0].rsplit(":", 1)
    return host, int(port)


def _failures(running: FailingCluster) -> dict[str, Fault]:
    """The failures of a cluster as faults, after which all replicas are in sync again."""

    def fault_of(name: str) -> Fault:
        def fault(rng: random.Random) -> str:
            FAILURES[name](running, rng)
            running.wait_until_healed()
            return "all replicas are in sync"

        return fault

    return {name: fault_of(name) for name in FAILURES if possible(name, running.synced) and name not in LEFT_OUT}


def _done(call: Callable[[AdminClient], Future[None]], servers: str, expected: str, what: str) -> None:
    """Wait until the controller has done something, or says that it was done before. Each attempt has a client of its own:
    librdkafka looks for the controller once, and after a failure the controller may be another broker.
    """
    failures: list[str] = []

    def done() -> bool:
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})  # it must live until the result is there
        try:
            call(admin).result(ADMIN_S)
        except KafkaException as error:
            failures.append(error.args[0].str())
            return error.args[0].name() == expected
        return True

    until(done, lambda: f"{what}; the last failures are {failures[-3:]}")


def _creator(servers: str) -> Callable[[str, int], None]:
    def create(name: str, partitions: int) -> None:
        topic = NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"})
        _done(
            lambda admin: admin.create_topics([topic], request_timeout=10)[name],
            servers,
            "TOPIC_ALREADY_EXISTS",
            f"{name} is created",
        )
        for server in servers.split(
            ","
        ):  # each broker must know the topic: a group gets what its leader's broker knows
            until(lambda server=server: _is_led(server, name, partitions), f"{server} knows the leaders of {name}")

    return create


def _is_led(server: str, name: str, partitions: int) -> bool:
    found = shown.partitions(server, name).values()
    return len(found) == partitions and all(row.leader >= 0 and len(row.in_sync) == 3 for row in found)


def _deleter(servers: str) -> Callable[[str], None]:
    def delete(name: str) -> None:
        _done(
            lambda admin: admin.delete_topics([name], request_timeout=10)[name],
            servers,
            "UNKNOWN_TOPIC_OR_PART",
            f"{name} is deleted",
        )

    return delete
