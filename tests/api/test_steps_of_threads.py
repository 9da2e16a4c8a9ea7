"""The largest request of each API that is executed in a thread, in steps: how long one step keeps the other jobs of the thread
waiting. The threads are the store thread of the coordinator, and those of workers for requests that read files.

The event loops are not stopped by such a step: the interpreter interrupts a thread every 5 ms. So the limit of a step is larger
than in a loop: 700,000 instructions, about 20 ms. In a cluster a step of the store thread also waits for ZooKeeper, which takes
milliseconds each time. So its calls are limited as well, and the nodes that they read or write. What a request costs does not
only depend on its number of elements: `BY_VALUE` has those that have few elements and change very many partitions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.api.api import Place
from odradek.api.coordinator_call import CoordinatorCall, CoordinatorView
from odradek.api.row import ApiRow
from odradek.api.table import BY_KEY, function_named
from odradek.controller.broker_settings import BrokerSettings
from odradek.controller.cluster.admin import ClusterAdmin, Reassignment
from odradek.controller.cluster.client_requests import ClientRequests
from odradek.controller.cluster_member import ClusterMember
from odradek.controller.producer_ids import ProducerIds
from odradek.controller.topics import NewTopic
from odradek.protocol.schemas import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    list_partition_reassignments,
)
from odradek.shm.running_config import RunningConfig
from tests.api.coordinator_harness import Harness
from tests.api.largest_requests import LIMITS, largest_requests
from tests.api.request_steps import Brokers, Instructions
from tests.controller.cluster.harness import Cluster
from tests.controller.mortal_cluster import single_broker

STORE_THREAD = frozenset({Place.COORDINATOR, Place.CONTROLLER})
IN_THREADS = 700_000
CALLS, NODES = 60, 1_500
"""The most calls of the metadata store in a step, and the most nodes that they read, write or check."""
LONG_IN_CLUSTER = 1_000
"""The number of elements of a request that needs several steps."""
SIZES, LARGER_SIZES = (2_500, 5_000), (8_000, 16_000)
"""The numbers of elements of two requests; the cost of the largest admissible one follows from the growth between them. The
larger ones decide where the cost of the smaller ones grows only because they fit into a step."""
NOT_TRACED = {
    19: "its response describes all settings of each topic, and to trace that takes minutes; the elements that a step reads "
    "are counted in test_requests_in_steps.py"
}
ROWS = tuple(row for row in BY_KEY.values() if not row.of_brokers)


class ProductInstructions(Instructions):
    """Counts the instructions of the product, not those of the stand-ins of tests."""

    def _trace(self, frame: Any, event: str, argument: Any) -> Any:
        if "/tests/" in frame.f_code.co_filename:
            return None
        return super()._trace(frame, event, argument)


def growth(measure: Callable[[int], dict[Any, float]], limit: int, sizes: tuple[int, int]) -> dict[Any, float]:
    """The expected cost of a request with `limit` elements."""
    few, many = sizes
    if limit <= many:
        return measure(limit)
    before, after = measure(few), measure(many)
    return {key: cost + (cost - before[key]) * (limit - many) / (many - few) for key, cost in after.items()}


def too_long(costs: dict[Any, float]) -> dict[Any, float]:
    return {key: cost for key, cost in costs.items() if cost > IN_THREADS}


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name)
        for row in ROWS
        if (row.place in STORE_THREAD or row.off_loop) and row.served(clustered=False) and row.key not in NOT_TRACED
        if any(largest_requests(row, 1))
    ],
)
def test_no_step_of_the_largest_request_of_a_single_broker_is_long(tmp_path: Path, row: ApiRow) -> None:
    def measure(most: int) -> dict[Any, float]:
        return {
            (largest.label, measured.phase): max(measured.steps)
            for largest in largest_requests(row, most)
            for measured in Brokers(tmp_path, ProductInstructions).measure(row, largest.request, row.max_version)
        }

    limit = LIMITS[row.key]
    if too_long(growth(measure, limit, SIZES)):
        assert too_long(growth(measure, limit, LARGER_SIZES)) == {}


# -- in a cluster -----------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """The cost of a step of the store thread: instructions, calls of the store, nodes that they named."""

    instructions: float
    calls: int
    nodes: int


class _NoMeter(Instructions):
    """Counts nothing, fast."""

    def __enter__(self) -> Instructions:
        return self


class Store:
    """The store thread of the controller of a cluster in memory, with a topic `big`."""

    def __init__(self, harness: Harness, partitions: int) -> None:
        self.cluster = Cluster().start()
        self.calls = self.nodes = 0
        self.steps: list[Step] = []
        self.meter: type[Instructions] = ProductInstructions
        config, table, shm = harness.view.config, harness.view.table, harness.cluster.shm
        self.client = self.cluster.controller._store
        self.admin = ClusterAdmin(self.cluster.controller, config, random.Random(1))
        member = ClusterMember(self.client, config, lambda settings: None, lambda: None, random.Random(1))
        self.view = CoordinatorView(
            config,
            self.client,
            ClientRequests(member, self.admin),
            ProducerIds(self.client, 1),
            table,
            BrokerSettings(self.client, member, config, RunningConfig(), shm),
            self.admin,
        )
        self.admin.create_topics([NewTopic("big", partitions, 2), NewTopic("t", 1, 1)])
        self.cluster.settle()
        self._count_calls()

    def _count_calls(self) -> None:
        def counted(name: str, size: Callable[..., int]) -> None:
            function = getattr(self.client, name)

            def call(*arguments: Any, **named: Any) -> Any:
                self.calls += 1
                self.nodes += size(*arguments)
                return function(*arguments, **named)

            setattr(self.client, name, call)

        counted("_apply", lambda *operations: len(operations))
        counted("get_many", lambda paths, *_: len(paths))
        counted("exists", lambda *_: 1)
        counted("children", lambda *_: 1)

    def execute(self, row: ApiRow, request: Any) -> Any:
        """Execute a request, and what the controller does later because of it. Returns the response."""
        version = row.max_version
        call = CoordinatorCall(version, "tests", "127.0.0.1:1", "User:ANONYMOUS", 0, self.view)
        response = self._step(lambda: function_named(row.handler)(request, call))
        if isinstance(response, Generator):
            steps, ended = response, False
            while not ended:
                ended, response = self._step(lambda: _next(steps))
        more = True
        while more or self.cluster.brokers.waiting:
            self.cluster.brokers.answer()
            more = self._step(self.cluster.controller.process)
        return response

    def _step(self, work: Callable[[], Any]) -> Any:
        self.calls = self.nodes = 0
        with self.meter() as meter:
            result = work()
        self.steps.append(Step(meter.cost, self.calls, self.nodes))
        return result

    @property
    def longest(self) -> Step:
        """The most of each cost in a step."""
        return Step(*map(max, zip(*self.steps, strict=True)))


def _next(steps: Generator[Any, None, Any]) -> tuple[bool, Any]:
    try:
        return False, next(steps)
    except StopIteration as end:
        return True, end.value


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Callable[[int], Store]]:
    with single_broker(tmp_path) as make:
        harness = Harness(make())
        yield lambda partitions: Store(harness, partitions)


IN_CLUSTER = [row for row in ROWS if row.place in STORE_THREAD and row.served(clustered=True)]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in IN_CLUSTER if any(largest_requests(row, 1))])
def test_no_step_of_a_long_request_waits_for_the_store_of_a_cluster_often(
    stores: Callable[[int], Store], row: ApiRow
) -> None:
    for largest in largest_requests(row, LONG_IN_CLUSTER):
        store = stores(1)
        store.meter = _NoMeter
        store.execute(row, largest.request)
        assert store.longest.calls <= CALLS and store.longest.nodes <= NODES, (largest.label, store.longest)


class Large(NamedTuple):
    """A request with a few elements. :param make: returns it. :param before: what is done to the cluster before."""

    make: Callable[[int], Any]
    before: Callable[[Store, int], None] = lambda store, count: None


def _unbalance(store: Store, count: int) -> None:
    """Brokers lead that are not the preferred leaders."""
    tree = store.cluster.tree
    for index in range(count):
        state = tree.state("big", index)
        first, second = store.cluster.partition("big", index).replicas
        tree.put_state("big", index, second, [first, second], state.leader_epoch + 1)
    store.cluster.controller.reconnected()


def _reassign(store: Store, count: int) -> None:
    store.admin.alter_reassignments([Reassignment("big", index, [3, 1, 2]) for index in range(count)])
    store.cluster.settle()


_reassigned = alter_partition_reassignments.Request
NO_VALUE = "its cost depends on the number of its elements, and on what the cluster has"
BY_VALUE: dict[int, Large | str] = {
    19: Large(
        lambda count: create_topics.Request(
            topics=[create_topics.Request.CreatableTopic(name="new", num_partitions=count, replication_factor=2)],
            timeout_ms=1,
        )
    ),
    20: Large(
        lambda count: delete_topics.Request(topics=[delete_topics.Request.DeleteTopicState(name="big")], timeout_ms=1)
    ),
    37: Large(
        lambda count: create_partitions.Request(
            topics=[create_partitions.Request.CreatePartitionsTopic(name="big", count=2 * count, assignments=None)],
            timeout_ms=1,
        )
    ),
    43: Large(lambda count: elect_leaders.Request(election_type=0, topic_partitions=None, timeout_ms=1), _unbalance),
    45: Large(
        lambda count: _reassigned(
            topics=[
                _reassigned.ReassignableTopic(
                    name="big",
                    partitions=[
                        _reassigned.ReassignablePartition(partition_index=index, replicas=[3, 1, 2])
                        for index in range(count)
                    ],
                )
            ],
            timeout_ms=1,
        )
    ),
    46: Large(lambda count: list_partition_reassignments.Request(topics=None, timeout_ms=1), _reassign),
    **dict.fromkeys((21, 32, 33, 34, 44), NO_VALUE),
    **dict.fromkeys((29, 30, 31), f"{NO_VALUE}: tests/controller/test_acls.py"),
    **dict.fromkeys((38, 39, 40, 41), f"{NO_VALUE}: tests/controller/test_delegation_tokens.py"),
    **dict.fromkeys((48, 49), f"{NO_VALUE}: tests/controller/test_quotas.py"),
    **dict.fromkeys((50, 51), f"{NO_VALUE}: tests/controller/test_scram.py"),
    35: "reads the directories of the replicas of this broker, in steps",
    57: "this broker has no features",
    74: "lists what the cluster has",
    20102: f"{NO_VALUE}: tests/metadata/test_group_offsets.py",
}
"""By API: a request with few elements that reads or changes `count` partitions, or the reason why there is none."""
FEW = 500
"""The number of partitions of the smaller one of two requests; it needs several steps."""
OF_WHOLE_TOPIC = 650
"""The most instructions of a step for each partition of a topic: ZooKeeper and clients take some things only for a topic as a
whole, see docs/decisions/0022-what-one-request-may-cost.md."""


def test_each_api_of_the_store_thread_says_whether_few_elements_may_cost_much() -> None:
    assert set(BY_VALUE) == {row.key for row in IN_CLUSTER}


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row.name) for row in IN_CLUSTER if isinstance(BY_VALUE[row.key], Large)]
)
def test_a_request_for_very_many_partitions_does_not_hold_the_store_thread(
    stores: Callable[[int], Store], row: ApiRow
) -> None:
    case = BY_VALUE[row.key]
    assert isinstance(case, Large)

    def measure(count: int) -> Step:
        store = stores(count)
        case.before(store, count)
        response = store.execute(row, case.make(count))
        assert response is not None
        return store.longest

    few, many = measure(FEW), measure(2 * FEW)
    assert many.calls <= CALLS and many.nodes <= NODES
    assert many.calls - few.calls <= 1 and many.nodes - few.nodes <= 10, "they grow with the partitions"
    assert many.instructions - few.instructions <= OF_WHOLE_TOPIC * FEW
    assert few.instructions - OF_WHOLE_TOPIC * FEW <= IN_THREADS
