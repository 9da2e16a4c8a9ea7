"""Runs the faults and prints the verdict; exit code 0 if nothing was wrong."""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from odradek.testing import Broker
from tests.faults import process_faults
from tests.faults.chaos.resources import Sample, growth, medians, sample
from tests.faults.chaos.stream_checker import StreamChecker
from tests.faults.chaos.workload import (
    Client,
    CompactedTopic,
    GroupMember,
    LogTrimmer,
    Progress,
    StreamProducer,
    StreamReader,
    TopicChurn,
)
from tests.faults.small_disk import SmallDisk
from tests.waiting import until

MIB = 1 << 20
DISK_BYTES = 768 * MIB
STREAM, PARTITIONS = "stream", 6
COMPACTED = "compacted"
GROUPS = ("classic", "consumer")
FULL_S = 4.0
SAMPLE_EVERY_S = 5.0
KINDS = ("worker", "coordinator", "cleaner", "reporter")
CONFIG = {
    "num.network.threads": 2,
    "log.segment.bytes": 4 * MIB,
    "log.segment.delete.delay.ms": 2000,
    "log.cleaner.backoff.ms": 500,
    "log.retention.check.interval.ms": 5000,
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "metrics.listener": "127.0.0.1:0",
    "usage.spool.max.bytes": 16 * MIB,
}

Fault = Callable[[Broker, random.Random], str]


def fill_disk(disk: SmallDisk) -> Fault:
    """A foreign file fills the disk for a while; producers get errors meanwhile."""

    def fault(broker: Broker, _: random.Random) -> str:
        path = disk.fill()
        try:
            until(lambda: any(one["disk"] == "full" for one in broker.status()["log_dirs"]), "the disk is full")
            time.sleep(FULL_S)  # the duration is the fault
        finally:
            path.unlink()
        until(lambda: all(one["disk"] != "full" for one in broker.status()["log_dirs"]), "the disk has room again")
        return f"for {FULL_S:g} s"

    return fault


def possible_faults(disk: SmallDisk) -> dict[str, Fault]:
    """By name, each fault that a run applies."""
    found: dict[str, Fault] = {}
    for kind in KINDS:
        found[f"kill {kind}"] = lambda broker, rng, kind=kind: process_faults.kill_one(broker, rng, kind)
        found[f"stop {kind}"] = lambda broker, rng, kind=kind: process_faults.stop_one_for_a_while(
            broker, rng, kind, rng.choice([0.3, 1.0, 4.0])
        )
    found["stop supervisor"] = process_faults.stop_supervisor_for_a_while
    found["kill supervisor"] = process_faults.kill_supervisor
    found["kill all"] = process_faults.kill_group
    found["full disk"] = fill_disk(disk)
    return found


