"""Measures time and memory of the usage report: ``python -m bench.usage_report --hours 24 --topics 10000``.

Makes a spool as the broker writes it (`broker/odradek/metrics/spool.py`): each minute every topic is written or read, so that
every interval has a row for each topic, which is the worst case; all files are compressed. With ``--disk-added HOUR`` the
broker has a second log directory from that hour on, to which every second topic moves within six hours. Then it runs the job
on the spool in a separate process, as ``odradek report usage`` does, and samples the memory of the process and its children
every 0.2 s: the maximum of the sum of their proportional set sizes (PSS). It compares the figures of the report with what it
wrote. The spool and the report are removed at the end.
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
from functools import partial
from pathlib import Path

FIRST = datetime(2025, 11, 1, tzinfo=UTC)
DISK_BYTES = 40 * 10**12
MOVING_HOURS = 6
SINCE_MS = 1_700_000_000_000
BOOT = "0123456789abcdef"


def name_of(topic: int) -> bytes:
    """Return the name of a topic by number."""
    return b"events.domain-%d.stream-%05d" % (topic % 60, topic)


def pace_of(topic: int) -> int:
    """Return the bytes that the topic gets in a minute."""
    return 1000 + topic * 7919 % 90_000


def moved_share(hour: int, added: int | None) -> float:
    """Return the share of the moving topics' bytes that is on the second disk at the end of an hour."""
    return 0.0 if added is None else min(1.0, max(0, hour + 1 - added) / MOVING_HOURS)


def disk_rows(hour: int, at: int, topics: int, added: int | None) -> list[bytes]:
    """Return the rows of the log directories, and if there are two, of each topic's bytes in each of them."""
    moved = moved_share(hour, added)
    used = [0, 0]
    rows = []
    for number in range(topics):
        size = pace_of(number) * at
        there = round(size * moved) if number % 2 else 0
        used[0] += size - there
        used[1] += there
        if added is not None and hour >= added:
            rows += [
                b'{"kind":"stored","topic":"%s","path":"/data/%s","bytes":%d}\n' % (name_of(number), path, held)
                for path, held in ((b"a", size - there), (b"b", there))
                if held
            ]
    disks = used if added is not None and hour >= added else used[:1]
    for path, held in zip((b"a", b"b"), disks, strict=False):
        row = b'{"kind":"log_dir","path":"/data/%s","free":%d,"total":%d,"online":true}\n'
        rows.append(row % (path, DISK_BYTES - held, DISK_BYTES))
    return rows


def make_hour(directory: Path, hour: int, topics: int, intervals: int, added: int | None) -> tuple[int, int]:
    """Write the file of one hour; return its size, and the size before compression.

    Counters continue from hour to hour: the traffic of a topic per minute is a rate that differs by topic, with some noise.
    """
    begin_ms = int((FIRST + timedelta(hours=hour)).timestamp() * 1000)
    step = 60 // intervals
    chance = random.Random(hour)
    paces = [pace_of(number) for number in range(topics)]
    heads = [
        b'{"kind":"usage","page":%d,"principal":"User:team-%d","client":"service-%d","topic":"%s","api":"%s","since":%d,'
        % (n % 2, n % 40, n % 300, name_of(n), b"Fetch" if n % 3 == 0 else b"Produce", SINCE_MS)
        for n in range(topics)
    ]
    content = []
    raw = 0
    for interval in range(intervals):
        end_ms = begin_ms + interval * step * 60_000 + 20_000
        at = (hour * intervals + interval) * step
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
            b'"retention_ms":-1,"retention_bytes":-1}\n'
            % (name_of(number), number, paces[number] * at, paces[number] * at // 4, paces[number] * at // 200)
            for number in range(topics)
            if interval == 0 or number % 10 == at % 10
        ]
        if interval == 0:
            rows += disk_rows(hour, at, topics, added)
        body = b"".join(rows)
        line = {
            "kind": "interval", "boot": BOOT, "broker": 1, "seq": hour * intervals + interval + 1,
            "from": end_ms - step * 60_000, "to": end_ms, "rows": len(rows), "crc": zlib.crc32(body),
            "elapsed": step * 60_000, "clock": at * 60_000, "full": interval == 0,
        }  # fmt: skip
        content += [body, json.dumps(line, separators=(",", ":")).encode() + b"\n"]
    whole = b"".join(content)
    raw = len(whole)
    name = f"usage-{FIRST + timedelta(hours=hour):%Y%m%dT%H}-{BOOT}.jsonl.gz"
    packed = gzip.compress(whole, 6, mtime=0)
    (directory / name).write_bytes(packed)
    return len(packed), raw


