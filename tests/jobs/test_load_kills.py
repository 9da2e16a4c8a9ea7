"""Loads that are killed with all that they started, and loads whose tasks are killed: each record is there once at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing import Broker
from tests import toolchains
from tests.jobs.killed_loads import TASK, KilledLoads

pytestmark = [pytest.mark.xdist_group("load_kills"), pytest.mark.timeout(3600), pytest.mark.java]

ROUNDS = int(os.environ.get("ODRADEK_LOAD_ROUNDS", "50"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(topics={"orders": 3, "pay": 2}, directory=tmp_path / "broker") as started:
        yield started


def test_killed_loads_are_repeated_and_leave_each_record_once(broker: Broker, tmp_path: Path) -> None:
    loads = KilledLoads(broker, toolchains.spark_kafka_jars(), tmp_path, 16)
    for moment in ("a commit is written", TASK):  # the second run ends
        loads.round(moment)
    loads.compare()
    assert set(loads.killed) == {"a commit is written", TASK}, loads.killed


@pytest.mark.parametrize("table", ["parquet", "delta"])
def test_loads_are_killed_at_all_moments_fifty_times(broker: Broker, tmp_path: Path, table: str) -> None:
    seed = int(os.environ.get("ODRADEK_LOAD_SEED", "1"))
    loads = KilledLoads(broker, toolchains.spark_kafka_jars(), tmp_path, seed, table=table)
    moments = [*loads.moments, TASK]
    for number in range(ROUNDS):
        loads.round(moments[number % len(moments)])
    loads.finish()
    assert sum(loads.killed.values()) >= ROUNDS * 9 // 10, loads.killed
    print(loads.killed)
