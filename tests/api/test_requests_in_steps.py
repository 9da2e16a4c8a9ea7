"""No step of a handler reads very many elements of its request: between two steps other clients are served.

`CASES` has a request of each API with arrays of very many elements, or the reason why the API needs none. The test counts how
often an element of an array is read in one step, so it does not depend on the speed of the machine.
"""

from collections.abc import Callable, Generator, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.table import BY_KEY, function_named
from odradek.protocol.registry import by_key
from tests.api.coordinator_harness import Harness
from tests.controller.mortal_cluster import single_broker

MANY = 5_000
READ_A_STEP = 1_000
CONVERTED_AT_ONCE = {
    20: "a request has at most 10,000 names; to convert one takes a microsecond",
    32: "a request has at most 10,000 resources; to convert one takes a microsecond",
    33: "a request has at most 10,000 resources; to count one takes a microsecond",
    44: "a request has at most 10,000 resources; to count one takes a microsecond",
    50: "a request has at most 10,000 users; to count one takes a microsecond",
}
"""APIs whose handlers read all elements in their first step, to find those that are named twice."""


class Case(NamedTuple):
    """A request: its schema's structures are passed to `build`."""

    build: Callable[[Any], Any]


def _parts(structure: Any, **fields: Any) -> list[Any]:
    return [structure(partition_index=number, **fields) for number in range(MANY)]


NAMES = [f"n{number}" for number in range(MANY)]
ONE = "names one resource"
NATIVE = "native; tests/api/test_request_limits.py, tests/api/test_parked_fetches.py"
OF_BROKERS = "of brokers only"
GROUPS = "in steps of the loop: tests/api/test_largest_requests.py"
IN_WORKER = "in steps: tests/api/test_request_limits.py"
CASES: dict[int, Case | str] = {
    0: NATIVE,
    1: NATIVE,
    **dict.fromkeys((2, 3, 23, 60, 61, 75, 20103), IN_WORKER),
    **dict.fromkeys((4, 5, 6, 7, 56, 67), OF_BROKERS),
    **dict.fromkeys((8, 9, 15, 16, 42, 47, 68, 69), GROUPS),
    **dict.fromkeys(
        (11, 12, 13, 14, 20101), "names one group, with at most 2,000 members or protocols, or opaque bytes"
    ),
    **dict.fromkeys((17, 18, 36, 22, 25, 26, 38, 39, 40, 57, 20102), ONE),
    **dict.fromkeys((24, 27, 65, 66), "in steps of the loop: tests/api/test_transactions_in_steps.py"),
    28: "native; other requests are executed in steps, as OffsetCommit",
    **dict.fromkeys((29, 30, 31), "in steps: tests/controller/test_acls.py"),
    41: "in steps: tests/controller/test_delegation_tokens.py",
    **dict.fromkeys((48, 49), "in steps: tests/controller/test_quotas.py"),
    51: "one user a step: tests/controller/test_scram.py",
    **dict.fromkeys((45, 46), "of clusters: tests/api/test_steps_of_threads.py"),
    74: "has one list of at most six types of resources that matter",
    10: Case(lambda m: m(key_type=0, coordinator_keys=NAMES)),
    19: Case(
        lambda m: m(
            topics=[m.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES],
            timeout_ms=1,
            validate_only=True,
        )
    ),
    20: Case(lambda m: m(topics=[m.DeleteTopicState(name=name) for name in NAMES], timeout_ms=1)),
    21: Case(
        lambda m: m(
            topics=[m.DeleteRecordsTopic(name="t", partitions=_parts(m.DeleteRecordsPartition, offset=0))], timeout_ms=1
        )
    ),
    32: Case(
        lambda m: m(
            resources=[
                m.DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=["retention.ms"])
                for name in NAMES
            ]
        )
    ),
    33: Case(
        lambda m: m(
            resources=[m.AlterConfigsResource(resource_type=2, resource_name=name, configs=[]) for name in NAMES],
            validate_only=True,
        )
    ),
    34: Case(
        lambda m: m(
            dirs=[
                m.AlterReplicaLogDir(
                    path="/x", topics=[m.AlterReplicaLogDirTopic(name="t", partitions=list(range(MANY)))]
                )
            ]
        )
    ),
    35: Case(lambda m: m(topics=[m.DescribableLogDirTopic(topic="t", partitions=list(range(MANY)))])),
    37: Case(
        lambda m: m(
            topics=[m.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in NAMES],
            timeout_ms=1,
            validate_only=True,
        )
    ),
    43: Case(
        lambda m: m(
            election_type=0,
            topic_partitions=[m.TopicPartitions(topic="t", partitions=list(range(MANY)))],
            timeout_ms=1,
        )
    ),
    44: Case(
        lambda m: m(
            resources=[m.AlterConfigsResource(resource_type=2, resource_name=name, configs=[]) for name in NAMES],
            validate_only=True,
        )
    ),
    50: Case(lambda m: m(users=[m.UserName(name=name) for name in NAMES])),
}


def test_every_api_has_a_case_or_a_reason() -> None:
    assert BY_KEY.keys() == CASES.keys()


class Counter:
    """How many elements were read since the last step."""

    def __init__(self) -> None:
        self.reads = 0


class CountedList(list[Any]):
    """A list that counts the elements that are read from it."""

    counter: Counter

    def __iter__(self) -> Iterator[Any]:
        for element in super().__iter__():
            self.counter.reads += 1
            yield element


def counted(message: Any, counter: Counter) -> Any:
    """Replace all lists in a message."""
    for field in type(message).__slots__:
        value = getattr(message, field, None)
        if isinstance(value, list):
            elements = CountedList(
                [counted(element, counter) if hasattr(element, "__slots__") else element for element in value]
            )
            elements.counter = counter
            setattr(message, field, elements)
    return message


@pytest.fixture
def harness(tmp_path: Any) -> Iterator[Harness]:
    with single_broker(tmp_path) as make:
        yield Harness(make())


@pytest.mark.parametrize("key", [key for key, case in CASES.items() if isinstance(case, Case)])
def test_no_step_reads_very_many_elements(key: int, harness: Harness) -> None:
    row = BY_KEY[key]
    case = CASES[key]
    assert isinstance(case, Case)
    counter = Counter()
    request = counted(case.build(by_key(key).request), counter)
    if row.in_worker:
        call: Any = SimpleNamespace(
            version=row.max_version,
            view=SimpleNamespace(
                topics=SimpleNamespace(get=lambda name: SimpleNamespace(published_count=lambda: 0)), brokers=None
            ),
        )
    else:
        call = CoordinatorCall(row.max_version, "tests", "127.0.0.1:1", "User:ANONYMOUS", 0, harness.view)
    steps = function_named(row.handler)(request, call)
    assert isinstance(steps, Generator)
    longest, first, number = 0, True, 0
    while True:
        counter.reads = 0
        number += 1
        try:
            next(steps)
        except StopIteration:
            break
        if not (first and key in CONVERTED_AT_ONCE):
            longest = max(longest, counter.reads)
        first = False
    assert number >= MANY // READ_A_STEP - 1
    assert longest <= READ_A_STEP + 10  # and the elements that contain them
