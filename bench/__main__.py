"""``python -m bench``: run the rows on both brokers, interleaved, and write the results."""

import argparse
import contextlib
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.brokers import GENERATOR, ROOT, BenchError, Ours, Server, generate, warm_memory
from bench.cluster import CLUSTER, CLUSTER_ROWS
from bench.life import KINDS, LIFE, LIFE_ROWS
from bench.report import table, write
from bench.rows import ROWS, WORKED_BYTES, Row
from bench.security import SECURITY_ROWS, secure
from bench.security import TAG as SECURITY
from bench.security import warm_up as warm_up_security
from bench.transactions import TAG, TRANSACTION_ROWS
from bench.transactions import warm_up as warm_up_transactions

FLOOR_ROUNDS = 3
HOPS = {"deliver": 2, "visible": 3}
"""The number of processes that a record passes through in the rows that measure a wake-up."""
ALL = {row.name: row for row in (*ROWS, *TRANSACTION_ROWS, *SECURITY_ROWS, *LIFE_ROWS, *CLUSTER_ROWS)}
SEPARATE = LIFE | CLUSTER
"""The rows that start their own brokers."""
FORMER = "former"
ONCE = ("many-partitions", "failover")
"""Long rows: one round, and none with ``--quick``."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", help=f"run only these rows, separated by commas: {', '.join(ALL)}")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds per row and broker (default 5)")
    parser.add_argument(
        "--quick", action="store_true", help=f"two rounds, without {' and '.join(ONCE)}; do not write RESULTS.md"
    )
    parser.add_argument("--ours-only", action="store_true", help="measure only Odradek")
    parser.add_argument("--kafka-only", action="store_true", help="measure only Kafka")
    parser.add_argument(
        "--former", type=Path, metavar="DIR", help="measure the built checkout DIR of Odradek instead of Kafka"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "bench", help="directory of the results (default: bench)")
    return parser.parse_args()


def build_generator() -> None:
    subprocess.run(["make", "--no-print-directory", str(GENERATOR.relative_to(ROOT))], cwd=ROOT, check=True)


def floors() -> dict[str, float]:
    """Return what the kernel alone takes in this run: for pwrite and sendfile CPU seconds per GB of plain calls, for the rows
    of `HOPS` the p50 in us of plain wake-ups through as many processes."""
    figures = {}
    for kind in ("pwrite", "sendfile"):
        path = Path(tempfile.gettempdir()) / "odradek-bench-floor"
        seconds = []
        for _ in range(FLOOR_ROUNDS):
            warm_memory(path, WORKED_BYTES)
            result = generate(
                "floor", None, "--kind", kind, "--size", "1048576", "--bytes", str(WORKED_BYTES), "--path", str(path)
            )
            seconds.append(result["generator_cpu_seconds"] * 1e9 / result["bytes"])
        figures[kind] = min(seconds)
    for row, hops in HOPS.items():
        load = ("--hops", str(hops), "--seconds", "1", "--warmup", "0.2")
        figures[row] = min(generate("hops", None, *load)["p50_us"] for _ in range(FLOOR_ROUNDS))
    return figures


def run_rows(
    rows: list[Row], kinds: list[str], rounds: int, secured: bool = False
) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Return the figures by row, broker and round. The brokers run during all rows; each round uses new topics.

    :param secured: whether the brokers have TLS and SASL listeners.
    """
    figures: dict[str, dict[str, list[dict[str, float]]]] = {row.name: {kind: [] for kind in kinds} for row in rows}
    servers: dict[str, Server] = {}
    with contextlib.ExitStack() as ends:
        for kind in kinds:
            server = KINDS[kind](Path(tempfile.mkdtemp(prefix="odradek-bench-")))
            servers[kind] = server
            ends.callback(server.end)
            if secured:
                secure(server)
            server.start()
            server.wait()
            server.check()
        for server in servers.values():
            warm_up(server)
            if any(TAG in row.tags for row in rows):
                say(f"warming up {server.name} with transactions")
                warm_up_transactions(server)
            if secured:
                say(f"warming up {server.name} with TLS and logins")
                warm_up_security(server)
        for row in rows:
            for number in range(rounds):
                for kind, server in servers.items():
                    topic = f"{row.name}-{number}"
                    server.create_topic(topic, row.partitions, **row.configs)
                    server.wait(topic, row.partitions)
                    figures[row.name][kind].append(row.run(server, topic))
                    server.delete_topic(topic)
                    say(f"{row.name} {number + 1}/{rounds} {kind}: {figures[row.name][kind][-1]}")
        for server in servers.values():
            server.stop()
    return figures


