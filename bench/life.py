"""The rows that need separate brokers: memory at rest, start, recovery, verification, compaction, stops with 10,000
partitions."""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import committed_reads, old_fetch
from bench.brokers import KAFKA, ROOT, BenchError, Kafka, Kafka39, Ours, Server, generate
from bench.rows import GB, MB, WORKED_BYTES, Figures, Row, Target, runs_separately, scratch
from odradek.storage.batch import Record, build_batch
from odradek.storage.checkpoints import read_offset_checkpoint

TOPICS, PARTITIONS = 10, 1000
KEPT_GROUPS, KEPT_OFFSETS = 5000, 8
RECOVERED_LOGS, RECOVERED_BYTES = 4, 2_000_000_000
COMPACTED_BATCHES, KEYED_RECORDS = 512, 1000
COMPACTED_WITHIN_S = 300
DOWN_CONVERTED_BYTES = 200_000_000
COMMITTED_ROUNDS = 8
TRANSACTIONAL_IDS = 100_000


def _launch(server: Server, first: bool) -> float:
    """Start without waiting; return the monotonic time in ns of the start."""
    if isinstance(server, Kafka) and not first:
        began = time.monotonic_ns()
        server.start_in_background()
        return began
    began = time.monotonic_ns()
    server.start()
    return began


@contextmanager
def _fresh(kind: type[Server], settings: dict[str, str] | None = None) -> Iterator[Server]:
    """Yield a new broker that is not started; at the end kill it and remove its directory."""
    server = kind(Path(tempfile.mkdtemp(prefix="odradek-bench-")), settings)
    try:
        yield server
    finally:
        server.end()


def _serve(server: Server, topic: str, partitions: int = 1) -> None:
    """Start the broker, and create a topic."""
    server.start()
    server.wait()
    server.create_topic(topic, partitions)
    server.wait(topic, partitions)