def shown_at(number: int, hours: int, intervals: int) -> int:
    """Return the minute of the size of a topic that the spool has last."""
    step = 60 // intervals
    minutes = range((hours - 1) * 60, hours * 60, step)
    return max(at for at in minutes if at == minutes[0] or number % 10 == at % 10)


def differences(out: Path, hours: int, topics: int, intervals: int, added: int | None) -> list[str]:
    """Return a line for each figure of the summary that differs from what was written, and for each wrong forecast."""
    found = json.loads((out / "report.json").read_text())
    at = (hours - 1) * 60
    every = [pace_of(number) for number in range(topics)]
    stored = sum(pace * shown_at(number, hours, intervals) for number, pace in enumerate(every))
    moved = sum(every[1::2]) if added is not None and hours - 1 >= added + MOVING_HOURS else 0
    disks = {"/data/a": (sum(every) - moved) * at}
    disks |= {"/data/b": moved * at} if moved else {}
    wrong = []
    for name, value, wanted, off in (
        ("stored_bytes", found["stored_bytes"], stored, 0),
        ("topics", found["topics"], topics, 0),
        ("hours without data", found["missing"]["hours"], 0, 0),
        # at most a minute of noise
        ("bytes_in", found["traffic"]["bytes_in"], sum(every) * (hours * 60 - 60 // intervals), sum(every)),
        ("log directories", len(found["disks"]), len(disks), 0),
    ):
        if not abs(value - wanted) <= off:
            wrong.append(f"{name}: {value}, expected {wanted}")
    for disk in found["disks"]:
        used = disks.get(disk["log_dir"])
        if used is None:
            wrong.append(f"{disk['log_dir']}: expected {', '.join(disks)}")
            continue
        if disk["total_bytes"] - disk["free_bytes"] != used:
            wrong.append(
                f"{disk['log_dir']}: {disk['total_bytes'] - disk['free_bytes']} bytes are used, expected {used}"
            )
        if disk["no_forecast"] is None:
            days = (DISK_BYTES - 256 * 2**20 - used) / (used / at * 1440)
            until = disk["days_until_full"]
            if until["median"] is None or abs(until["median"] - days) > 0.05 * days + 1:
                wrong.append(f"{disk['log_dir']}: {until} days until full, expected {days:.1f}")
    return wrong


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
    parser.add_argument("--intervals", type=int, default=60, help="intervals of an hour, a divisor of 60 (default 60)")
    parser.add_argument(
        "--disk-added", type=int, metavar="HOUR", help="hour in which the second log directory is added"
    )
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
            make = partial(
                make_hour, spool, topics=options.topics, intervals=options.intervals, added=options.disk_added
            )
            sizes = list(pool.map(make, hours))
        packed, raw = (sum(column) for column in zip(*sizes, strict=True))
        print(
            f"spool: {options.hours} hours of {options.topics} topics, {raw / 1e9:.2f} GB, {packed / 1e9:.2f} GB compressed, "
            f"made in {time.monotonic() - begun:.0f} s", flush=True,
        )  # fmt: skip
        load = os.getloadavg()[0]
        seconds, cpu, most = measure(spool, directory / "out", options.hours, options.memory)
        for line in differences(
            directory / "out", options.hours, options.topics, options.intervals, options.disk_added
        ):
            print(f"WRONG: {line}")
        page = (directory / "out" / "report.html").stat().st_size
        tables = sum(path.stat().st_size for path in (directory / "out" / "tables").rglob("*.parquet"))
        rate = f"{raw / 1e6 / seconds:.0f} MB/s"
        used = f"{seconds:.0f} s, {cpu:.0f} s of CPU, {rate}, maximum memory {most / 1e6:.0f} MB"
        print(f"job: {used}, tables {tables / 1e6:.1f} MB, page {page / 1e6:.1f} MB; load before {load:.1f}")
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
