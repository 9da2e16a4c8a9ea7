"""The rows of the benchmark: the load, the compared figures, and the target for each figure."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.brokers import Held, Server, warm_memory

Figures = dict[str, float]
MB, GB = 1e6, 1e9
WORKED_BYTES = 1_000_000_000


@dataclass(frozen=True)
class Target:
    """One compared figure. `limit` bounds ours / Kafka's: from above, or from below where more is better.

    :param absolute: a bound of our own figure as well, in its unit.
    """

    figure: str
    unit: str
    limit: float
    more_is_better: bool = False
    middle: bool = False  # the median over the rounds; else the least (CPU)
    absolute: float | None = None


@dataclass(frozen=True)
class Row:
    """A load that runs once per round on each broker."""

    name: str
    title: str
    run: Callable[[Server, str], Figures]
    targets: tuple[Target, ...]
    floor: str = ""
    partitions: int = 1
    tags: tuple[str, ...] = field(default=())
    configs: dict[str, str] = field(default_factory=dict)


def runs_separately(server: Server, topic: str) -> Figures:
    """The `run` of a row that starts its own brokers: `SEPARATE` of `bench.__main__` names the function that measures it."""
    raise NotImplementedError("this row starts its own brokers")


def measured(load: str, server: Server, *arguments: str) -> Figures:
    """Run a load; return the generator's figures and the CPU time of the broker in the measured window."""
    held = Held(load, server, *arguments)
    before = server.cpu_ns()
    held.go()
    held.expect("done")
    cpu = server.cpu_ns_since(before)
    held.go()
    result = held.finish()
    return {name: float(value) for name, value in result.items() if isinstance(value, int | float)} | {
        "cpu_ns": float(cpu)
    }


def scratch(size: int) -> None:
    warm_memory(Path(tempfile.gettempdir()) / "odradek-bench-scratch", size)


Options = Callable[[Server], tuple[str, ...]]
"""The generator's options for a listener of a broker."""


def plain(server: Server) -> tuple[str, ...]:
    """The options for the PLAINTEXT listener: none."""
    return ()


def small_produce(server: Server, topic: str, options: Options = plain) -> Figures:
    figures = measured(
        "produce", server, "--topic", topic, "--partitions", "8", "--conns", "8", "--inflight", "5", "--seconds", "3",
        "--warmup", "0.5", *options(server),
    )  # fmt: skip
    return {"cpu_us": figures["cpu_ns"] / 1e3 / figures["requests"], "rate": figures["requests"] / figures["seconds"]}


def one_partition(server: Server, topic: str) -> Figures:
    figures = measured(
        "produce", server, "--topic", topic, "--conns", "8", "--inflight", "5", "--seconds", "3", "--warmup", "0.5"
    )
    return {"cpu_us": figures["cpu_ns"] / 1e3 / figures["requests"], "rate": figures["requests"] / figures["seconds"]}


def one_in_flight(server: Server, topic: str) -> Figures:
    figures = measured("produce", server, "--topic", topic, "--seconds", "3", "--warmup", "0.5")
    return {"p50": figures["p50_us"], "p99": figures["p99_us"]}


def deliver(server: Server, topic: str) -> Figures:
    figures = measured("deliver", server, "--topic", topic, "--seconds", "3", "--warmup", "0.5")
    return {"p50": figures["p50_us"], "p99": figures["p99_us"]}


