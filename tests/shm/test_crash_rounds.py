"""Hundreds of crashes of a log with all kinds of damage that a crash may cause: all synced records survive, and nothing wrong
appears.

ODRADEK_FAULT_ROUNDS makes more rounds, ODRADEK_FAULT_SEED begins them at a seed; a failure names the seed of its round.
"""

import os
import random
from collections import Counter

import pytest

from tests.faults import kafka_dump
from tests.shm.crash_rounds import CrashRound

ROUNDS = max(400, int(os.environ.get("ODRADEK_FAULT_ROUNDS", "0")))
GROUPS, CRASHES = 4, 3
LOGS_DUMPED = 12
SEED = int(os.environ.get("ODRADEK_FAULT_SEED") or random.SystemRandom().randrange(1 << 32))


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.timeout(600 + ROUNDS)
def test_what_was_synced_survives_every_damage_of_a_crash(tmp_path, count_faults, group):
    done = Counter()
    per_group = -(-ROUNDS // (GROUPS * CRASHES))
    seeds = range(SEED + group * per_group, SEED + (group + 1) * per_group)
    print(f"\nODRADEK_FAULT_SEED={seeds[0]} and the {len(seeds) - 1} after it, {CRASHES} crashes each")
    for seed in seeds:
        one = CrashRound(seed, tmp_path / f"{seed}")
        try:
            one.run(CRASHES)
        except BaseException as error:
            error.add_note(f"the round of ODRADEK_FAULT_SEED={seed}")
            raise
        done += one.done
    count_faults(done)


@pytest.mark.java
@pytest.mark.skipif(bool(kafka_dump.missing()), reason=kafka_dump.missing())
def test_kafka_s_dump_finds_recovered_logs_in_order(tmp_path, count_faults):
    done = Counter()
    directories = []
    for seed in range(SEED, SEED + LOGS_DUMPED):
        one = CrashRound(seed, tmp_path / f"{seed}")
        one.run(CRASHES)
        done += one.done
        directories.append(one.directory)
    files, found = kafka_dump.complaints(directories)
    assert not found, (SEED, found[:10])
    done["checks files dumped by Kafka"] = files
    count_faults(done)
