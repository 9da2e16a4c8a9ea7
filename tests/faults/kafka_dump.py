"""Kafka's DumpLogSegments reads the files that this broker wrote and recovered without errors."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

PEER = Path(os.environ.get("KAFKA_PEER", Path(__file__).parents[3] / "shared/peers/kafka/kafka"))
COMPLAINTS = ("Mismatch", "mismatch", "Found", "rror", "xception", "isvalid: false")
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def missing() -> str:
    """The reason why it cannot run here; empty if it can."""
    return "" if PEER.exists() and shutil.which("java") else f"no Kafka at {PEER}, or no java"


def complaints(directories: Sequence[Path]) -> tuple[int, list[str]]:
    """The number of checked files of these partitions, including records, and the lines with errors."""
    files = [path for one in directories for path in sorted(one.glob("0*")) if path.suffix in SUFFIXES]
    found = []
    for at in range(0, len(files), 400):  # one command line takes no more
        listed = ",".join(map(str, files[at : at + 400]))
        done = subprocess.run(
            [PEER, "run", "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", listed],
            capture_output=True,
            text=True,
            env={**os.environ, "KAFKA_HEAP": "-Xms128m -Xmx512m"},
            check=False,
            timeout=240,
        )
        if done.returncode:
            found.append(done.stderr[-2000:])
        found += [line for line in done.stdout.splitlines() if any(word in line for word in COMPLAINTS)]
    return len(files), found
