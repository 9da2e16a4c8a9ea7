"""A broker enforces quotas: in all workers at once, for every API, and after the death of a process."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.protocol.schemas import (
    api_versions,
    create_partitions,
    create_topics,
    delete_topics,
    describe_client_quotas,
    find_coordinator,
    heartbeat,
    init_producer_id,
    list_groups,
    list_offsets,
    offset_commit,
)
from odradek.testing import Broker
from tests.quotas.talk import BYTES_IN, BYTES_OUT, MUTATIONS, TIME, set_quota
from tests.waiting import until
from tests.wire import Wire, batch, fetch_request, produce_request

pytestmark = pytest.mark.xdist_group("quotas")

WORKERS = 3
THROTTLING_QUOTA_EXCEEDED, LEADER_NOT_AVAILABLE = 89, 5
TINY = 1e-6


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    config = {
        "num.network.threads": WORKERS,
        "listeners": "PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        "controller.quota.window.num": 2,
    }
    with Broker(config, {"t": 1}, directory=tmp_path_factory.mktemp("quotas")) as running:
        yield running


@pytest.fixture
def admin(broker: Broker) -> Iterator[Wire]:
    """A client without quotas. All quotas are removed in the end."""
    with Wire.to(broker) as wire:
        wire.client_id = "admin"
        yield wire
    with Wire.to(broker) as wire:  # the test may have restarted the broker
        wire.client_id = "admin"
        everything = describe_client_quotas.Request(components=[], strict=False)
        for found in wire.ask(everything, describe_client_quotas.API_KEY, 1).entries:
            entity = {part.entity_type: part.entity_name for part in found.entity}
            set_quota(wire, entity, **{value.key: None for value in found.values})


names = iter(f"client-{number}" for number in range(10**6))


def client(broker: Broker, name: str | None = None) -> Wire:
    wire = Wire.to(broker)
    wire.client_id = next(names) if name is None else name
    return wire


def produce(wire: Wire, size: int) -> int:
    told = wire.ask(produce_request([("t", [(0, batch(bytes(size)))])]), 0, 9)
    assert told.responses[0].partition_responses[0].error_code == 0
    throttle_ms: int = told.throttle_time_ms
    return throttle_ms


USER, SELF, ALL = "ANONYMOUS", "SELF", None
LEVELS: list[dict[str, str | None]] = [
    {"user": USER, "client-id": SELF},
    {"user": USER, "client-id": ALL},
    {"user": USER},
    {"user": ALL, "client-id": SELF},
    {"user": ALL, "client-id": ALL},
    {"user": ALL},
    {"client-id": SELF},
    {"client-id": ALL},
]


def test_every_level_takes_precedence_over_those_after_it(broker: Broker, admin: Wire) -> None:
    """From the last level on, each next one gets a quota that is exceeded, then one that is not."""
    set_quota(admin, {"user": USER, "client-id": "admin"}, **{BYTES_IN: 1e12})
    with client(broker) as wire:
        produce(wire, 100)
    for level in reversed(LEVELS):
        with client(broker) as wire:
            entity = {kind: wire.client_id if name == SELF else name for kind, name in level.items()}
            set_quota(admin, entity, **{BYTES_IN: 1.0})
            assert produce(wire, 20_000) > 0, entity
            set_quota(admin, entity, **{BYTES_IN: 1e12})
        with client(broker, wire.client_id) as wire:
            assert produce(wire, 20_000) == 0, entity
            set_quota(admin, entity, **{BYTES_IN: None} if SELF in level.values() else {BYTES_IN: 1e12})


def test_clients_of_a_user_share_its_quota_and_client_ids_do_not(broker: Broker, admin: Wire) -> None:
    set_quota(admin, {"user": USER}, **{BYTES_IN: 100_000.0})  # other tests may have used up a little of it
    with client(broker) as one, client(broker) as other:
        assert produce(one, 700_000) == 0
        assert produce(other, 700_000) > 0
    set_quota(admin, {"user": USER}, **{BYTES_IN: None})
    set_quota(admin, {"client-id": None}, **{BYTES_IN: 1000.0})
    with client(broker) as one, client(broker) as other:
        assert produce(one, 9000) == produce(other, 9000) == 0


def test_all_workers_count_together_and_apply_a_change_before_its_response(broker: Broker, admin: Wire) -> None:
    name = next(names)
    wires = [client(broker, name) for _ in range(4 * WORKERS)]
    for wire in wires:
        assert produce(wire, 1000) == 0
    set_quota(admin, {"client-id": name}, **{BYTES_IN: 1000.0})
    times = [produce(wire, 4000) for wire in wires]
    assert times[0] == times[1] == 0 and times[2:] == sorted(times[2:]) and times[-1] > 30_000
    set_quota(admin, {"client-id": name}, **{BYTES_IN: None})
    for wire in wires:
        wire.socket.close()


SMALL: list[tuple[Any, int, int]] = [
    (api_versions.Request(client_software_name="x", client_software_version="1"), 18, 3),
    (api_versions.Request(), 18, 1),
    (find_coordinator.Request(coordinator_keys=["g"]), find_coordinator.API_KEY, 4),
    (heartbeat.Request(group_id="g"), heartbeat.API_KEY, 4),
    (heartbeat.Request(group_id="g"), heartbeat.API_KEY, 1),
    (list_groups.Request(), list_groups.API_KEY, 4),
    (init_producer_id.Request(transactional_id=None, transaction_timeout_ms=1000), init_producer_id.API_KEY, 4),
    (describe_client_quotas.Request(components=[], strict=False), describe_client_quotas.API_KEY, 1),
    (offset_commit.Request(group_id="g"), offset_commit.API_KEY, 8),
    (list_offsets.Request(replica_id=-1, topics=[]), list_offsets.API_KEY, 7),
]


@pytest.mark.parametrize("number", range(len(SMALL)))
def test_request_time_is_limited_wherever_a_request_is_executed(broker: Broker, admin: Wire, number: int) -> None:
    """In a worker natively, in its loop, on its thread, and in the coordinator; at most for a window."""
    request, key, version = SMALL[number]
    with client(broker) as wire:
        assert wire.ask(request, key, version).throttle_time_ms == 0
        set_quota(admin, {"client-id": wire.client_id}, **{TIME: TINY})
        before = time.monotonic()  # the connection is muted after this
        assert wire.ask(request, key, version).throttle_time_ms == 1000
        set_quota(admin, {"client-id": wire.client_id}, **{TIME: None})
        assert wire.ask(request, key, version).throttle_time_ms == 0
        assert time.monotonic() - before > 0.9, "the connection was muted"


def test_produce_and_fetch_are_limited_in_time_too(broker: Broker, admin: Wire) -> None:
    with client(broker) as wire, client(broker) as reader:
        produce(wire, 100)
        set_quota(admin, {"client-id": wire.client_id}, **{TIME: TINY})
        set_quota(admin, {"client-id": reader.client_id}, **{TIME: TINY})
        assert produce(wire, 100) == 1000
        told = reader.ask(fetch_request([("t", 0, 0)]), 1, 12)
        assert (told.throttle_time_ms, told.responses) == (1000, [])


def test_quotas_outlive_a_worker_a_coordinator_and_the_broker(broker: Broker, admin: Wire) -> None:
    def processes(kind: str) -> list[int]:
        return [row["pid"] for row in broker.status()["processes"] if row["kind"] == kind and row["pid"]]

    def fetched(wire: Wire) -> int:
        """The throttle time of a fetch."""
        throttle_ms: int = wire.ask(fetch_request([("t", 0, wire.log_end("t", 0) - 1)]), 1, 12).throttle_time_ms
        return throttle_ms

    name = next(names)
    produce(admin, 30_000)
    set_quota(admin, {"client-id": name}, **{BYTES_OUT: 1000.0})
    with client(broker, name) as wire:
        assert fetched(wire) > 15_000
    set_quota(admin, {"client-id": name}, **{BYTES_OUT: 1e6})
    with client(broker, name) as wire:
        assert fetched(wire) == 0
    set_quota(admin, {"client-id": name}, **{BYTES_OUT: 1000.0})
    killed = processes("worker")
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(set(processes("worker")) - set(killed)) == WORKERS, "the workers run again")

    def throttled() -> bool:
        try:
            with client(broker, name) as wire:
                return fetched(wire) > 0
        except (OSError, EOFError):
            return False

    until(throttled, "what dead workers counted still counts")
    (coordinator,) = processes("coordinator")
    os.kill(coordinator, signal.SIGKILL)
    until(throttled, "the limit is in force without a coordinator, or with the next one")
    broker.stop()
    broker.start()
    with Wire.to(broker) as wire:
        wire.client_id = "admin"
        produce(wire, 60_000)
    with client(broker, name) as wire:
        assert fetched(wire) > 15_000


def test_a_consumer_is_limited(broker: Broker, admin: Wire) -> None:
    """Two responses of four seconds' worth pass, as the windows hold ten to eleven; a third does not."""
    with client(broker) as writer, client(broker) as reader:
        produce(writer, 4000)
        request = fetch_request([("t", 0, writer.log_end("t", 0) - 1)], partition_max_bytes=4500)
        set_quota(admin, {"client-id": reader.client_id}, **{BYTES_OUT: 1000.0})
        told = [reader.ask(request, 1, 12) for _ in range(3)]
        assert [each.throttle_time_ms > 0 for each in told] == [False, False, True]
        assert told[1].responses and told[2].responses == []


