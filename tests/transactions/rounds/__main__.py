"""Plays rounds and prints the verdict; exit code 0 if nothing was wrong."""

from __future__ import annotations

import argparse
import pickle
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

from tests.transactions.rounds import surroundings
from tests.transactions.rounds.one_round import Plan, Result, play

ANSWER_S = 0.6
"""The time in seconds after which a wire-level client sends a request again."""
IN_A_ROW = 8
"""The number of rounds that a broker serves before a new one with an empty directory starts."""
LOST_POWER = "lose power"
LEVELS = (0, 1, 2)
"""Levels of ``transaction.version`` at which a cluster serves producers of version 1."""


def place(
    options: argparse.Namespace, rng: random.Random, directory: Path
) -> AbstractContextManager[surroundings.Surroundings]:
    """What the next rounds run against."""
    settings = dict(setting.split("=", 1) for setting in options.set)
    if options.peer == "kafka":
        return surroundings.kafka(directory, ANSWER_S, settings)
    if options.brokers == 3:
        from tests.transactions.rounds.cluster import cluster

        level = 2 if options.tv == 2 else rng.choice(LEVELS)
        return cluster(directory, ANSWER_S, settings, level)
    wanted = options.only.split(",") if options.only else []
    power = not surroundings.without_power_cuts() and (wanted == [LOST_POWER] or (not wanted and rng.random() < 0.2))
    make = surroundings.synced_odradek if power else surroundings.odradek
    return make(directory, ANSWER_S, settings)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=1e9, help="end sooner, when this time is over")
    parser.add_argument(
        "--tv", type=int, choices=(1, 2), default=2, help="transaction version of the wire-level producers"
    )
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--peer", choices=("odradek", "kafka"), default="odradek")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--only", default="", help="names of faults, separated by commas")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the brokers")
    parser.add_argument("--go-on", action="store_true", help="play all rounds, even if something was wrong")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    print(f"seed {options.seed}", flush=True)
    if reason := surroundings.without_power_cuts():
        print(f"NO LOSS OF POWER IS TESTED: {reason}")
    ends = time.monotonic() + 60 * options.minutes
    results: list[Result] = []
    kept = Path(tempfile.mkdtemp(prefix="transaction-rounds-"))
    while len(results) < options.rounds and time.monotonic() < ends:
        directory = kept / str(len(results))
        directory.mkdir()
        with place(options, rng, directory) as around:
            names = [name for name in around.faults if not options.only or name in options.only.split(",")]
            plan: list[str] = []
            for _ in range(IN_A_ROW):
                if len(results) >= options.rounds or time.monotonic() > ends:
                    break
                if not plan:
                    plan = rng.sample(names, len(names))
                name = plan.pop()
                number = len(results)
                print(f"{number}: {name} ", end="", flush=True)
                result = play(
                    Plan(
                        around.servers,
                        options.tv,
                        rng.randrange(1 << 32),
                        f"r{number}",
                        around.create,
                        around.delete,
                        around.faults[name],
                        around.attach,
                        answer_s=ANSWER_S,
                    )
                )
                result.errors += around.wrong()
                results.append(result)
                report(result)
                if not result.good and not options.go_on:
                    (kept / "result").write_bytes(pickle.dumps(result))
                    print(f"the files are in {kept}")
                    return summary(results)
    return summary(results)


def report(result: Result) -> None:
    """Print a round."""
    print(
        f"({result.fault}): {result.seconds:.1f} s, {result.transactions} transactions, {result.committed} committed, "
        f"{result.unknown} unknown, {result.records} records"
        + ("" if result.good else f", {len(result.found)} ANOMALIES, {len(result.errors)} ERRORS"),
        flush=True,
    )
    for line in [*map(str, result.found[:20]), *result.errors[:10]]:
        print(f"    {line}", flush=True)


def summary(results: list[Result]) -> int:
    """Print all rounds; the exit code."""
    kinds = Counter(anomaly.kind.value for result in results for anomaly in result.found)
    counts: Counter[str] = Counter()
    for result in results:
        counts.update(result.counts)
    bad = sum(not result.good for result in results)
    print(f"{dict(sorted(counts.items()))}")
    print(
        f"{len(results)} rounds, {sum(r.transactions for r in results)} transactions, "
        f"{sum(r.records for r in results)} records: {bad} rounds with {dict(kinds)} and "
        f"{sum(len(r.errors) for r in results)} errors"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
