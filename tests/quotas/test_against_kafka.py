"""The same requests of the same clients to Kafka and to this broker: equal levels, bytes counted, throttle times and errors.

Both measure the time since a client's oldest window, so throttle times may differ by one window and by what lies between the
requests.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from odradek.protocol.schemas import create_partitions, delete_topics, list_groups
from odradek.testing import Broker
from tests.clients.kafka_peer import Peer
from tests.quotas.talk import BYTES_IN, BYTES_OUT, MUTATIONS, TIME, set_quota
from tests.quotas.test_enforced import LEVELS, SELF, create, produce
from tests.waiting import until
from tests.wire import Wire, batch, fetch_request, produce_request

pytestmark = [pytest.mark.xdist_group("quotas-against-kafka"), pytest.mark.timeout(900), pytest.mark.java]

WINDOW_MS = 1000
Ask = Callable[[Wire], Any]
OTHERS: dict[str | None, Wire] = {}
"""A second connection of each client."""


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """Odradek and Kafka."""
    with ExitStack() as stack:
        theirs = stack.enter_context(Peer(tmp_path_factory.mktemp("kafka"), {"auto.create.topics.enable": "false"}))
        ours = stack.enter_context(Broker(directory=tmp_path_factory.mktemp("odradek")))
        host, _, port = theirs.bootstrap_servers.rpartition(":")
        both = (ours.host, ours.port), (host, int(port))
        for address in both:
            with Wire(*address) as wire:
                wire.create("t")
                wire.until_led("t")
        yield both


names = iter(f"compared-{number}" for number in range(10**6))


@contextmanager
def limited(address: tuple[str, int], entity: dict[str, str | None], name: str, **quotas: float) -> Iterator[Wire]:
    """A client whose quotas are in force: Kafka applies them some time after its response."""
    entity = {kind: name if value == SELF else value for kind, value in entity.items()}
    with Wire(*address) as admin, Wire(*address) as wire, Wire(*address) as other:
        admin.client_id, wire.client_id, other.client_id = f"admin-of-{name}", name, name
        OTHERS[name] = other  # connected before the quota exists, so that its first request is not held
        set_quota(admin, entity, **quotas)
        yield wire
        set_quota(admin, entity, **dict.fromkeys(quotas))


def both(
    addresses: tuple[tuple[str, int], tuple[str, int]], entity: dict[str, str | None], ask: Ask, **quotas: float
) -> list[Any]:
    """What both return."""
    name, told = next(names), []
    for address in addresses:
        with limited(address, entity, name, **quotas) as wire:
            told.append(ask(wire))
    return told


def throttle_time(wire: Wire, request: Any, key: int, version: int) -> int:
    """The first throttle time of a client whose quota Kafka applies soon."""
    found: list[int] = []

    def throttled() -> bool:
        found.append(wire.ask(request, key, version).throttle_time_ms)
        return found[-1] > 0

    until(throttled, "the quota is in force")
    return found[-1]


def bytes_counted(wire: Wire, version: int) -> int:
    """By how many ms a further Produce, on another connection, makes the throttle time longer. The limit: a byte per second."""
    topic: Any = "t" if version < 13 else wire.metadata("t").topics[0].topic_id
    request = produce_request([(topic, [(0, batch(bytes(5000)))])])
    first = throttle_time(wire, request, 0, version)
    time_ms: int = OTHERS[wire.client_id].ask(request, 0, version).throttle_time_ms
    return time_ms - first


@pytest.mark.parametrize("number", range(len(LEVELS)))
def test_each_level_counts_the_same_bytes(addresses: Any, number: int) -> None:
    ours, theirs = both(addresses, LEVELS[number], lambda wire: bytes_counted(wire, 9), **{BYTES_IN: 1.0})
    assert abs(ours - theirs) <= 2 * WINDOW_MS and theirs > 5_000_000


@pytest.mark.parametrize("version", range(3, 14))
def test_the_frame_of_a_produce_is_counted(addresses: Any, version: int) -> None:
    ours, theirs = both(addresses, {"client-id": SELF}, lambda wire: bytes_counted(wire, version), **{BYTES_IN: 1.0})
    assert abs(ours - theirs) <= 2 * WINDOW_MS and theirs > 5_000_000


@pytest.mark.parametrize("version", [4, 6, 7, 12, 17])
def test_a_fetch_above_the_limit_is_empty(addresses: Any, version: int) -> None:
    for address in addresses:
        with Wire(*address) as wire:
            for _ in range(3):
                produce(wire, 4000)

    def ask(wire: Wire) -> Any:
        topic: Any = "t" if version < 13 else wire.metadata("t").topics[0].topic_id
        request = fetch_request([(topic, 0, 0)], partition_max_bytes=4500)
        answers: list[Any] = []

        def refused() -> bool:
            answers.append(wire.ask(request, 1, version))
            return answers[-1].responses == []

        until(refused, "the quota is in force")
        return answers[-1].error_code, answers[-1].session_id, (answers[-1].throttle_time_ms > 0) == (version >= 1)

    ours, theirs = both(addresses, {"client-id": SELF}, ask, **{BYTES_OUT: 400.0})
    assert ours == theirs == (0, 0, True)


@pytest.mark.parametrize(("key", "version"), [(3, 9), (16, 4), (18, 3), (18, 1)])
def test_request_time_is_told_in_the_same_responses(addresses: Any, key: int, version: int) -> None:
    from odradek.protocol.schemas import api_versions, metadata

    software = {"client_software_name": "x", "client_software_version": "1"} if version == 3 else {}
    request = {3: metadata.Request(topics=[]), 16: list_groups.Request(), 18: api_versions.Request(**software)}[key]
    ours, theirs = both(
        addresses, {"client-id": SELF}, lambda wire: throttle_time(wire, request, key, version), **{TIME: 1e-5}
    )
    assert ours == theirs == WINDOW_MS


def test_changes_of_topics_are_refused_alike(addresses: Any) -> None:
    def ask(wire: Wire) -> Any:
        name, address = wire.client_id, wire.socket.getpeername()[:2]
        topics = iter(f"{name}-{number}" for number in range(1000))
        codes: list[int] = []

        def exceeded() -> bool:
            with Wire(*address) as other:  # a new one: those that were refused are muted
                other.client_id = name
                codes[:] = create(other, 7, (next(topics), 2))[1]
            return codes == [89]

        until(exceeded, "the quota is in force")
        make = create_partitions.Request
        with Wire(*address) as other:
            other.client_id = name
            more = make(topics=[make.CreatePartitionsTopic(name="t", count=9, assignments=None)], timeout_ms=1000)
            partitions = other.ask(more, create_partitions.API_KEY, 3).results[0]
        with Wire(*address) as other:
            other.client_id = name
            gone = delete_topics.Request.DeleteTopicState(name="t")
            deleted = other.ask(
                delete_topics.Request(topics=[gone], topic_names=[], timeout_ms=10_000), delete_topics.API_KEY, 6
            ).responses[0]
        return (
            codes,
            partitions.error_code,
            deleted.error_code,
        )

    ours, theirs = both(addresses, {"client-id": SELF}, ask, **{MUTATIONS: 0.01})
    assert ours == theirs