def create(wire: Wire, version: int, *topics: tuple[str, int], validate_only: bool = False) -> tuple[int, list[int]]:
    make = create_topics.Request
    request = make(
        topics=[make.CreatableTopic(name=name, num_partitions=number, replication_factor=1) for name, number in topics],
        timeout_ms=10_000,
        validate_only=validate_only,
    )
    told = wire.ask(request, create_topics.API_KEY, version)
    return told.throttle_time_ms, [topic.error_code for topic in told.topics]


def test_changes_of_topics_above_the_quota_are_refused_one_by_one(broker: Broker, admin: Wire) -> None:
    with client(broker) as wire:
        set_quota(admin, {"client-id": wire.client_id}, **{MUTATIONS: 1.0})
        throttle_ms, codes = create(wire, 7, ("m-1", 2), ("m-2", 30), ("m-3", 1))
        assert codes == [0, 0, THROTTLING_QUOTA_EXCEEDED] and 25_000 < throttle_ms <= 30_000
    with client(broker, wire.client_id) as wire:
        make = create_partitions.Request
        more = make(topics=[make.CreatePartitionsTopic(name="m-1", count=3, assignments=None)], timeout_ms=1000)
        told = wire.ask(more, create_partitions.API_KEY, 3)
        assert told.results[0].error_code == THROTTLING_QUOTA_EXCEEDED and told.throttle_time_ms > 20_000
    with client(broker, wire.client_id) as wire:
        gone = delete_topics.Request(
            topics=[delete_topics.Request.DeleteTopicState(name="m-1")], topic_names=[], timeout_ms=1000
        )
        told = wire.ask(gone, delete_topics.API_KEY, 6)
        assert told.responses[0].error_code == THROTTLING_QUOTA_EXCEEDED
        assert "quota" in told.responses[0].error_message
    set_quota(admin, {"client-id": wire.client_id}, **{MUTATIONS: None})
    for name in ("m-1", "m-2"):
        admin.delete(name)


