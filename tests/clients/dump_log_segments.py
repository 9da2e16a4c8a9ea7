"""Runs Kafka's DumpLogSegments on a data directory, and parses its output.

Runs in the test process, one JVM per call for as many files as a command line takes. The broker must not write meanwhile.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests import toolchains

#: Words of the tool's complaints and of a JVM's errors. No other line of the output contains one of them.
COMPLAINTS = re.compile(
    r"mismatch|invalid|Found |isvalid: false|Exception|\tat |Could not|corrupt|\bfail|Error",
    re.IGNORECASE,
)

LOGGING = ("SLF4J:", "log4j:")
"""How lines begin with which the libraries for logging of Kafka 3.9 complain of one another."""

_BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*producerId: (-?\d+) .*partitionLeaderEpoch: (-?\d+) .*"
    r"compresscodec: (\w+) .*isvalid: true"
)
_RECORD = re.compile(r"^\| offset: (\d+) ")
_MAX_ARGUMENT_BYTES = 100_000  # Linux takes 128 KiB in one argument


@dataclass(frozen=True)
class Batch:
    """A record batch as the tool saw it."""

    base_offset: int
    last_offset: int
    count: int
    producer_id: int
    leader_epoch: int
    codec: str


@dataclass
class Dump:
    """The output of the tool for one file.

    Args:
        lines: all lines after the line that names the file.
        batches: of a `.log` file, its batches.
        offsets: of a `.log` file, the offset of every record inside of the batches.
    """

    lines: list[str] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)


def files_of(data_dir: Path, suffix: str) -> list[Path]:
    """Return the files `*SUFFIX` of all partitions, relative to `data_dir`, without those of Kafka's own metadata log."""
    return sorted(
        path.relative_to(data_dir)
        for path in data_dir.glob(f"*-*/*{suffix}")
        if not path.parent.name.startswith("__cluster_metadata") and not path.parent.name.endswith("-delete")
    )


def dump(
    data_dir: Path, files: list[Path], *options: str, version: str = toolchains.KAFKA_VERSION
) -> tuple[dict[Path, Dump], list[str]]:
    """Run DumpLogSegments over `files`.

    Args:
        data_dir: where to run it.
        files: relative to `data_dir`.
        options: such as `--deep-iteration`.
        version: of the tool.

    Returns:
        the output for each file, and every line of the output, including standard error, that is a complaint.
    """
    dumps: dict[Path, Dump] = {}
    complaints = []
    for share in _shares(files):
        command = toolchains.java_command(_class_of(version), *options, "--files", ",".join(share), version=version)
        done = subprocess.run(
            command, cwd=data_dir, capture_output=True, encoding="utf-8", errors="replace", timeout=300
        )
        complaints += _complaints((done.stdout + done.stderr).splitlines())
        if done.returncode != 0:
            complaints.append(f"DumpLogSegments ended with {done.returncode}")
        current = Dump()
        for line in done.stdout.splitlines():
            if line.startswith("Dumping "):
                current = dumps.setdefault(Path(line.removeprefix("Dumping ")), Dump())
                continue
            current.lines.append(line)
            if batch := _BATCH.match(line):
                first, last, count, producer_id, epoch = (int(batch[group]) for group in range(1, 6))
                current.batches.append(Batch(first, last, count, producer_id, epoch, batch[6].lower()))
            elif record := _RECORD.match(line):
                current.offsets.append(int(record[1]))
    return dumps, complaints


def _class_of(version: str) -> str:
    return f"{'kafka' if version.startswith('3.') else 'org.apache.kafka'}.tools.DumpLogSegments"


def _complaints(lines: list[str]) -> list[str]:
    """Return the lines that object to something.

    The tool of 4.3 complains about the first offset of a segment, unless it is 0, because it does not follow -1. This complaint
    is dropped if the first offset equals the offset in the file's name.
    """
    complaints: list[str] = []
    file = ""
    for line in lines:
        if match := re.match(r"Non-consecutive offsets in (.*)", line):
            file = match[1]
        elif match := re.match(r" *-1 is followed by (\d+)", line):
            if int(match[1]) != int(Path(file).stem):
                complaints.append(f"{file}: {line}")
        elif match := re.match(r" *-?\d+ is followed by \d+", line):
            complaints.append(f"{file}: {line}")
        elif COMPLAINTS.search(line) and not line.startswith(LOGGING):
            complaints.append(line)
    return complaints


def _shares(files: list[Path]) -> Iterator[list[str]]:
    share: list[str] = []
    for name in map(str, files):
        if share and sum(map(len, share)) + len(share) + len(name) > _MAX_ARGUMENT_BYTES:
            yield share
            share = []
        share.append(name)
    if share:
        yield share
