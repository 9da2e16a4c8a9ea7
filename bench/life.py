"""The rows about a broker's own life: memory at rest, start, recovery, verifying, 10,000 partitions through stops and kills."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.brokers import KAFKA, ROOT, Kafka, Ours, Server, generate
from bench.rows import GB, MB, WORKED_BYTES, Figures, Row, Target, scratch

TOPICS, PARTITIONS = 10, 1000
RECOVERED_LOGS, RECOVERED_BYTES = 4, 2_000_000_000


def _launch(server: Server, first: bool) -> float:
    """Start without waiting; the monotonic time in ns at which that began."""
    if isinstance(server, Kafka) and not first:
        began = time.monotonic_ns()
        server.start_in_background()
        return began
    began = time.monotonic_ns()
    server.start()
    return began


def _fresh(kind: type[Server]) -> Server:
    return kind(Path(tempfile.mkdtemp(prefix="odradek-bench-")))


def rest_and_start(kind: type[Server]) -> Figures:
    """Start on a directory that has been used once; memory at rest."""
    server = _fresh(kind)
    try:
        server.start()
        server.wait()
        server.stop()
        began = _launch(server, first=False)
        answered = server.wait()["answered_ns"]
        server.check()
        pss = server.pss()
        stop = server.stop()
        return {"start_s": (answered - began) / 1e9, "pss_mb": pss / MB, "stop_s": stop}
    finally:
        server.end()


def many_partitions(kind: type[Server]) -> Figures:
    """10,000 partitions with a record each: stop, start, memory, stop; start, another record each, kill -9, start."""
    server = _fresh(kind)
    topics = [f"many{number}" for number in range(TOPICS)]
    try:
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
    finally:
        server.end()


def recovery(kind: type[Server]) -> Figures:
    """Two GB in four logs of one segment each, never flushed: `kill -9`, start; what that start takes more than one after
    an ordered stop is the recovery."""
    server = _fresh(kind)
    topic = "recovered"
    try:
        server.start()
        server.wait()
        server.create_topic(topic, RECOVERED_LOGS)
        server.wait(topic, RECOVERED_LOGS)
        scratch(RECOVERED_BYTES)
        figures = generate(
            "produce", server, "--topic", topic, "--partitions", str(RECOVERED_LOGS), "--conns", "4", "--inflight", "3",
            "--batch-bytes", "65536", "--size", "1000", "--requests", str(RECOVERED_BYTES // 65536),
        )  # fmt: skip
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
    finally:
        server.end()


def verify(kind: type[Server]) -> Figures:
    """One GB in four logs of a broker that was stopped: `odradek log verify`, and Kafka's DumpLogSegments, which checks the
    CRC of every batch too. The bytes are in the page cache."""
    server = _fresh(kind)
    topic = "verified"
    try:
        server.start()
        server.wait()
        server.create_topic(topic, RECOVERED_LOGS)
        server.wait(topic, RECOVERED_LOGS)
        scratch(WORKED_BYTES)
        generate(
            "produce", server, "--topic", topic, "--partitions", str(RECOVERED_LOGS), "--conns", "4", "--inflight", "3",
            "--batch-bytes", "65536", "--size", "1000", "--requests", str(WORKED_BYTES // 65536),
        )  # fmt: skip
        server.check()
        server.stop()
        data = server.directory / "data"
        logs = sorted(map(str, data.glob(f"{topic}-*/*.log")))
        size = sum(Path(log).stat().st_size for log in logs)
        if isinstance(server, Kafka):
            command = [str(KAFKA), "run", "org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(logs)]
        else:
            command = [sys.executable, "-m", "broker.cli.main", "log", "verify", "--json", str(data)]
        before = os.times()
        subprocess.run(command, stdout=subprocess.DEVNULL, cwd=ROOT, check=True)
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return {"rate": size / (after.elapsed - before.elapsed) / GB, "cpu_s": cpu * GB / size}
    finally:
        server.end()


def _fill(server: Server, topics: list[str]) -> None:
    """One record into each partition: logs that hold nothing need no recovery."""
    for topic in topics:
        generate("fill", server, "--topic", topic, "--partitions", str(PARTITIONS))


LIFE = {"rest-and-start": rest_and_start, "many-partitions": many_partitions, "recovery": recovery, "verify": verify}


def _unused(server: Server, topic: str) -> Figures:
    raise NotImplementedError("this row makes its own brokers: see LIFE")


LIFE_ROWS = (
    Row("rest-and-start", "a broker without topics", _unused, (
        Target("start_s", "s start to first answer", 0.1, middle=True, absolute=0.3),
        Target("pss_mb", "MB PSS at rest", 0.17, middle=True),
    )),
    Row("many-partitions", "10,000 partitions", _unused, (
        Target("listen_s", "s to listen after a clean stop", 0.1, absolute=1.5),
        Target("clean_s", "s until all answer, clean", 0.1, absolute=1.5),
        Target("unclean_s", "s until all answer, after kill -9", 0.1, absolute=4.0),
        Target("stop_s", "s to stop", 0.1, absolute=0.5),
        Target("unflushed_stop_s", "s to stop, a record to flush in each", 1.0),
        Target("pss_mb", "MB PSS", 0.1, absolute=100.0),
    )),
    Row("recovery", "recovery of 2 GB in 4 logs after kill -9", _unused, (
        Target("rate", "GB/s recovered", 3.0, more_is_better=True, middle=True),
    )),
    Row("verify", "log verify of 1 GB in 4 logs, against DumpLogSegments", _unused, (
        Target("rate", "GB/s verified, start of the command included", 1.0, more_is_better=True, middle=True),
        Target("cpu_s", "s CPU a GB verified", 0.33),
    )),
)  # fmt: skip
KINDS: dict[str, type[Server]] = {"ours": Ours, "Kafka": Kafka}
