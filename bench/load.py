"""Measures `odradek load run` against the Spark job that a user would write: ``python -m bench.load --records 2000000``.

Starts a broker, writes records of 200 B to four partitions, and loads all of them several times, in turn: with ``--reader
python``, with ``--reader kafka``, and with a job that reads Spark's Kafka source and writes Parquet files by date with Spark's
own writer. Each job is a process. Its CPU time is that of the process and all its descendants: also of Spark's JVM and its
Python workers. A job with one record shows what starts and ends cost. Prints a row of a table for each job, with medians and
the smallest and largest value.
"""

import argparse
import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

from odradek.testing import Broker
from tests.toolchains import spark_kafka_jars

PARTITIONS, SIZE = 4, 200
PR_SET_CHILD_SUBREAPER = 36
JOBS = ("python", "kafka", "own")
OWN_JOB = """
import sys
from pyspark.sql import SparkSession
servers, output, jars, topic = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[*]").config("spark.jars", jars).config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false").config("spark.sql.parquet.compression.codec", "zstd").getOrCreate()
)
records = (
    spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    .option("startingOffsets", "earliest").option("includeHeaders", "true").load()
)
records.selectExpr("*", "date(timestamp) as date").write.partitionBy("topic", "date").parquet(output)
spark.stop()
"""


def fill(servers: str, topic: str, count: int) -> None:
    """Write so many records of random text."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "batch.size": 1 << 18})
    text = os.urandom(SIZE * 512).hex()
    for number in range(count):
        first = number * 37 % (len(text) - SIZE)
        while True:
            try:
                producer.produce(
                    topic, text[first : first + SIZE], b"%d" % (number % 1000), partition=number % PARTITIONS
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def command(job: str, servers: str, output: Path, topic: str) -> list[str]:
    """The command line of a job."""
    jars = spark_kafka_jars()
    if job == "own":
        return [
            sys.executable,
            "-c",
            OWN_JOB,
            servers,
            str(output),
            ",".join(map(str, sorted(jars.glob("*.jar")))),
            topic,
        ]
    load = [sys.executable, "-m", "odradek.cli.main", "-b", servers, "load", "run", topic, "--out", str(output)]
    return [*load, "--reader", job, *(["--connector-jars", str(jars)] if job == "kafka" else [])]


def measured(job: str, servers: str, topic: str, directory: Path) -> tuple[float, float]:
    """Run a job in a process that adopts all its descendants. Returns its CPU time and its time, in seconds."""
    output = directory / "output"
    start = time.monotonic()
    child = os.fork()
    if not child:
        try:
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
            with open(directory / "job.log", "ab") as log:
                process = subprocess.Popen(command(job, servers, output, topic), stdout=log, stderr=log)
            code = process.wait()
            while True:  # what the job left: Spark's JVM ends after the process that started it
                try:
                    os.wait()
                except ChildProcessError:
                    break
            os._exit(code)
        finally:
            os._exit(1)
    _, status, usage = os.wait4(child, 0)
    assert status == 0, (directory / "job.log").read_text()[-3000:]
    shutil.rmtree(output)
    return usage.ru_utime + usage.ru_stime, time.monotonic() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", nargs="*", default=list(JOBS), choices=JOBS)
    options = parser.parse_args()
    topics = {"records": options.records, "one": 1}
    with tempfile.TemporaryDirectory() as name, Broker(topics=dict.fromkeys(topics, PARTITIONS)) as broker:
        for topic, count in topics.items():
            fill(broker.bootstrap_servers, topic, count)
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for _ in range(options.rounds):
            for job in options.jobs:
                for topic in topics:
                    figures = measured(job, broker.bootstrap_servers, topic, Path(name))
                    found.setdefault((job, topic), []).append(figures)
                    print(f"{job} {topic}: {figures[0]:.1f} s CPU, {figures[1]:.1f} s", file=sys.stderr)
    print("| job | topic | s CPU | s |\n| --- | --- | --- | --- |")
    for (job, topic), rounds in found.items():
        cells = [
            f"{statistics.median(column):.1f} ({min(column):.1f} to {max(column):.1f})"
            for column in zip(*rounds, strict=True)
        ]
        print(f"| {job} | {topic} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
