"""``python -m bench.parallel_consumer``: records per second with a slow handler, of a plain poll loop and of ParallelConsumer.

The handler waits for each record (``--work-ms``), as for a call to a database. Measured from the first handled record to
the last, with records in all partitions and with all records in one partition, in order by key. Prints a table; needs no Java.
``--empty``: instead, the time for a record with a handler that does nothing, which is what the consumer itself costs.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Message, Producer

from odradek.clients.parallel_consumer import ParallelConsumer
from odradek.testing import Broker

PARTITIONS, KEYS = 6, 1000


class Work:
    """The slow handler; it records the times of the first record and of the last of `count` records."""

    def __init__(self, work_s: float, count: int) -> None:
        self._work_s, self._count = work_s, count
        self._lock = threading.Lock()
        self._done = 0
        self.began = self.ended = 0.0
        self.finished = threading.Event()

    def __call__(self, message: Message) -> None:
        with self._lock:
            self.began = self.began or time.monotonic()
        if self._work_s:
            time.sleep(self._work_s)
        with self._lock:
            self._done += 1
            if self._done == self._count:
                self.ended = time.monotonic()
                self.finished.set()

    @property
    def per_second(self) -> float:
        return self._count / (self.ended - self.began)


def fill(servers: str, topic: str, count: int, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        if not number % 1000:
            producer.flush(60)  # the queue of the library is limited
        producer.produce(topic, b"x" * 200, str(number % KEYS).encode(), partition=number % partitions)
    if producer.flush(60):
        raise RuntimeError(f"could not produce all of the {count} records to {topic} within 60 s")


def plain(config: dict[str, Any], topic: str, work: Work) -> None:
    consumer = Consumer({**config, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while not work.finished.is_set():
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            work(message)
    consumer.close()


def parallel(workers: int) -> Callable[[dict[str, Any], str, Work], None]:
    def run(config: dict[str, Any], topic: str, work: Work) -> None:
        consumer = ParallelConsumer(config, [topic], work, workers=workers, order="key")
        thread = threading.Thread(target=consumer.run)
        thread.start()
        while not work.finished.wait(1.0):
            if not thread.is_alive():
                raise RuntimeError("the ParallelConsumer ended before it had handled all records")
        consumer.stop()
        thread.join()

    return run


def empty(records: int, rounds: int, workers: list[int]) -> None:
    """Print the time for a record without work: the least of some rounds, because other programs use the machine too."""
    ways: list[tuple[str, Callable[[dict[str, Any], str, Work], None]]] = [("plain poll loop", plain)]
    ways += [(f"{count} workers", parallel(count)) for count in workers]
    best = {name: (float("inf"), float("inf")) for name, _ in ways}
    with Broker({"group.initial.rebalance.delay.ms": 0}, {"all": PARTITIONS}) as broker:
        fill(broker.bootstrap_servers, "all", records, PARTITIONS)
        for number in range(rounds):
            for name, run in ways:
                work, before = Work(0.0, records), os.times()
                run({"bootstrap.servers": broker.bootstrap_servers, "group.id": f"{name} {number}"}, "all", work)
                after = os.times()
                cpu_s = after.user + after.system - before.user - before.system
                wall_us, cpu_us = 1e6 / work.per_second, 1e6 * cpu_s / records
                best[name] = min(best[name][0], wall_us), min(best[name][1], cpu_us)
    print(f"{'empty handler':24}{'us per record':>16}{'CPU us per record':>20}")
    for name, (wall_us, cpu_us) in best.items():
        print(f"{name:24}{wall_us:>16.1f}{cpu_us:>20.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work-ms", type=float, default=5.0, help="ms that the handler waits per record (default 5)")
    parser.add_argument(
        "--records",
        type=int,
        default=500,
        help="number of records for the plain loop; with N workers N times as many, at most 10 times (default 500)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        nargs="+",
        default=[1, 4, 16, 64],
        help="numbers of workers to measure (default 1 4 16 64)",
    )
    parser.add_argument(
        "--empty",
        type=int,
        metavar="RECORDS",
        help="measure the time for each of so many records with a handler that does nothing",
    )
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds of --empty (default 5)")
    arguments = parser.parse_args()
    if arguments.empty:
        empty(arguments.empty, arguments.rounds, arguments.workers)
        return
    print(f"work of {arguments.work_ms:g} ms per record, {KEYS} keys, order by key\n")
    print(
        f"{'':24}{f'{PARTITIONS} partitions':>20}{'one hot partition':>20}   records per second (times the plain loop)"
    )
    ways = [
        ("plain poll loop", 1, plain),
        *((f"{count} workers", count, parallel(count)) for count in arguments.workers),
    ]
    base: dict[int, float] = {}
    with Broker({"group.initial.rebalance.delay.ms": 0}, {"all": PARTITIONS, "hot": PARTITIONS}) as broker:
        written = arguments.records * 10
        fill(broker.bootstrap_servers, "all", written, PARTITIONS)
        fill(broker.bootstrap_servers, "hot", written, 1)
        for name, workers, run in ways:
            cells = ""
            for column, topic in enumerate(("all", "hot")):
                work = Work(arguments.work_ms / 1000, arguments.records * min(workers, 10))
                run({"bootstrap.servers": broker.bootstrap_servers, "group.id": f"{name} {topic}"}, topic, work)
                times = work.per_second / base.setdefault(column, work.per_second)
                cells += f"{f'{work.per_second:,.0f} ({times:.1f})':>20}"
            print(f"{name:24}{cells}", flush=True)


if __name__ == "__main__":
    main()
