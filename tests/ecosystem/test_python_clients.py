"""Each recipe of docs/develop/python-clients.md is killed once among its records: no result is missing, and none is wrong.

Those of the clients that the tests install anyway run in `make test`; those of frameworks, which are downloaded, each night.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from odradek.testing import Broker
from tests.ecosystem.python_clients import INPUT, OUTPUT, PARTITIONS, PATIENCE_S, RECIPES, Order, Pipeline, Recipe
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("python-clients"), pytest.mark.timeout(900)]

BEFORE_THE_KILL, STEP, AFTER = 300, 40, 400


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    topics = {INPUT: PARTITIONS, OUTPUT: PARTITIONS}
    with Broker({"group.initial.rebalance.delay.ms": 0}, topics, directory=tmp_path / "broker") as started:
        yield started


def numbers(results: list[Order]) -> list[int]:
    return [result["number"] for result in results]


def check(recipe: Recipe, results: list[Order], expected: list[Order]) -> None:
    """Raise AssertionError if a result is missing or wrong, or occurs again although it must not."""
    assert set(numbers(results)) == set(numbers(expected))
    if recipe.exactly_once:
        assert sorted(numbers(results)) == numbers(expected)
    for result in results:
        right = expected[result["number"]]
        if not recipe.exact_totals:  # orders that were counted again
            assert result["total"] >= right["total"]
            result = {**result, "total": right["total"]}
        assert result == right


def until_committed(broker: Broker, group: str) -> None:
    """Wait until the group has committed the ends of the orders' partitions."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    places = [TopicPartition(INPUT, number) for number in range(PARTITIONS)]
    ends = admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()))
    expected = {place.partition: future.result(PATIENCE_S).offset for place, future in ends.items()}

    def committed() -> dict[int, int]:
        (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]).values()
        return {place.partition: place.offset for place in future.result(PATIENCE_S).topic_partitions or []}

    until(lambda: committed() == expected, lambda: f"{group} commits {expected}: {committed()}", PATIENCE_S)


def run(recipe: Recipe, broker: Broker, directory: Path) -> None:
    """Run a recipe's program, kill it while it is given orders, start it again, and check its results."""
    with closing(Pipeline(recipe, broker, directory)) as pipeline:

        def fed(results: list[Order]) -> bool:
            if len(results) >= BEFORE_THE_KILL:
                return True
            if pipeline.written < len(results) + 10 * STEP:  # it always has something to do, and is never far behind
                pipeline.write(STEP)
            return False

        pipeline.write(STEP)
        with pipeline.running() as process:
            pipeline.until(process, fed, "results before the kill")
        pipeline.write(AFTER)
        with pipeline.running() as process:
            pipeline.until(
                process, lambda results: len(set(numbers(results))) == pipeline.written, "a result of each order"
            )
            if recipe.group is not None:
                until_committed(broker, recipe.group)
        check(recipe, pipeline.results(), pipeline.expected())


@pytest.mark.parametrize("recipe", [recipe for recipe in RECIPES if recipe.packages is None], ids=str)
def test_a_killed_client_misses_nothing(recipe: Recipe, broker: Broker, tmp_path: Path) -> None:
    run(recipe, broker, tmp_path)


@pytest.mark.parametrize("recipe", [recipe for recipe in RECIPES if recipe.packages is not None], ids=str)
def test_a_killed_framework_misses_nothing(recipe: Recipe, broker: Broker, tmp_path: Path) -> None:
    run(recipe, broker, tmp_path)
