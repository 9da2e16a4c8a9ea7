"""Failures of a cluster under load: nothing that was acknowledged is lost, duplicated or reordered; see `failures`."""

import random
from pathlib import Path

import pytest

from tests.cluster.failures import FAILURES, failing_cluster, lose_power, possible
from tests.faults.lossy_disk import missing

SEED = 20261123
FIRST = ["kill_leader", "stop_in_order", "kill_process", "restore_zookeeper"]
"""The failures that `make test` tests; the others are nightly."""
OTHERS = [
    ["kill_and_start_at_once", "pause_zookeeper", "kill_controller"],
    ["kill_two", "pause_leader", "kill_all"],
    ["restart_zookeeper", "expire_leader", "expire_controller", "expire_all"],
    ["lose_replication", "lose_zookeeper", "lose_broker"],
    ["lose_all_replication", "cut_connections", "fail_log_dir"],
    ["lose_power", "lose_power", "lose_power"],
]
SYNCED = ["lose_power_of_all", "lose_power", "restore_zookeeper", "lose_power_of_all", "kill_all"]
"""Failures of a cluster with flush.messages=1; nightly, too."""


def run(directory: Path, names: list[str], synced: bool = False) -> None:
    """Let a cluster under load suffer failures, one after another. :param synced: see `FailingCluster`."""
    if missing() and not all(possible(name, synced) for name in names):
        pytest.skip(f"NO LOSS OF POWER OF A BROKER OF A CLUSTER IS TESTED: {missing()}")
    rng = random.Random(SEED)
    with failing_cluster(directory, synced=synced) as cluster:
        for name in names:
            FAILURES[name](cluster, rng)
            cluster.wait_until_healed()
        assert synced or cluster.lost_bytes or lose_power.__name__ not in names, "the losses of power took nothing"


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    run(tmp_path, FIRST)


@pytest.mark.parametrize("names", OTHERS, ids="-".join)
def test_nothing_acknowledged_is_lost_by_other_failures(tmp_path: Path, names: list[str]) -> None:
    run(tmp_path, names)


def test_nothing_acknowledged_is_lost_where_records_are_synced(tmp_path: Path) -> None:
    run(tmp_path, SYNCED, synced=True)


def test_every_failure_is_tested() -> None:
    assert {name for names in [FIRST, *OTHERS, SYNCED] for name in names} == set(FAILURES)