def bulk_produce(batch_bytes: int, *more: str, options: Options = plain) -> Callable[[Server, str], Figures]:
    def run(server: Server, topic: str) -> Figures:
        requests = WORKED_BYTES // batch_bytes
        scratch(WORKED_BYTES + WORKED_BYTES // 8)
        batch = more or ("--batch-bytes", str(batch_bytes), "--size", "200", "--size-max", "1000")
        figures = measured(
            "produce", server, "--topic", topic, "--partitions", "4", "--conns", "4", "--inflight", "3",
            "--requests", str(requests), *batch, *options(server),
        )  # fmt: skip
        return {
            "cpu_s": figures["cpu_ns"] / figures["bytes"],
            "rate": figures["bytes"] / figures["seconds"] / MB,
        }

    return run


def compressed(codec: int, batch_bytes: int) -> Callable[[Server, str], Figures]:
    """Batches that the producer compressed; both brokers decompress them to check their records."""

    def run(server: Server, topic: str) -> Figures:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "batch"
            path.write_bytes(compressed_batch(codec, batch_bytes))
            size = path.stat().st_size
            scratch(WORKED_BYTES // 2)
            figures = measured(
                "produce", server, "--topic", topic, "--partitions", "4", "--conns", "4", "--inflight", "3",
                "--requests", str(WORKED_BYTES // 4 // size), "--batch-file", str(path),
            )  # fmt: skip
        return {"cpu_s": figures["cpu_ns"] / figures["bytes"], "rate": figures["bytes"] / figures["seconds"] / MB}

    return run


def compressed_batch(codec: int, batch_bytes: int) -> bytes:
    """Return a compressed batch of text-like records of about `batch_bytes` uncompressed."""
    import random

    from odradek.storage.batch import Record, build_batch

    random_words = random.Random(7)
    words = [
        bytes(random_words.choices(b"abcdefghijklmnopqrstuvwxyz", k=random_words.randint(2, 9))) for _ in range(500)
    ]
    content: list[Record] = []
    size = 0
    while size < batch_bytes:
        value = b" ".join(random_words.choices(words, k=60))
        content.append(
            Record(key=b"%08x" % random_words.getrandbits(32), value=value, timestamp=1_700_000_000_000 + len(content))
        )
        size += len(value) + 20
    return build_batch(content, codec=codec)


def bulk_fetch(
    max_bytes: int, *, options: Options = plain, times: int = 4, unit: float = GB
) -> Callable[[Server, str], Figures]:
    """:param times: how many gigabytes are read. :param unit: of the rate, in bytes."""

    def run(server: Server, topic: str) -> Figures:
        scratch(WORKED_BYTES // 2)
        measured(
            "produce", server, "--topic", topic, "--partitions", "4", "--conns", "4", "--inflight", "3", "--requests",
            str(WORKED_BYTES // 4 // 65536 // 4 * 4), "--batch-bytes", "65536", "--size", "1000",
        )  # fmt: skip
        figures = measured(
            "fetch", server, "--topic", topic, "--partitions", "4", "--conns", "4", "--max-bytes", str(max_bytes),
            "--bytes", str(WORKED_BYTES * times), "--warmup", "0.25", *options(server),
        )  # fmt: skip
        return {"cpu_s": figures["cpu_ns"] / figures["bytes"], "rate": figures["bytes"] / figures["seconds"] / unit}

    return run


def long_polls(server: Server, topic: str) -> Figures:
    figures = measured(
        "longpoll", server, "--topic", topic, "--partitions", "100", "--conns", "1000", "--rate", "100", "--seconds", "5",
        "--max-wait", "5000", "--warmup", "1",
    )  # fmt: skip
    return {"cpu_us": figures["cpu_ns"] / 1e3 / figures["responses"]}


COMMITTED_PARTITIONS, REBALANCED_MEMBERS, REBALANCES = 8, 100, 30


def commits(inflight: int) -> Callable[[Server, str], Figures]:
    """Commits of eight partitions each by eight consumers, each in a separate group."""

    def run(server: Server, topic: str) -> Figures:
        figures = measured(
            "commit", server, "--topic", topic, "--partitions", str(COMMITTED_PARTITIONS), "--conns", "8",
            "--inflight", str(inflight), "--seconds", "3", "--warmup", "1",
        )  # fmt: skip
        return {
            "cpu_us": figures["cpu_ns"] / 1e3 / figures["requests"],
            "rate": figures["requests"] / figures["seconds"],
        }

    return run


def rebalance(server: Server, topic: str) -> Figures:
    """Time from the first JoinGroup of a round to the last SyncGroup response."""
    figures = measured(
        "rebalance", server, "--topic", topic, "--conns", str(REBALANCED_MEMBERS), "--groups", str(REBALANCES)
    )
    return {"p50": figures["p50_us"] / 1e3, "cpu_ms": figures["cpu_ns"] / 1e6 / REBALANCES}


def idle_connections(server: Server, topic: str) -> Figures:
    before = server.pss()
    held = Held("idle", server, "--conns", "10000", "--sources", "4")
    during = server.pss()
    held.go()
    held.expect("done")
    held.go()
    held.finish()
    return {"pss_mb": during / MB, "kb_each": max(0.0, (during - before)) / 10_000 / 1000}


def synced_produce(server: Server, topic: str) -> Figures:
    """Every acknowledgement waits for a sync: measures how many producers share one sync."""
    figures = measured("produce", server, "--topic", topic, "--conns", "8", "--seconds", "5", "--warmup", "0.5")
    return {"rate": figures["requests"] / figures["seconds"], "p99": figures["p99_us"]}


COLD_BATCH, COLD_BATCHES = 65536, 8000


def cold_reader(server: Server, topic: str) -> Figures:
    """p99 of a producer with one request in flight, alone and during a consumer that reads records from disk."""
    cold = f"{topic}-cold"
    server.create_topic(cold, 1)
    server.wait(cold, 1)
    try:
        measured(
            "produce", server, "--topic", cold, "--conns", "1", "--inflight", "3", "--requests", str(COLD_BATCHES),
            "--batch-bytes", str(COLD_BATCH), "--size", "1000",
        )  # fmt: skip
        load = ("--topic", topic, "--seconds", "3", "--warmup", "0.5")
        alone = measured("produce", server, *load)
        put_out_of_memory(server.directory, cold)
        reader = Held(
            "fetch", server, "--topic", cold, "--conns", "1", "--max-bytes", str(1 << 20),
            "--bytes", str(COLD_BATCH * COLD_BATCHES * 9 // 10), "--warmup", "0",
        )  # fmt: skip
        reader.go()
        beside = measured("produce", server, *load)
        reader.expect("done")
        reader.go()
        read = reader.finish()
    finally:
        server.delete_topic(cold)
    return {
        "p99": beside["p99_us"],
        "slower": beside["p99_us"] / alone["p99_us"],
        "read": float(read["bytes"]) / float(read["seconds"]) / MB,
    }


def put_out_of_memory(directory: Path, topic: str) -> None:
    """Drop a topic's files from the page cache. Raises FileNotFoundError if there is none."""
    found = False
    for path in directory.rglob(f"{topic}-0/*"):
        with path.open("rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        found = True
    if not found:
        raise FileNotFoundError(f"no files of {topic} in {directory}")


CPU_A_REQUEST = Target("cpu_us", "us CPU per request", 0.17)
ROWS = (
    Row("small-produce", "produce, 100 B records one per request, 8 connections x 5 in flight", small_produce,
        (CPU_A_REQUEST, Target("rate", "requests/s", 3.0, more_is_better=True, middle=True)), partitions=8),
    Row("one-partition", "produce, 100 B records one per request, all connections on one partition", one_partition,
        (CPU_A_REQUEST, Target("rate", "requests/s", 3.0, more_is_better=True, middle=True))),
    Row("produce-64k", "produce, 64 KiB batches of records of 200-1,000 B", bulk_produce(65536),
        (Target("cpu_s", "s CPU per GB", 0.25), Target("rate", "MB/s", 1.0, more_is_better=True, middle=True)), "pwrite", 4),
    Row("produce-1m", "produce, 1 MiB batches of records of 200-1,000 B", bulk_produce(1 << 20),
        (Target("cpu_s", "s CPU per GB", 0.5), Target("rate", "MB/s", 1.0, more_is_better=True, middle=True)), "pwrite", 4),
    Row("produce-lz4", "produce, batches of 64 KiB compressed by lz4", compressed(3, 65536),
        (Target("cpu_s", "s CPU per GB (compressed)", 1.0),), "pwrite", 4),
    Row("produce-zstd", "produce, batches of 64 KiB compressed by zstd", compressed(4, 65536),
        (Target("cpu_s", "s CPU per GB (compressed)", 1.0),), "pwrite", 4),
    Row("fetch-1m", "fetch, 1 MiB at a time, cached", bulk_fetch(1 << 20),
        (Target("cpu_s", "s CPU per GB", 0.6), Target("rate", "GB/s", 1.0, more_is_better=True, middle=True)), "sendfile", 4),
    Row("fetch-8m", "fetch, 8 MiB at a time, cached", bulk_fetch(8 << 20),
        (Target("cpu_s", "s CPU per GB", 1.0), Target("rate", "GB/s", 1.0, more_is_better=True, middle=True)), "sendfile", 4),
    Row("one-in-flight", "produce acks=1, one in flight", one_in_flight,
        (Target("p50", "us p50", 0.55, middle=True), Target("p99", "us p99", 0.6, middle=True))),
    Row("deliver", "produce to long-polling fetch on another connection", deliver,
        (Target("p50", "us p50", 0.3, middle=True),)),
    Row("flush-messages", "produce, flush.messages=1, 8 connections, one in flight each", synced_produce,
        (Target("rate", "requests/s", 1.0, more_is_better=True, middle=True), Target("p99", "us p99", 1.0, middle=True)),
        configs={"flush.messages": "1"}),
    Row("cold-reader", "produce acks=1, one in flight, beside a reader of what is not in memory", cold_reader,
        (Target("p99", "us p99", 1.0, middle=True), Target("slower", "x its p99 alone", 2.0, middle=True, absolute=2.0),
         Target("read", "MB/s read", 0.9, more_is_better=True, middle=True))),
    Row("long-polls", "1,000 consumers long-polling 100 partitions, 100 records/s", long_polls,
        (Target("cpu_us", "us CPU per response", 0.25),), partitions=100),
    Row("commits", "offset commits of 8 partitions, 8 connections x 5 in flight", commits(5),
        (Target("cpu_us", "us CPU per commit", 0.5), Target("rate", "commits/s", 1.0, more_is_better=True, middle=True)),
        partitions=COMMITTED_PARTITIONS),
    Row("commits-one", "offset commits of 8 partitions, 8 connections, one in flight each", commits(1),
        (Target("cpu_us", "us CPU per commit", 0.5), Target("rate", "commits/s", 1.0, more_is_better=True, middle=True)),
        partitions=COMMITTED_PARTITIONS),
    Row("rebalance", "a rebalance of a classic group of 100 members", rebalance,
        (Target("p50", "ms from the first join to the last assignment", 1.0, middle=True),
         Target("cpu_ms", "ms CPU per rebalance", 1.0))),
    Row("idle-connections", "10,000 idle connections", idle_connections,
        (Target("pss_mb", "MB PSS in all", 0.5), Target("kb_each", "kB PSS per connection", 1.0))),
)  # fmt: skip
