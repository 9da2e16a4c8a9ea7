"""Threads of the coordinator that can hold the lock of a slot at the same time have different lanes [R 5.4]."""

import re
from pathlib import Path

import odradek.processes.coordinator.coordinator
from odradek._ext.shm.locks import Lane
from odradek.processes.coordinator.internal_topics.coordinated_topic import (
    GROUP_LOAD_LANE,
    TRANSACTION_LOAD_LANE,
)
from odradek.replication.fetchers import FIRST_LANE

WITHOUT_LOCKS = {"security/token_credentials.py": "computes credentials of tokens"}
"""Files of this package with a pool of threads that takes no lock of a slot, and what the threads do."""


def test_the_lanes_of_the_threads_that_load_are_their_own() -> None:
    own = [GROUP_LOAD_LANE, TRANSACTION_LOAD_LANE]
    assert len(set(own)) == len(own) and not set(own) & {*map(int, Lane)}
    assert min(own) >= FIRST_LANE  # after the threads that sync; the fetchers are those of another process


def test_each_pool_of_threads_enters_a_lane_or_takes_no_lock() -> None:
    without = set()
    package = Path(odradek.processes.coordinator.__file__ or "").parent
    for path in package.rglob("*.py"):
        for pool in re.findall(r"ThreadPoolExecutor\(([^()]*)", path.read_text()):
            if "enter_lane" not in pool and "initializer" not in pool:
                without.add(str(path.relative_to(package)))
    assert without == set(WITHOUT_LOCKS)
