"""`odradek mirror` against MirrorMaker 2: ``python -m bench.mirror_maker`` lets both copy the same batches between two brokers.

Each round runs both, one after the other, with two new brokers of ours. A round has two parts. Throughput: when the mirror has
copied a first topic (the JVM is warm then), the batches are written to a second topic, and the CPU time of the mirror's process
from the first batch to the last copied one counts, and its peak of memory. Latency: records are written one by one to a third
topic with the time in their values, and a consumer at the target measures how old they are when they arrive.

Prints a line of JSON for each round, then the medians and ratios as a table in Markdown. MirrorMaker 2 runs in its default
mode, at least once, with the JVM options of its own start script; `odradek mirror` runs with its defaults, exactly once.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.mirror import GB, batch_of, cpu_seconds, fill
from odradek import codecs
from odradek.clients import groups, topics
from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError
from odradek.testing import Broker
from tests.ecosystem.jars import java_command
from tests.waiting import until

OURS, THEIRS = "odradek mirror", "MirrorMaker 2"
WARM, BULK, SINGLE = "warm", "bulk", "single"
PARTITIONS = 4
WARM_BYTES = 64 << 20
RECORDS, INTERVAL_S = 1000, 0.005
PATIENCE_S = 600.0
ASKED_EVERY_S = 0.1
FILE = """\
clusters = a, b
a.bootstrap.servers = {a}
b.bootstrap.servers = {b}
a->b.enabled = true
a->b.topics = warm, bulk, single
replication.factor = 1
refresh.topics.interval.seconds = 1
"""
ONLY_OURS = "odradek.mirror.metrics.listener =\n"
ONLY_THEIRS = """\
tasks.max = 2
b->a.enabled = false
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
config.storage.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
"""
JVM = ("-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+ExplicitGCInvokesConcurrent")
"""What the start scripts of Kafka 4.3 pass for Connect and MirrorMaker."""


def command(mirror: str, file: Path) -> list[str]:
    """The command line of a mirror."""
    if mirror == OURS:
        return [sys.executable, "-m", "odradek.cli.main", "mirror", "run", str(file)]
    line = java_command("connect", "org.apache.kafka.connect.mirror.MirrorMaker", str(file))
    class_path = line[line.index("-cp") + 1]
    levels = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
    return ["java", *JVM, *levels, "-cp", class_path, *line[line.index("-cp") + 2 :]]


@contextmanager
def running(mirror: str, source: Broker, target: Broker, directory: Path) -> Iterator[int]:
    """A mirror from one broker to another; its process id."""
    file = directory / "mirror.properties"
    text = FILE.format(a=source.bootstrap_servers, b=target.bootstrap_servers)
    file.write_text(text + (ONLY_OURS if mirror == OURS else ONLY_THEIRS))
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command(mirror, file), stdout=log, stderr=log)
    try:
        yield process.pid
    except BaseException:
        print((directory / "log").read_text()[-3000:], file=sys.stderr)
        raise
    finally:
        process.terminate()
        process.wait(60)


def copied(mirror: str, cluster: Cluster, topic: str) -> int:
    """How many offsets of the source's topic have been copied."""
    name = f"a.{topic}"
    try:
        if mirror == OURS:
            positions = groups.fetch_offsets(cluster, "odradek-mirror.a->b")
            return sum(position.offset for (found, _), position in positions.items() if found == name)
        partitions = cluster.metadata([name]).topics[name].partitions
        ends = topics.list_offsets(cluster, partitions, topics.LATEST)
    except (ClientError, KeyError):  # the topic or the group is not there yet
        return 0
    return sum(end.offset for end in ends.values())