def warm_up(server: Server) -> None:
    """Run every kind of load once, unmeasured, so that a JIT compiles the code that will be measured."""
    say(f"warming up {server.name}")
    server.create_topic("warm-up", 4)
    server.wait("warm-up", 4)
    generate(
        "produce",
        server,
        "--topic",
        "warm-up",
        "--partitions",
        "4",
        "--conns",
        "8",
        "--inflight",
        "5",
        "--seconds",
        "6",
    )
    server.delete_topic("warm-up")
    server.create_topic("warm-up-2", 4)
    server.wait("warm-up-2", 4)
    big = ("--topic", "warm-up-2", "--partitions", "4", "--conns", "4")
    generate(
        "produce", server, *big, "--inflight", "3", "--batch-bytes", "65536", "--size", "1000", "--requests", "8000"
    )
    generate("fetch", server, *big, "--bytes", "4000000000")
    server.delete_topic("warm-up-2")
    server.create_topic("warm-up-3", 8)
    server.wait("warm-up-3", 8)
    generate(
        "commit",
        server,
        "--topic",
        "warm-up-3",
        "--partitions",
        "8",
        "--conns",
        "8",
        "--inflight",
        "5",
        "--seconds",
        "12",
    )
    server.delete_topic("warm-up-3")


def run_life(row: Row, kinds: list[str], rounds: int) -> dict[str, list[dict[str, float]]]:
    figures: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for number in range(rounds):
        for kind in kinds:
            figures[kind].append(SEPARATE[row.name](KINDS[kind]))
            say(f"{row.name} {number + 1}/{rounds} {kind}: {figures[kind][-1]}")
    return figures


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def compare(
    rows: list[Row], figures: dict[str, dict[str, list[dict[str, float]]]], peer: str = "Kafka"
) -> list[dict[str, Any]]:
    """Return a line of the table for each target. Beside a former checkout, the targets allow 1 % more, or less."""
    lines = []
    for row in rows:
        for target in row.targets:
            values = {
                kind: (statistics.median if target.middle else min)(
                    [figures_of_round[target.figure] for figures_of_round in rounds]
                )
                for kind, rounds in figures[row.name].items()
                if rounds
            }
            ours, other = values.get("ours"), values.get(peer)
            ratio = ours / other if ours is not None and other else None
            limit, absolute = target.limit, target.absolute
            if peer == FORMER:
                limit, absolute = 0.99 if target.more_is_better else 1.01, None
            met = None
            if ratio is not None and ours is not None:
                met = ratio >= limit if target.more_is_better else ratio <= limit
                met = met and (absolute is None or ours <= absolute)
            lines.append(
                {
                    "row": row.name,
                    "title": row.title,
                    "unit": target.unit,
                    "ours": ours,
                    "kafka": other,
                    "ratio": ratio,
                    "target": f"{'>=' if target.more_is_better else '<='} {limit:g}"
                    + (f" and <= {absolute:g}" if absolute is not None else ""),
                    "met": met,
                    "floor": row.floor if target.figure == "cpu_s" else "",
                }
            )
    return lines


def main() -> int:
    options = arguments()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # an exception, so that both brokers are stopped
    names = options.only.split(",") if options.only else list(ALL)
    unknown = [name for name in names if name not in ALL]
    if unknown:
        say(f"bench: unknown row {', '.join(unknown)}; the rows are {', '.join(ALL)}")
        return 2
    peer = "Kafka"
    if options.former:
        peer = FORMER
        KINDS[FORMER] = type("Former", (Ours,), {"name": FORMER, "checkout": options.former.resolve()})
    kinds = [kind for kind in ("ours", peer) if not (kind == peer and options.ours_only)]
    kinds = [kind for kind in kinds if not (kind == "ours" and options.kafka_only)]
    rounds = 2 if options.quick else options.rounds
    if options.quick and not options.only:
        names = [name for name in names if name not in ONCE]
    build_generator()
    figures: dict[str, dict[str, list[dict[str, float]]]] = {}
    try:
        bare = floors()
        loads = [ALL[name] for name in names if name not in SEPARATE]
        for secured in (False, True):
            chosen = [row for row in loads if (SECURITY in row.tags) is secured]
            if chosen:
                figures |= run_rows(chosen, kinds, rounds, secured)
    except BenchError as error:
        say(f"bench: {error}")
        return 1
    for name in names:
        try:
            if name in SEPARATE:
                figures[name] = run_life(ALL[name], kinds, 1 if name in ONCE else min(rounds, 3))
        except BenchError as error:  # has cost its own row only
            say(f"bench: no figures for {name}: {error}")
    lines = compare([ALL[name] for name in names if name in figures], figures, peer)
    print(table(lines, peer))
    write(lines, figures, bare, rounds, options.out, results=not (options.quick or options.only or options.former))
    return 0 if all(name in figures for name in names) else 1


if __name__ == "__main__":
    sys.exit(main())
