"""The mirror's own cost: ``python -m bench.mirror`` copies a topic from one broker to another with one lane.

Prints a line of JSON for each run: CPU seconds for a GB (10**9 bytes of batches) of the lane's process, of the source for the
fetches and of the target for the produces and transactions, the lane's peak of memory, and the throughput. The lane is a
separate process; the brokers' CPU time is that of their process trees. The source is filled before with batches of one codec,
which gives the cost of produces without transactions: `lane_to_plain` compares the lane with that and the fetches.
"""

import argparse
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Collection

from odradek import codecs
from odradek.clients.cluster import Cluster
from odradek.mirror.commits import NO_PRODUCER, Commits
from odradek.mirror.lane import Lane
from odradek.mirror.leaders import look_up
from odradek.mirror.routes import LaneOptions, Moved, Route
from odradek.mirror.target import Outgoing, TargetWriter
from odradek.storage.batch import Record, build_batch
from odradek.testing import Broker
from odradek.testing.process_tree import descendants
from odradek.topic_partition import TopicPartition

TOPIC, GROUP, RECORD_BYTES = "mirrored", "bench", 1000
GB = 1e9
_TICKS = os.sysconf("SC_CLK_TCK")


class End:
    """The observer of the lane: knows when the last record was moved."""

    def __init__(self, ends: dict[TopicPartition, int]) -> None:
        self._left = dict(ends)
        self.bytes = 0
        self.done = threading.Event()

    def moved(self, batch: Moved) -> None:
        """Count a batch."""
        self.bytes += batch.size_bytes
        source, following = batch.route.source, batch.next_source_offset
        if following >= self._left.get(source, following + 1):
            del self._left[source]
            if not self._left:
                self.done.set()

    def progress(self, route: Route, position: int, high_watermark: int, log_start: int) -> None:
        """Positions are not measured."""

    def stopped(self, route: Route, reason: str) -> None:
        """End with an error: nothing may stop here."""
        print(f"bench.mirror: {route.source} stopped: {reason}", file=sys.stderr)
        os._exit(1)

    def resumed(self, route: Route) -> None:
        """Nothing stops here."""

    def failed(self, lane: int, reason: str, retry_s: float) -> None:
        """End with an error: nothing may fail here."""
        print(f"bench.mirror: lane {lane} failed: {reason}", file=sys.stderr)
        os._exit(1)


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process and its descendants, with those that ended."""
    ticks = 0
    for process in {pid, *descendants(pid)}:
        with open(f"/proc/{process}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS


def batch_of(size: int, codec: int) -> tuple[bytes, int]:
    """A batch of about `size` bytes before compression, half of it random, and the number of its records."""
    count = max(1, size // RECORD_BYTES)
    half = RECORD_BYTES // 2
    records = [Record(b"%08d" % n, os.urandom(half) + b"x" * half, 1_700_000_000_000 + n) for n in range(count)]
    return build_batch(records, codec=codec), count


def fill(servers: str, partitions: int, total: int, batch: bytes, records: int, topic: str = TOPIC) -> int:
    """Write the batch until the topic has `total` bytes; return how many records each partition has."""
    each = max(1, total // partitions // len(batch))
    routes = [Route((topic, number), (topic, number)) for number in range(partitions)]
    with Cluster(servers) as data, Cluster(servers) as control:
        options = LaneOptions(exactly_once=False)
        writer = TargetWriter(data, Commits(control, "", "fill", options, NO_PRODUCER), "", options)
        for start in range(0, each, 8):
            for route in routes:
                for _ in range(start, min(start + 8, each)):
                    writer.put(Outgoing(route, memoryview(bytearray(batch)), records, 0, 0, -1))
            writer.flush()
            writer.commit({})
    return each * records


def run_lane(source: str, target: str, ends: dict[TopicPartition, int], result: int) -> None:
    """Copy everything in this process; write figures as JSON to the descriptor `result`."""
    observer = End(ends)
    with Cluster(source) as cluster:
        topic_id = look_up(cluster, [TOPIC]).topics[TOPIC].topic_id
    lane = Lane(0, "bench.0", GROUP, lambda: Cluster(source), lambda: Cluster(target), LaneOptions(), observer)
    lane.route([Route(place, place, topic_id) for place in ends])
    thread = threading.Thread(target=lane.run)
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.monotonic()
    thread.start()
    observer.done.wait()
    seconds = time.monotonic() - began
    lane.stop()
    thread.join()
    after = resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "bytes": observer.bytes,
        "seconds": seconds,
        "user_s": after.ru_utime - before.ru_utime,
        "system_s": after.ru_stime - before.ru_stime,
        "peak_kib": after.ru_maxrss,
    }
    os.write(result, json.dumps(figures).encode())


def in_a_process(source: str, target: str, ends: dict[TopicPartition, int]) -> dict[str, float]:
    """Run the lane in a child process; return its figures. Raises RuntimeError if it fails."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        run_lane(source, target, ends, writing)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as result:
        text = result.read()
    if os.waitpid(pid, 0)[1] or not text:
        raise RuntimeError("the lane's process failed")
    figures: dict[str, float] = json.loads(text)
    return figures


def measure(batch_bytes: int, codec: int, partitions: int, total: int) -> dict[str, object]:
    """One run with two new brokers."""
    batch, records = batch_of(batch_bytes, codec)
    topics = {TOPIC: {"partitions": str(partitions), "retention.ms": "-1"}}
    with Broker(topics=topics) as source, Broker(topics=topics) as target:
        idle = cpu_seconds(source.pid)
        count = fill(source.bootstrap_servers, partitions, total, batch, records)
        plain = cpu_seconds(source.pid) - idle
        ends = {(TOPIC, number): count for number in range(partitions)}
        before = cpu_seconds(source.pid), cpu_seconds(target.pid)
        figures = in_a_process(source.bootstrap_servers, target.bootstrap_servers, ends)
        fetch = cpu_seconds(source.pid) - before[0]
        produce = cpu_seconds(target.pid) - before[1]
    moved = figures["bytes"] / GB
    lane = (figures["user_s"] + figures["system_s"]) / moved
    brokers = (fetch + produce) / moved
    return {
        "batch_bytes": len(batch),
        "codec": codecs.NAMES[codec],
        "partitions": partitions,
        "gb": round(moved, 3),
        "lane_cpu_s_per_gb": round(lane, 3),
        "lane_user_s_per_gb": round(figures["user_s"] / moved, 3),
        "source_cpu_s_per_gb": round(fetch / moved, 3),
        "target_cpu_s_per_gb": round(produce / moved, 3),
        "lane_to_brokers": round(lane / brokers, 2),
        "plain_produce_cpu_s_per_gb": round(plain / moved, 3),
        "lane_to_plain": round(lane / ((fetch + plain) / moved), 2),
        "peak_mib": round(figures["peak_kib"] / 1024, 1),
        "mb_per_s": round(figures["bytes"] / 1e6 / figures["seconds"], 1),
    }


def main(arguments: Collection[str] | None = None) -> None:
    """Measure the combinations that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m bench.mirror", description=__doc__)
    parser.add_argument(
        "--batch-kib", type=int, nargs="+", default=[16, 128, 900], help="bytes of records in a batch, in KiB"
    )
    parser.add_argument("--codec", nargs="+", choices=codecs.NAMES, default=["none", "lz4"])
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--mib", type=int, default=512, help="how much is copied in each run, in MiB")
    options = parser.parse_args(arguments)
    for codec in options.codec:
        for size in options.batch_kib:
            result = measure(size << 10, codecs.NAMES.index(codec), options.partitions, options.mib << 20)
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