class Run:
    """One broker, its clients, and the faults."""

    def __init__(self, broker: Broker, disk: SmallDisk, rng: random.Random, per_second: int) -> None:
        self.broker, self.disk, self.rng = broker, disk, rng
        self.checker = StreamChecker(PARTITIONS)
        self.progress = {protocol: Progress(PARTITIONS) for protocol in GROUPS}
        address = broker.bootstrap_servers
        self.producers = [
            StreamProducer(f"p{number}", address, STREAM, PARTITIONS, per_second // 4, self.checker)
            for number in range(4)
        ]
        self.compacted = CompactedTopic(address, COMPACTED)
        self.reader = StreamReader(address, STREAM, PARTITIONS, self.checker)
        members = [
            GroupMember(f"{protocol} member {number}", address, STREAM, protocol, progress)
            for protocol, progress in self.progress.items()
            for number in range(2)
        ]
        readers: list[Callable[[int], int]] = [self.checker.position]
        readers += [progress.position for progress in self.progress.values()]
        self.writers: list[Client] = [*self.producers, self.compacted, TopicChurn(address)]
        self.readers: list[Client] = [self.reader, *members, LogTrimmer(address, STREAM, PARTITIONS, readers)]
        self.samples: list[Sample] = []
        self.applied: Counter[str] = Counter()

    def clients(self) -> list[Client]:
        return [*self.writers, *self.readers]

    def apply_faults(self, minutes: float, every_s: float) -> None:
        """Apply faults in random order, all kinds equally often, with samples in between, for the given minutes."""
        faults = possible_faults(self.disk)
        began = time.monotonic()
        plan: list[str] = []
        next_fault = began + every_s
        while time.monotonic() < began + minutes * 60 and not self.faults():
            time.sleep(SAMPLE_EVERY_S)  # the interval of samples and the load between faults
            self.samples.append(sample(self.broker))
            if time.monotonic() < next_fault:
                continue
            if not plan:
                plan = list(faults)
                self.rng.shuffle(plan)
            name = plan.pop()
            line = faults[name](self.broker, self.rng)
            self.applied[name] += 1
            next_fault = time.monotonic() + every_s * self.rng.uniform(0.3, 1.7)
            now = self.samples[-1]
            print(
                f"{time.monotonic() - began:6.0f} s  {name}: {line}; {self.checker.read_count} records read, "
                f"{now.descriptors} descriptors, {now.pss_bytes >> 20} MiB, disk {now.disk_bytes >> 20} MiB",
                flush=True,
            )

    def finish(self) -> None:
        """End the writers, read everything that was acknowledged, end the readers."""
        for writer in self.writers:
            writer.end()

        def all_read() -> bool:
            ends = [self.checker.position(number) for number in range(PARTITIONS)]
            behind = [p for p in self.progress.values() if [p.position(n) for n in range(PARTITIONS)] != ends]
            return bool(self.faults()) or (not self.checker.unread() and not behind)

        until(
            all_read, lambda: f"{self.checker.unread()} acknowledged records were not read, or a group is behind", 300
        )
        for reader in self.readers:
            reader.end()
        print(f"the compacted topic held {self.compacted.check()} records")

    def faults(self) -> list[str]:
        """The errors found so far."""
        return self.checker.faults + [fault for client in self.clients() for fault in client.faults]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--fault-every", type=float, default=12, metavar="SECONDS", help="mean time between faults")
    parser.add_argument("--per-second", type=int, default=2000, help="records a second of the checked stream")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with (
        tempfile.TemporaryDirectory(prefix="odradek-chaos-") as place,
        SmallDisk(Path(place) / "disk", DISK_BYTES) as disk,
    ):
        config = CONFIG | {"log.dirs": f"{disk.path}/data"}
        compacted = {"partitions": "1", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.2"}
        compacted |= {"segment.bytes": str(MIB)}
        with Broker(config, {STREAM: PARTITIONS, COMPACTED: compacted}, directory=Path(place) / "broker") as broker:
            run = Run(broker, disk, random.Random(options.seed), options.per_second)
            for client in run.clients():
                client.start()
            run.apply_faults(options.minutes, options.fault_every)
            run.finish()
            broker.stop()
            log = broker.log_file.read_text()
    return report(run, log)


def report(run: Run, log: str) -> int:
    """Print the actions and the errors; return the exit code."""
    wrong = run.faults() + growth(run.samples)
    wrong += [f"the broker's log has {log.count('Traceback')} tracebacks"] if "Traceback" in log else []
    wrong += [line for line in log.splitlines() if "ended by SIGSEGV" in line or "ended by SIGABRT" in line]
    if run.checker.unread():
        wrong.append(f"{run.checker.unread()} acknowledged records were never read")
    print(f"faults: {dict(sorted(run.applied.items()))}")
    print(
        f"{run.checker.acknowledged_count} records acknowledged, {run.checker.read_count} read, "
        f"{run.checker.unacknowledged()} of them without an answer; {run.writers[-1].steps} topics created and deleted"
    )
    if len(run.samples) >= 10:
        fifth = len(run.samples) // 5
        for name, part in (("early", run.samples[fifth : 2 * fifth]), ("late", run.samples[-fifth:])):
            print(f"{name}: {medians(part)}")
    if wrong:
        print("WRONG:", *wrong[:50], sep="\n  ")
        print(
            "--- warnings and errors of the broker",
            *[line for line in log.splitlines() if " INFO " not in line][-60:],
            sep="\n",
        )
    print("nothing was lost, doubled or reordered, and nothing grew" if not wrong else f"{len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