def peak_mib(pid: int) -> float:
    """The largest resident memory of a process so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def bulk(
    mirror: str, pid: int, source: Broker, target: Broker, batch: tuple[bytes, int], total: int
) -> dict[str, float]:
    """CPU, memory and rate of one copy of `total` bytes."""
    with Cluster(target.bootstrap_servers) as cluster:
        warm = PARTITIONS * fill(source.bootstrap_servers, PARTITIONS, WARM_BYTES, *batch, topic=WARM)
        until(lambda: copied(mirror, cluster, WARM) >= warm, "the first topic is copied", PATIENCE_S, ASKED_EVERY_S)
        before, began = cpu_seconds(pid), time.monotonic()
        records = PARTITIONS * fill(source.bootstrap_servers, PARTITIONS, total, *batch, topic=BULK)
        until(lambda: copied(mirror, cluster, BULK) >= records, "the second topic is copied", PATIENCE_S, ASKED_EVERY_S)
        seconds, cpu = time.monotonic() - began, cpu_seconds(pid) - before
    moved = records / batch[1] * len(batch[0])
    return {"cpu_s_per_gb": cpu / (moved / GB), "mb_per_s": moved / 1e6 / seconds, "peak_mib": peak_mib(pid)}


def latency(source: Broker, target: Broker, isolation: str) -> float:
    """The median of the ms from the production of a record at the source to its arrival at a consumer of the target."""
    producer = Producer({"bootstrap.servers": source.bootstrap_servers, "linger.ms": 0, "acks": "all"})
    consumer = Consumer(
        {"bootstrap.servers": target.bootstrap_servers, "group.id": "bench", "isolation.level": isolation,
         "fetch.wait.max.ms": 500, "enable.auto.commit": False}
    )  # fmt: skip
    place = TopicPartition(f"a.{SINGLE}", 0)
    place.offset = consumer.get_watermark_offsets(place, timeout=30)[1]
    consumer.assign([place])
    consumer.poll(1.0)  # the consumer is connected, and waits for records
    ages: list[float] = []

    def received(wait_s: float) -> bool:
        """Wait for a record; whether all have arrived."""
        message = consumer.poll(wait_s)
        if message is not None and message.error() is None:
            ages.append((time.monotonic_ns() - int(message.value() or b"0")) / 1e6)
        return len(ages) >= RECORDS

    for _ in range(RECORDS):
        producer.produce(SINGLE, b"%d" % time.monotonic_ns(), partition=0)
        producer.poll(0)
        due = time.monotonic() + INTERVAL_S
        while (left := due - time.monotonic()) > 0:
            received(left)
    producer.flush()
    until(lambda: received(0.1), f"{RECORDS} records arrive", PATIENCE_S, ASKED_EVERY_S)
    consumer.close()
    return statistics.median(ages)


def measure(mirror: str, batch: tuple[bytes, int], total: int) -> dict[str, float]:
    """One round of one mirror."""
    made = {
        name: {"partitions": str(count), "retention.ms": "-1"}
        for name, count in {WARM: PARTITIONS, BULK: PARTITIONS, SINGLE: 1}.items()
    }
    with (
        Broker(topics=made) as source,
        Broker() as target,
        tempfile.TemporaryDirectory() as directory,
        running(mirror, source, target, Path(directory)) as pid,
    ):
        figures = bulk(mirror, pid, source, target, batch, total)
        with Cluster(target.bootstrap_servers) as cluster:
            until(
                lambda: f"a.{SINGLE}" in cluster.metadata().topics,
                "the third topic has a copy",
                PATIENCE_S,
                ASKED_EVERY_S,
            )
        latency(source, target, "read_uncommitted")  # not counted: the way is warm then
        figures["p50_ms"] = latency(source, target, "read_uncommitted")
        figures["p50_committed_ms"] = latency(source, target, "read_committed")
    return figures


def table(results: Mapping[str, Collection[Mapping[str, float]]]) -> str:
    """The medians of all rounds, and their ratios."""
    lines = [f"| measure | {OURS} | {THEIRS} | ratio |", "| --- | ---: | ---: | ---: |"]
    for key in next(iter(results[OURS])):
        ours, theirs = (statistics.median(row[key] for row in results[mirror]) for mirror in (OURS, THEIRS))
        lines.append(f"| {key} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.3f} |")
    return "\n".join(lines)


def main(arguments: Collection[str] | None = None) -> None:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m bench.mirror_maker", description=__doc__)
    parser.add_argument("--batch-kib", type=int, default=16, help="bytes of records in a batch, in KiB")
    parser.add_argument("--codec", choices=codecs.NAMES, default="lz4")
    parser.add_argument("--mib", type=int, default=1024, help="how much is copied in each round, in MiB")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    batch = batch_of(options.batch_kib << 10, codecs.NAMES.index(options.codec))
    results: dict[str, list[dict[str, float]]] = {OURS: [], THEIRS: []}
    for _ in range(options.rounds):
        for mirror, rows in results.items():
            rows.append(measure(mirror, batch, options.mib << 20))
            print(json.dumps({"mirror": mirror, **rows[-1]}), flush=True)
    print(f"\n{options.batch_kib} KiB, {options.codec}, {os.cpu_count()} CPUs\n\n{table(results)}")


if __name__ == "__main__":
    main()
