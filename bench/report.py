"""Writes the results as a table, as RESULTS.md and as JSON."""

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.brokers import ROOT, Kafka39


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _verdict(met: bool | None) -> str:
    return "-" if met is None else ("met" if met else "**missed**")


def table(lines: list[dict[str, Any]], peer: str = "Kafka") -> str:
    """Return a Markdown table, one line per compared figure."""
    head = ["measure", "figure", "ours", peer, "ratio", "target", ""]
    rows = [
        [
            line["title"],
            line["unit"],
            _number(line["ours"]),
            _number(line["kafka"]),
            _number(line["ratio"]),
            line["target"],
            _verdict(line["met"]),
        ]
        for line in lines
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def machine() -> dict[str, str]:
    """Return a description of the machine and of the versions."""
    cpu = next(
        (
            row.partition(":")[2].strip()
            for row in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in row
        ),
        "?",
    )
    memory = int(Path("/proc/meminfo").read_text().split()[1]) // 1024 // 1024
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "cpu": f"{cpu}, {os.cpu_count()} cores",
        "memory": f"{memory} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
        "kafka": "4.3.0",
    }


def write(
    lines: list[dict[str, Any]],
    figures: dict[str, Any],
    floors: dict[str, float],
    rounds: int,
    out: Path,
    *,
    results: bool,
) -> None:
    """Write `results.json` and RESULTS.md if all rows were run (`results`), else `last.json`."""
    where = machine()
    content = {"machine": where, "rounds": rounds, "floors": floors, "lines": lines, "figures": figures}
    out.mkdir(parents=True, exist_ok=True)
    (out / ("results.json" if results else "last.json")).write_text(json.dumps(content, indent=1) + "\n")
    if not results:
        return
    missed = [line for line in lines if line["met"] is False]
    text = [
        "# Results",
        "",
        f"{where['date']}, commit {where['commit']}; {where['cpu']}, {where['memory']}, Linux {where['kernel']}, "
        f"Python {where['python']}, against Apache Kafka {where['kafka']} (rows of clusters: {Kafka39.version}, both with "
        f"ZooKeeper) on the same machine in the same run, {rounds} rounds interleaved (10,000 partitions: one). "
        "CPU is the least of the rounds, of all the broker's processes; rates and latencies are medians. "
        "The machine is shared, so compare ratios, not single figures.",
        "",
        table(lines),
        "",
        f"Floor in the same run, in CPU seconds per GB: plain `pwrite` {floors['pwrite']:.3g}, plain `sendfile` "
        f"{floors['sendfile']:.3g}. Plain wake-ups, us p50: a produce to a long poll {floors['deliver']:.3g}, "
        f"an EndTxn to a long poll {floors['visible']:.3g}.",
        "",
        f"{len(lines) - len(missed)} of {len(lines)} figures met their target."
        + (
            " Missed: "
            + "; ".join(f"{line['title']}, {line['unit']}" for line in missed)
            + ". [LIMITS.md](LIMITS.md) says why."
            if missed
            else ""
        ),
        "",
    ]
    (out / "RESULTS.md").write_text("\n".join(text))
