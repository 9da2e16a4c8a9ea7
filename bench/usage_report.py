"""Measures time and memory of the usage report: ``python -m bench.usage_report --hours 24 --topics 10000``.

Makes a spool as the broker writes it (`broker/odradek/metrics/spool.py`): each minute every topic is written or read, so that
every interval has a row for each topic, which is the worst case; all files are compressed. Then it runs the job on the spool in
a separate process, as ``odradek report usage`` does, and samples the memory of the process and its children every 0.2 s: the
maximum of the sum of their proportional set sizes (PSS). The spool and the report are removed at the end.
"""

import argparse
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

FIRST = datetime(2025, 11, 1, tzinfo=UTC)
MINUTES = 60
SINCE_MS = 1_700_000_000_000
BOOT = "0123456789abcdef"


def name_of(topic: int) -> bytes:
    """Return the name of a topic by number."""
    return b"events.domain-%d.stream-%05d" % (topic % 60, topic)


def make_hour(directory: Path, hour: int, topics: int) -> tuple[int, int]:
    """Write the file of one hour; return its size, and the size before compression.

    Counters continue from hour to hour: the traffic of a topic per minute is a rate that differs by topic, with some noise.
    """
    begin_ms = int((FIRST + timedelta(hours=hour)).timestamp() * 1000)
    chance = random.Random(hour)
    paces = [1000 + number * 7919 % 90_000 for number in range(topics)]
    heads = [
        b'{"kind":"usage","page":%d,"principal":"User:team-%d","client":"service-%d","topic":"%s","api":"%s","since":%d,'
        % (n % 2, n % 40, n % 300, name_of(n), b"Fetch" if n % 3 == 0 else b"Produce", SINCE_MS)
        for n in range(topics)
    ]
    content = []
    raw = 0
    for minute in range(MINUTES):
        end_ms = begin_ms + minute * 60_000 + 20_000
        at = hour * MINUTES + minute
        rows = []
        for number, head in enumerate(heads):
            bytes_in = paces[number] * at + chance.randrange(paces[number])
            records = bytes_in // 200
            rows.append(
                b'%s"in":%d,"out":%d,"rin":%d,"rout":%d,"req":%d,"err":0,"thr":0,"conn":0}\n'
                % (head, bytes_in, bytes_in // 3, records, records // 3, records // 10)
            )
        rows += [  # a tenth of the topics' sizes change each minute
            b'{"kind":"topic","topic":"%s","id":"%032x","partitions":6,"bytes":%d,"largest":%d,"end":%d,"start":0,'
            b'"retention_ms":604800000,"retention_bytes":-1}\n'
            % (name_of(number), number, paces[number] * at, paces[number] * at // 4, paces[number] * at // 200)
            for number in range(topics)
            if minute == 0 or number % 10 == at % 10
        ]
        body = b"".join(rows)
        line = {
            "kind": "interval", "boot": BOOT, "broker": 1, "seq": at + 1, "from": end_ms - 60_000, "to": end_ms,
            "rows": len(rows), "crc": zlib.crc32(body), "elapsed": 60_000, "clock": at * 60_000, "full": minute == 0,
        }  # fmt: skip
        content += [body, json.dumps(line, separators=(",", ":")).encode() + b"\n"]
    whole = b"".join(content)
    raw = len(whole)
    name = f"usage-{FIRST + timedelta(hours=hour):%Y%m%dT%H}-{BOOT}.jsonl.gz"
    packed = gzip.compress(whole, 6, mtime=0)
    (directory / name).write_bytes(packed)
    return len(packed), raw


def look(process: int, cpu: dict[int, int]) -> int:
    """Return the memory (PSS, bytes) of a process and all its descendants; put the CPU time of each, in ticks, into `cpu`."""
    parents: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
            used[int(entry.name)] = int(fields[11]) + int(fields[12])
    total, waiting = 0, [process]
    while waiting:
        pid = waiting.pop()
        waiting += parents.get(pid, [])
        cpu[pid] = max(cpu.get(pid, 0), used.get(pid, 0))
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        except OSError:
            continue
    return total


def measure(spool: Path, out: Path, hours: int, memory: str) -> tuple[float, float, int]:
    """Run the job; return its wall clock time and CPU time in seconds, and its maximum memory in bytes."""
    command = [
        sys.executable, "-m", "odradek.jobs.usage_report", "--spool", str(spool), "--out", str(out), "--master", "local[2]",
        "--from", FIRST.isoformat(), "--to", (FIRST + timedelta(hours=hours)).isoformat(), "--memory", memory,
    ]  # fmt: skip
    most = 0
    cpu: dict[int, int] = {}
    begun = time.monotonic()
    with subprocess.Popen(command) as job:
        while job.poll() is None:
            most = max(most, look(job.pid, cpu))
            time.sleep(0.2)
    if job.returncode:
        raise SystemExit(f"the usage report failed with exit code {job.returncode}; see its messages above")
    return time.monotonic() - begun, sum(cpu.values()) / os.sysconf("SC_CLK_TCK"), most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=24, help="hours in the spool (default 24)")
    parser.add_argument("--topics", type=int, default=10_000, help="topics in the spool (default 10000)")
    parser.add_argument("--directory", type=Path, default=None, help="directory for the temporary spool and report")
    parser.add_argument("--memory", default="1g", help="heap size of Spark's driver (default 1g)")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="usage-report-", dir=options.directory))
    try:
        spool = directory / "spool"
        spool.mkdir()
        begun = time.monotonic()
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            hours = range(options.hours)
            sizes = list(pool.map(make_hour, [spool] * options.hours, hours, [options.topics] * options.hours))
        packed, raw = (sum(column) for column in zip(*sizes, strict=True))
        print(
            f"spool: {options.hours} hours of {options.topics} topics, {raw / 1e9:.2f} GB, {packed / 1e9:.2f} GB compressed, "
            f"made in {time.monotonic() - begun:.0f} s", flush=True,
        )  # fmt: skip
        load = os.getloadavg()[0]
        seconds, cpu, most = measure(spool, directory / "out", options.hours, options.memory)
        tables = sum(path.stat().st_size for path in (directory / "out" / "tables").rglob("*.parquet"))
        rate = f"{raw / 1e6 / seconds:.0f} MB/s"
        used = f"{seconds:.0f} s, {cpu:.0f} s of CPU, {rate}, maximum memory {most / 1e6:.0f} MB"
        print(f"job: {used}, tables {tables / 1e6:.1f} MB; load before {load:.1f}")
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
