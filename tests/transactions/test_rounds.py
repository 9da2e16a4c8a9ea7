"""Rounds of clients under faults, with the checker after each: a few for `make test`, and more at night.

`python -m tests.transactions.rounds` runs as many as one wants.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.transactions.rounds import surroundings
from tests.transactions.rounds.cluster import cluster
from tests.transactions.rounds.one_round import Plan, play
from tests.transactions.rounds.surroundings import Surroundings

pytestmark = [pytest.mark.xdist_group("rounds"), pytest.mark.timeout(1800)]

SEED = 20261124
ANSWER_S = 0.6
FEW = [("kill coordinator", 2), ("delay", 2), ("lose answers", 1), ("kill worker", 1)]
"""The faults of the rounds of `make test`, with the transaction version of the wire-level producers."""
MANY = [(fault, version) for version in (1, 2) for fault in surroundings.OF_ONE_BROKER]
FEW_IN_CLUSTER = [("lose_zookeeper", 1), ("kill_leader", 2)]
"""A short selection: a coordinator that is deposed and does not know it, and one that dies."""
IN_CLUSTER = [
    ("kill_leader", 2), ("delay", 1), ("pause_leader", 2), ("lose_broker", 1), ("kill_controller", 1), ("kill_all", 2),
    ("kill_process", 2), ("lose_power", 2),
]  # fmt: skip


def run(around: Surroundings, rounds: list[tuple[str, int]]) -> None:
    """Play rounds; nothing may be wrong."""
    rng = random.Random(SEED)
    for number, (fault, version) in enumerate(rounds):
        if fault not in around.faults:
            print(f"NOT TESTED HERE: {fault}")
            continue
        plan = Plan(
            around.servers, version, rng.randrange(1 << 32), f"r{number}", around.create, around.delete,
            around.faults[fault], around.attach, answer_s=ANSWER_S,
        )  # fmt: skip
        result = play(plan)
        wrong = [*map(str, result.found), *result.errors, *around.wrong()]
        assert wrong == [], f"round {number}, {fault}, TV{version}, {result.fault}:\n" + "\n".join(wrong)


def test_nothing_is_torn_lost_or_doubled(tmp_path: Path) -> None:
    with surroundings.odradek(tmp_path, ANSWER_S) as around:
        run(around, FEW)


def test_nothing_is_torn_lost_or_doubled_by_any_fault(tmp_path: Path) -> None:
    with surroundings.odradek(tmp_path, ANSWER_S) as around:
        run(around, MANY)


def test_nothing_is_torn_lost_or_doubled_by_losses_of_power(tmp_path: Path) -> None:
    if reason := surroundings.without_power_cuts():
        pytest.skip(f"NO LOSS OF POWER UNDER TRANSACTIONS IS TESTED: {reason}")
    with surroundings.synced_odradek(tmp_path, ANSWER_S) as around:
        run(around, [("lose power", 2), ("lose power", 1)] * 3)


def test_nothing_is_torn_lost_or_doubled_in_a_cluster(tmp_path: Path) -> None:
    with cluster(tmp_path, ANSWER_S) as around:
        run(around, FEW_IN_CLUSTER)


def test_nothing_is_torn_lost_or_doubled_in_a_cluster_by_more_faults(tmp_path: Path) -> None:
    with cluster(tmp_path, ANSWER_S) as around:
        run(around, IN_CLUSTER)
