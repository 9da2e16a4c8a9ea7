"""``python -m bench.request_steps``: the processor time of the longest step of the largest request of each API, as a table.

The requests are those of `tests/api/test_largest_requests.py`, with as many elements as the limits of the default configuration
allow. Where requests are executed in turns of a loop, other clients wait for the longest step; where they are executed in a
thread, only other requests of that thread do. The lowest of three runs; run it on a quiet machine. Arguments: API keys, to
measure only these.
"""

import gc
import sys
import tempfile
from pathlib import Path
from typing import Any

from odradek.api.row import ApiRow
from odradek.processes.supervisor.running_broker import COLLECTIONS
from tests.api.largest_requests import largest_requests
from tests.api.request_steps import Brokers, CpuTime
from tests.api.test_largest_requests import EXEMPT, ROWS, VERSIONS

PHASES = ("decode", "guard", "handler", "response")
RUNS = 3


def longest_steps(row: ApiRow, request: Any, version: int) -> dict[str, float]:
    """The processor time in ms of the longest step of each phase."""
    gc.collect()
    gc.freeze()  # the objects of the measurement itself
    with tempfile.TemporaryDirectory() as directory:
        return {phase: max(steps) for phase, steps in Brokers(Path(directory), CpuTime).measure(row, request, version)}


def main() -> None:
    """Print a row for each request."""
    wanted = {int(key) for key in sys.argv[1:]}
    gc.set_threshold(*COLLECTIONS)
    print("| request | executed by | " + " | ".join(f"{phase} ms" for phase in PHASES) + " |")
    print("| --- | --- " + "| ---: " * len(PHASES) + "|")
    for row in ROWS:
        if row.of_brokers or row.key in EXEMPT or (wanted and row.key not in wanted):
            continue
        for version in VERSIONS.get(row.key, (row.max_version,)):
            for largest in largest_requests(row, version=version):
                runs = [longest_steps(row, largest.request, version) for _ in range(RUNS)]
                longest = {phase: min(run[phase] for run in runs) for phase in runs[0]}
                figures = " | ".join(f"{longest[phase]:.1f}" if phase in longest else "" for phase in PHASES)
                print(f"| {row.name} v{version}, {largest.label} | {row.place.value} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
