"""Requests that only brokers send: on which listeners a broker of a cluster accepts them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import (
    allocate_producer_ids,
    alter_partition,
    controlled_shutdown,
    fetch,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from odradek.testing.broker_process import Broker
from tests.ports import reserved
from tests.waiting import until
from tests.wire import Wire, fetch_request
from tests.zookeeper import chroot

STALE = -5
"""A controller epoch, and a broker epoch, that are older than any."""
TO_A_BROKER = (
    (leader_and_isr, 7, {"controller_id": 9, "controller_epoch": STALE, "broker_epoch": -1}),
    (stop_replica, 4, {"controller_id": 9, "controller_epoch": STALE, "broker_epoch": -1}),
    (update_metadata, 8, {"controller_id": 9, "controller_epoch": STALE, "broker_epoch": -1}),
    (controlled_shutdown, 3, {"broker_id": 9, "broker_epoch": STALE}),
    (alter_partition, 3, {"broker_id": 9, "broker_epoch": STALE}),
    (allocate_producer_ids, 0, {"broker_id": 9, "broker_epoch": STALE}),
)


def of_a_follower(topic: str) -> Any:
    request = fetch_request([(topic, 0, 0)], session_epoch=-1)
    request.replica_state = fetch.Request.ReplicaState(replica_id=2, replica_epoch=-1)
    return request


@pytest.fixture
def ports() -> Iterator[tuple[int, int]]:
    with reserved() as clients, reserved() as brokers:
        yield clients, brokers


def two_listeners(path: Path, ports: tuple[int, int], **settings: object) -> Broker:
    """A broker with a listener for clients and one for brokers, alone in its cluster."""
    return Broker(
        {
            "broker.id": 1,
            "zookeeper.connect": chroot(),
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "num.network.threads": 1,
            "listeners": f"CLIENTS://127.0.0.1:{ports[0]},BROKERS://127.0.0.1:{ports[1]}",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
        }
        | {name.replace("_", "."): value for name, value in settings.items()},
        directory=path,
    )


def closes(port: int, request: Any, api_key: int, version: int) -> bool:
    """Whether the broker closes the connection that sends this request."""
    with Wire("127.0.0.1", port) as wire:
        wire.send(request, api_key, version)
        return wire.closed_by_broker()


def answers(port: int, request: Any, api_key: int, version: int) -> Any:
    with Wire("127.0.0.1", port) as wire:
        return wire.ask(request, api_key, version)


def test_a_listener_for_clients_accepts_no_request_of_a_broker(tmp_path: Path, ports: tuple[int, int]) -> None:
    clients, brokers = ports
    with two_listeners(tmp_path, ports) as ours:
        with Wire("127.0.0.1", clients) as wire:
            topic = wire.create("t").hex()
            wire.until_led("t")
            found = wire.fetch("t", 0)
            assert (found.error_code, len(topic)) == (0, 32)
        for schema, version, fields in TO_A_BROKER:
            request = schema.Request(**fields)
            assert closes(clients, request, schema.API_KEY, version), schema.__name__
            assert answers(brokers, request, schema.API_KEY, version).error_code in (
                ErrorCode.STALE_CONTROLLER_EPOCH,
                ErrorCode.STALE_BROKER_EPOCH,
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                ErrorCode.BROKER_NOT_AVAILABLE,
            ), schema.__name__
        follower = of_a_follower("t")
        assert closes(clients, follower, fetch.API_KEY, 17)
        assert answers(brokers, follower, fetch.API_KEY, 17).error_code == 0
        text = "a LeaderAndIsr request on a listener for clients: brokers send it to the listener that inter.broker"
        until(lambda: text in ours.log_file.read_text(), "the log names the request and the setting")


def test_requests_of_brokers_on_every_listener_can_be_allowed(tmp_path: Path, ports: tuple[int, int]) -> None:
    """While the listener is changed from broker to broker, some brokers still use the former one."""
    with two_listeners(tmp_path, ports, odradek_inter_broker_listener_only="false"):
        for port in ports:
            for schema, version, fields in TO_A_BROKER:
                answers(port, schema.Request(**fields), schema.API_KEY, version)