@pytest.mark.parametrize("version", [2, 5])
def test_old_clients_are_throttled_after_their_changes(broker: Broker, admin: Wire, version: int) -> None:
    with client(broker) as wire:
        set_quota(admin, {"client-id": wire.client_id}, **{MUTATIONS: 10.0})
        before = time.monotonic()  # the connection is muted after this
        throttle_ms, codes = create(wire, version, (f"o-{version}", 25))
        assert codes == [0] and 300 <= throttle_ms <= 500
        assert wire.metadata("t").throttle_time_ms == 0
        assert time.monotonic() - before > throttle_ms / 1000 - 0.05
        admin.delete(f"o-{version}")


def test_an_address_that_connects_too_often_is_not_served(broker: Broker, admin: Wire) -> None:
    def connect(address: str) -> socket.socket:
        return socket.create_connection((broker.host, broker.port), source_address=(address, 0))

    set_quota(admin, {"ip": "127.0.0.7"}, connection_creation_rate=1.0)
    served = [connect("127.0.0.7") for _ in range(10)]
    for sock in served:
        with Wire.over(sock) as wire:
            assert wire.ask(api_versions.Request(), 18, 0).error_code == 0
    refused = connect("127.0.0.7")
    refused.settimeout(30)
    before = time.monotonic()
    assert refused.recv(1) == b""
    assert 0.0 < time.monotonic() - before < 20
    with Wire.over(connect("127.0.0.8")) as wire:
        assert wire.ask(api_versions.Request(), 18, 0).error_code == 0
    set_quota(admin, {"ip": "127.0.0.7"}, connection_creation_rate=None)
    with Wire.over(connect("127.0.0.7")) as wire:
        assert wire.ask(api_versions.Request(), 18, 0).error_code == 0
    refused.close()


def test_a_throttled_client_does_not_hold_up_others(broker: Broker, admin: Wire) -> None:
    slow = [client(broker, "slow") for _ in range(2 * WORKERS)]
    set_quota(admin, {"client-id": "slow"}, **{BYTES_IN: 100.0})
    assert all(produce(wire, 20_000) > 0 for wire in slow)
    fast = [client(broker) for _ in range(2 * WORKERS)]
    for wire in fast:
        assert produce(wire, 20_000) == 0
    for wire in [*slow, *fast]:
        wire.socket.close()


def test_the_automatic_creation_of_topics_counts_too(broker: Broker, admin: Wire) -> None:
    with client(broker) as wire:
        set_quota(admin, {"client-id": wire.client_id}, **{MUTATIONS: 0.1})
        codes = [topic.error_code for topic in wire.metadata("auto-1", "auto-2", "auto-3", create=True).topics]
        assert codes == [0, LEADER_NOT_AVAILABLE, LEADER_NOT_AVAILABLE]
        set_quota(admin, {"client-id": wire.client_id}, **{MUTATIONS: None})
        assert [topic.error_code for topic in wire.metadata("auto-2", create=True).topics] == [0]
    for name in ("auto-1", "auto-2"):
        admin.delete(name)