def _fill_bulk(server: Server, topic: str, size: int) -> Figures:
    """Write this many bytes in batches of 64 KiB to the four partitions of a topic."""
    scratch(size)
    return generate(
        "produce", server, "--topic", topic, "--partitions", str(RECOVERED_LOGS), "--conns", "4", "--inflight", "3",
        "--batch-bytes", "65536", "--size", "1000", "--requests", str(size // 65536),
    )  # fmt: skip


def rest_and_start(kind: type[Server]) -> Figures:
    """Measure the start on a directory that has been used once, and the memory at rest."""
    with _fresh(kind) as server:
        server.start()
        server.wait()
        server.stop()
        began = _launch(server, first=False)
        answered = server.wait()["answered_ns"]
        server.check()
        pss = server.pss()
        stop = server.stop()
        return {"start_s": (answered - began) / 1e9, "pss_mb": pss / MB, "stop_s": stop}


def many_partitions(kind: type[Server]) -> Figures:
    """10,000 partitions with a record each: stop, start, memory, stop; start, another record each, kill -9, start."""
    topics = [f"many{number}" for number in range(TOPICS)]
    with _fresh(kind) as server:
        server.start()
        server.wait()
        for topic in topics:
            server.create_topic(topic, PARTITIONS)
        server.wait(",".join(topics), PARTITIONS)
        _fill(server, topics)
        unflushed_stop = server.stop()
        began = _launch(server, first=False)
        clean = server.wait(",".join(topics), PARTITIONS)
        server.check()
        pss = server.pss()
        stop = server.stop()
        _launch(server, first=False)
        server.wait(",".join(topics), PARTITIONS)
        _fill(server, topics)
        server.kill()
        killed = _launch(server, first=False)
        unclean = server.wait(",".join(topics), PARTITIONS)
        server.check()
        return {
            "listen_s": (clean["listening_ns"] - began) / 1e9,
            "clean_s": (clean["partitions_ns"] - began) / 1e9,
            "unclean_s": (unclean["partitions_ns"] - killed) / 1e9,
            "stop_s": stop,
            "unflushed_stop_s": unflushed_stop,
            "pss_mb": pss / MB,
        }


def recovery(kind: type[Server]) -> Figures:
    """Two GB in four logs of one segment each, never flushed: `kill -9`, start. The time of recovery is the difference to a
    start after an ordered stop."""
    topic = "recovered"
    with _fresh(kind) as server:
        _serve(server, topic, RECOVERED_LOGS)
        figures = _fill_bulk(server, topic, RECOVERED_BYTES)
        server.kill()
        killed = _launch(server, first=False)
        unclean = (server.wait(topic, RECOVERED_LOGS)["partitions_ns"] - killed) / 1e9
        server.check()
        server.stop()
        began = _launch(server, first=False)
        clean = (server.wait(topic, RECOVERED_LOGS)["partitions_ns"] - began) / 1e9
        server.stop()
        took = max(unclean - clean, 0.001)
        return {"rate": figures["bytes"] / took / GB, "unclean_s": unclean, "clean_s": clean}


def verify(kind: type[Server]) -> Figures:
    """One GB in four logs of a broker that was stopped: `odradek log verify`, and Kafka's DumpLogSegments, which checks the
    CRC of every batch too. The bytes are in the page cache."""
    topic = "verified"
    with _fresh(kind) as server:
        _serve(server, topic, RECOVERED_LOGS)
        _fill_bulk(server, topic, WORKED_BYTES)
        server.check()
        server.stop()
        data = server.directory / "data"
        logs = sorted(map(str, data.glob(f"{topic}-*/*.log")))
        size = sum(Path(log).stat().st_size for log in logs)
        if isinstance(server, Kafka):
            command = [str(KAFKA), "run", "org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(logs)]
        else:
            command = [sys.executable, "-m", "odradek.cli.main", "log", "verify", "--json", str(data)]
        before = os.times()
        subprocess.run(command, stdout=subprocess.DEVNULL, cwd=ROOT, check=True)
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return {"rate": size / (after.elapsed - before.elapsed) / GB, "cpu_s": cpu * GB / size}


def compaction(kind: type[Server]) -> Figures:
    """Half a GB with every key eight times: time and CPU of the first pass.

    The topic is changed to a compacted topic after all records are written, so that the pass covers all of them. A smaller
    topic is compacted first, so that a JIT compiles the code.
    """
    with _fresh(kind, {"log.cleaner.backoff.ms": "100"}) as server:
        server.start()
        server.wait()
        _write_keyed(server, "warmed-up", COMPACTED_BATCHES // 4)
        _compact(server, "warmed-up")
        _write_keyed(server, "compacted", COMPACTED_BATCHES)
        size = _log_bytes(server, "compacted")
        before = server.cpu_ns()
        seconds = _compact(server, "compacted")
        cpu = server.cpu_ns_since(before)
        left = _log_bytes(server, "compacted")
        if left > size / 2:
            raise BenchError(
                f"{server.name} left {left} of {size} bytes after the compaction; expected about an eighth, because seven of "
                "eight records are superseded"
            )
        return {"rate": size / seconds / MB, "cpu_s": cpu / size, "left_mb": left / MB}


def beside_compaction(kind: type[Server]) -> Figures:
    """p99 of a producer with one request in flight, alone and during a compaction that takes longer than the measurement."""
    with _fresh(kind, {"log.cleaner.backoff.ms": "100"}) as server:
        _serve(server, "beside")
        _write_keyed(server, "warmed-up", COMPACTED_BATCHES // 4)
        _compact(server, "warmed-up")
        _write_keyed(server, "compacted", COMPACTED_BATCHES * 6)
        load = ("--topic", "beside", "--seconds", "1.2", "--warmup", "0.2")
        alone = generate("produce", server, *load)
        _make_compacted(server, "compacted")
        beside = generate("produce", server, *load)
        if _cleaned(server, "compacted"):
            raise BenchError(f"{server.name} finished the compaction before the measurement of the producer ended")
        return {"p99": beside["p99_us"], "slower": beside["p99_us"] / alone["p99_us"]}


def fetch_downconverted(kind: type[Server]) -> Figures:
    """Record batches of 100 records of 1,000 B, read with Fetch version 2 (Kafka 4 refuses it, so the peer is Kafka 3.9)."""
    topic, count = "converted", DOWN_CONVERTED_BYTES // (100 * 1010)
    with _fresh(Kafka39 if kind is Kafka else kind) as server:
        _serve(server, topic)
        generate("produce", server, "--topic", topic, "--records", "100", "--size", "1000", "--requests", str(count))
        old_fetch.read_all(server.port, topic, count * 100, 1 << 20)
        before = server.cpu_ns()
        read = old_fetch.read_all(server.port, topic, count * 100, 1 << 20)
        cpu = server.cpu_ns_since(before)
        server.check()
        return {"rate": read["bytes"] / read["seconds"] / MB, "cpu_s": cpu / read["bytes"]}


def fetch_committed(kind: type[Server]) -> Figures:
    """Logs of 100,000 transactions of 5 kB, of which none, 1 % and all are aborted: the CPU for a reader of committed records,
    and its ratio to the CPU for a reader of all records on the same broker."""
    figures = {}
    with _fresh(kind, {"log.segment.bytes": str(1 << 30)}) as server:
        topics = {"none": 0.0, "few": 0.01, "all": 1.0}
        server.start()
        server.wait()
        for topic in topics:
            server.create_topic(topic, 1, **{"retention.ms": "-1"})
            server.wait(topic)
        server.stop()
        ends = {topic: _replace_log(server, topic, share) for topic, share in topics.items()}
        _launch(server, first=True)
        for topic in topics:
            server.wait(topic)
        for topic, end in ends.items():
            reader = committed_reads.Reader(server.port, topic)
            for isolation in (committed_reads.UNCOMMITTED, committed_reads.COMMITTED) * 2:
                reader.read_all(isolation, end)
            least = {}
            for _ in range(COMMITTED_ROUNDS):
                for isolation in (committed_reads.UNCOMMITTED, committed_reads.COMMITTED):
                    before = server.cpu_ns()
                    read = reader.read_all(isolation, end)
                    cpu = server.cpu_ns_since(before) / read["bytes"]
                    least[isolation] = min(cpu, least.get(isolation, cpu))
            reader.close()
            figures[f"{topic}_cpu_s"] = least[committed_reads.COMMITTED]
            figures[f"{topic}_more"] = least[committed_reads.COMMITTED] / least[committed_reads.UNCOMMITTED]
        server.check()
    return figures


def transactional_ids(kind: type[Server]) -> Figures:
    """A restart with 100,000 transactional ids: the time from the first answer of the broker until its coordinator knows all of
    them, and the memory in addition to that of a restart with one id."""
    with _fresh(kind) as server:
        server.start()
        server.wait()
        generate("ids", server, "--topic", "one")
        server.stop()
        _launch(server, first=False)
        generate("loaded", server, "--topic", "one")
        server.check()
        before = server.pss()
        generate("ids", server, "--topic", "many", "--ids", str(TRANSACTIONAL_IDS), "--conns", "8", "--inflight", "20")
        server.stop()
        began = _launch(server, first=False)
        times = generate("loaded", server, "--topic", "many", "--ids", str(TRANSACTIONAL_IDS))
        server.check()
        return {
            "load_s": (times["loaded_ns"] - times["answered_ns"]) / 1e9,
            "start_s": (times["loaded_ns"] - began) / 1e9,
            "pss_mb": (server.pss() - before) / MB,
        }


def _replace_log(server: Server, topic: str, aborted_share: float) -> int:
    """Replace the log of partition 0 of a stopped broker by one with transactions; return its log end offset."""
    data = server.directory / "data"
    directory = data / f"{topic}-0"
    for path in directory.glob("0*"):
        path.unlink()
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (data / name).unlink(missing_ok=True)
    return committed_reads.write_log(directory / f"{0:020d}.log", aborted_share)


def _write_keyed(server: Server, topic: str, batches: int) -> None:
    """Write batches of 1 MiB in eight rounds over the same keys, in segments of 64 MiB."""
    random_bytes = random.Random(5)
    server.create_topic(topic, 1, **{"segment.bytes": str(64 << 20), "min.cleanable.dirty.ratio": "0.01"})
    server.wait(topic)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "batch"
        for number in range(batches // 8):
            value = random_bytes.randbytes(1000)
            records = [
                Record(f"key-{number}-{place:06d}".encode(), value, 1_700_000_000_000) for place in range(KEYED_RECORDS)
            ]
            path.write_bytes(build_batch(records))
            generate("produce", server, "--topic", topic, "--requests", "8", "--batch-file", str(path))


def _make_compacted(server: Server, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{server.port}", "log_level": 0})
    change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result(60)


def _compact(server: Server, topic: str) -> float:
    """Return the seconds from the change of the topic's policy until the checkpoint covers all but its active segment."""
    began = time.monotonic()
    _make_compacted(server, topic)
    while not _cleaned(server, topic):
        if time.monotonic() - began > COMPACTED_WITHIN_S:
            raise BenchError(f"{server.name} did not compact {topic} within {COMPACTED_WITHIN_S} s")
        time.sleep(0.01)
    return time.monotonic() - began


def _cleaned(server: Server, topic: str) -> bool:
    checkpoint = read_offset_checkpoint(server.directory / "data" / "cleaner-offset-checkpoint")
    active = max(int(path.stem) for path in (server.directory / "data" / f"{topic}-0").glob("*.log"))
    return checkpoint.get((topic, 0), 0) >= active


def _log_bytes(server: Server, topic: str) -> int:
    return sum(path.stat().st_size for path in (server.directory / "data" / f"{topic}-0").glob("*.log"))


def many_groups(kind: type[Server]) -> Figures:
    """Return the memory that a new broker needs more after many groups have committed; one group has committed before."""
    topic = "read"
    with _fresh(kind) as server:
        _serve(server, topic, KEPT_OFFSETS)
        load = ("--topic", topic, "--partitions", str(KEPT_OFFSETS), "--groups")
        generate("groups", server, *load, "1")
        server.check()
        before = server.pss()
        generate("groups", server, *load, str(KEPT_GROUPS))
        return {"pss_mb": (server.pss() - before) / MB}


def _fill(server: Server, topics: list[str]) -> None:
    """Write one record to each partition, because empty logs need no recovery."""
    for topic in topics:
        generate("fill", server, "--topic", topic, "--partitions", str(PARTITIONS))


LIFE = {
    "rest-and-start": rest_and_start,
    "many-partitions": many_partitions,
    "recovery": recovery,
    "verify": verify,
    "many-groups": many_groups,
    "compaction": compaction,
    "beside-compaction": beside_compaction,
    "fetch-downconverted": fetch_downconverted,
    "fetch-committed": fetch_committed,
    "transactional-ids": transactional_ids,
}


LIFE_ROWS = (
    Row("rest-and-start", "a broker without topics", runs_separately, (
        Target("start_s", "s start to first answer", 0.1, middle=True, absolute=0.3),
        Target("pss_mb", "MB PSS at rest", 0.17, middle=True),
    )),
    Row("many-partitions", "10,000 partitions", runs_separately, (
        Target("listen_s", "s to listen after a clean stop", 0.1, absolute=1.5),
        Target("clean_s", "s until all answer, clean", 0.1, absolute=1.5),
        Target("unclean_s", "s until all answer, after kill -9", 0.1, absolute=4.0),
        Target("stop_s", "s to stop", 0.1, absolute=0.5),
        Target("unflushed_stop_s", "s to stop, a record to flush in each", 1.0),
        Target("pss_mb", "MB PSS", 0.1, absolute=100.0),
    )),
    Row("many-groups", "5,000 groups with 8 offsets each", runs_separately, (
        Target("pss_mb", "MB PSS more", 0.5, middle=True),
    )),
    Row("recovery", "recovery of 2 GB in 4 logs after kill -9", runs_separately, (
        Target("rate", "GB/s recovered", 3.0, more_is_better=True, middle=True),
    )),
    Row("verify", "log verify of 1 GB in 4 logs, against DumpLogSegments", runs_separately, (
        Target("rate", "GB/s verified, start of the command included", 1.0, more_is_better=True, middle=True),
        Target("cpu_s", "s CPU per GB verified", 0.33),
    )),
    Row("compaction", "compaction of 0.5 GB, seven of eight records superseded", runs_separately, (
        Target("rate", "MB/s compacted", 1.0, more_is_better=True, middle=True),
        Target("cpu_s", "s CPU per GB compacted", 1.0),
    )),
    Row("beside-compaction", "produce acks=1, one in flight, beside a compaction", runs_separately, (
        Target("p99", "us p99", 1.0, middle=True), Target("slower", "x its p99 alone", 2.0, middle=True, absolute=2.0),
    )),
    Row("fetch-downconverted", "fetch by version 2 of record batches, against Kafka 3.9", runs_separately, (
        Target("cpu_s", "s CPU per GB of messages", 1.0),
        Target("rate", "MB/s", 1.0, more_is_better=True, middle=True),
    )),
    Row("fetch-committed", "fetch at read_committed, 0.5 GB in 100,000 transactions", runs_separately, (
        Target("none_cpu_s", "s CPU per GB, none aborted", 0.6),
        Target("none_more", "x read_uncommitted, none aborted", 2.0, absolute=1.02),
        Target("few_cpu_s", "s CPU per GB, 1 % aborted", 0.6),
        Target("few_more", "x read_uncommitted, 1 % aborted", 2.0, absolute=1.1),
        Target("all_cpu_s", "s CPU per GB, all aborted", 0.6),
        Target("all_more", "x read_uncommitted, all aborted", 2.0, absolute=1.3),
    )),
    Row("transactional-ids", "start with 100,000 transactional ids", runs_separately, (
        Target("load_s", "s from the first answer until all are served", 0.3, middle=True),
        Target("start_s", "s from the start until all are served", 0.3, middle=True),
        Target("pss_mb", "MB PSS more", 0.3, middle=True),
    )),
)  # fmt: skip
KINDS: dict[str, type[Server]] = {"ours": Ours, "Kafka": Kafka}
