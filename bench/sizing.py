"""Measures the figures of docs/operate/capacity.md that the benchmark does not measure: `python -m bench.sizing`.

It prints a table within a minute, and starts brokers of this checkout only, with two workers. Memory is the proportional set
size of all processes of the broker, CPU time that of all its processes, disk space the allocated blocks of its log directory.
Other load on the machine falsifies the times.
"""

import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from bench.brokers import cpu_ns
from odradek.testing import Broker
from odradek.testing.process_tree import descendants

IDLE_S = 20.0
CONNECTIONS = (1000, 4000)
PARTITIONS = 1000
TOPICS = 5
BATCH_BYTES, BULK_BYTES = 1 << 20, 1_000_000_000
SETTINGS = {"num.network.threads": 2, "metrics.listener": "127.0.0.1:0", "offsets.topic.num.partitions": 1}
REPORTER = {"usage.spool.max.bytes": str(64 << 20)}
Row = tuple[str, str]


def pids(broker: Broker) -> list[int]:
    return [broker.pid, *descendants(broker.pid)]


def memory(broker: Broker) -> int:
    """Bytes of proportional set size."""
    return int(broker.status()["pss_bytes"])


def disk(path: Path) -> int:
    """Bytes that the files and directories take on the disk."""
    return sum(file.lstat().st_blocks * 512 for file in [path, *path.rglob("*")])


def idle_cpu(broker: Broker) -> float:
    """Milliseconds of CPU time per second without a request."""
    before = cpu_ns(pids(broker))
    time.sleep(IDLE_S)
    return (cpu_ns(pids(broker)) - before) / 1e6 / IDLE_S


def idle() -> Iterator[Row]:
    """A broker without topics, and with idle connections."""
    with Broker(SETTINGS | REPORTER) as broker, ExitStack() as stack:
        at_rest = memory(broker)
        yield "memory of a broker without topics", f"{at_rest / 1e6:.0f} MB"
        yield "CPU of a broker without topics", f"{idle_cpu(broker):.1f} ms per second"
        last = (0, at_rest)
        for count in CONNECTIONS:
            while last[0] < count:
                stack.enter_context(socket.create_connection((broker.host, broker.port)))
                last = (last[0] + 1, last[1])
            while broker.status()["connections"] < count:
                time.sleep(0.05)
            now = memory(broker)
            yield f"memory of {count:,} idle connections", f"{(now - at_rest) / count / 1e3:.2f} kB each"


def partitions() -> Iterator[Row]:
    """Partitions, empty and with a record each."""
    with Broker(SETTINGS | REPORTER) as broker:
        memory_before, disk_before = memory(broker), disk(broker.data_dir)
        for number in range(TOPICS):
            command(broker, "topic", "create", f"topic{number}", "-p", str(PARTITIONS))
        count = TOPICS * PARTITIONS
        yield f"memory of {count:,} empty partitions", f"{(memory(broker) - memory_before) / count / 1e3:.2f} kB each"
        yield (
            f"disk of {count:,} empty partitions",
            f"{(disk(broker.data_dir) - disk_before) / count / 1e3:.1f} kB each",
        )
        yield f"CPU of a broker with {count:,} idle partitions", f"{idle_cpu(broker):.1f} ms per second"
        broker.stop()
        began = time.monotonic()
        broker.start()
        yield f"start with {count:,} partitions after an ordered stop", f"{time.monotonic() - began:.2f} s"


def backups() -> Iterator[Row]:
    """Backup, verification and restore of a gigabyte in the page cache."""
    with Broker(SETTINGS, {"bulk": 4}) as broker, tempfile.TemporaryDirectory() as directory:
        lines = b"".join(b"%015d-%s\n" % (number, b"x" * 1000) for number in range(1000))
        producing = subprocess.Popen(
            [sys.executable, "-m", "odradek.cli.main", "produce", "-b", broker.bootstrap_servers, "bulk", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert producing.stdin is not None
        for _ in range(BULK_BYTES // len(lines)):
            producing.stdin.write(lines)
        producing.stdin.close()
        if producing.wait() != 0:
            raise SystemExit("the records could not be written")
        target = Path(directory, "backup")
        size = sum(file.stat().st_size for file in broker.data_dir.rglob("*.log"))
        for title, arguments in (
            ("backup", ["create", str(target), "--data-dir", str(broker.data_dir)]),
            ("verification of a backup", ["verify", str(target)]),
            ("restore", ["restore", str(target), "--into", str(Path(directory, "data"))]),
        ):
            began, cpu = time.monotonic(), children_s()
            command(broker, "backup", *arguments)
            elapsed, used = time.monotonic() - began, children_s() - cpu
            yield f"{title} of {size / 1e9:.1f} GB", f"{elapsed:.1f} s, {used / (size / 1e9):.1f} s CPU per GB"
        began = time.monotonic()
        with Broker(SETTINGS | {"log.dirs": f"{directory}/data"}):
            yield f"first start after the restore of {size / 1e9:.1f} GB", f"{time.monotonic() - began:.1f} s"
        broker.kill_group()
        began = time.monotonic()
        broker.start()
        yield f"start with recovery of {size / 1e9:.1f} GB after kill -9", f"{time.monotonic() - began:.1f} s"


def children_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def command(broker: Broker, *arguments: str) -> None:
    """Run the command on the broker. Raises CalledProcessError."""
    environment = os.environ | {"ODRADEK_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", *arguments], check=True, env=environment, stdout=subprocess.DEVNULL
    )


def machine() -> str:
    """The date and the machine."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"{now}; {model}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, Linux {platform.release()}, Python"
        f" {platform.python_version()}; load average before: {os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    """Print the table."""
    print(machine())
    print("\n| what | measured |\n| --- | --- |")
    for measure in (idle, partitions, backups):
        for what, figure in measure():
            print(f"| {what} | {figure} |", flush=True)


if __name__ == "__main__":
    main()
