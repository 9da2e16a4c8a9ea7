"""Records the disk use of a real broker under a load with a weekly rhythm, with a day made two seconds long.

Run by a person (``python -m tests.jobs.record_disk_use DAYS FILE``), never by a test: the tests read what it recorded,
`data/recorded-disk-use.csv`, a line a quarter of a day: day (a fraction), bytes allocated under the log directory.
One topic keeps everything, one comes to its retention after nine days, one is deleted on day 30 (its files go
as the broker gets to it, three of these short days later).
"""

import contextlib
import random
import sys
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.testing import Broker

DAY_S = 2.0
QUARTERS = 4
TOPICS = {
    "kept": ({"retention.ms": "-1"}, 260_000),
    "retained": ({"retention.ms": str(int(9 * DAY_S * 1000))}, 120_000),
    "deleted": ({"retention.ms": "-1"}, 60_000),
}


def allocated(directory: Path) -> int:
    """Bytes that the files of `directory` take on the disk; a file that goes meanwhile takes none."""
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_blocks * 512
    return total


def record(days: int, out: Path) -> None:
    draw = random.Random(7)
    settings = {
        "log.retention.check.interval.ms": "300", "log.segment.delete.delay.ms": "0", "log.segment.bytes": "1048576",
        "log.roll.ms": "1000", "log.index.size.max.bytes": "4096",
    }  # fmt: skip
    with Broker(settings) as broker, open(out, "w") as file:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        made = admin.create_topics([NewTopic(name, 2, 1, config=config) for name, (config, _) in TOPICS.items()])
        for future in made.values():
            future.result()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
        file.write("day,bytes\n")
        start = time.monotonic()
        for quarter in range(days * QUARTERS):
            day = quarter / QUARTERS
            weekend = int(day) % 7 >= 5
            for name, (_, daily) in TOPICS.items():
                if name == "deleted" and day >= 30:
                    continue
                amount = daily / QUARTERS * (0.4 if weekend else 1.24) * draw.lognormvariate(0, 0.3)
                for _ in range(max(1, int(amount / 2000))):
                    producer.produce(name, draw.randbytes(1900))
            producer.flush(60)
            if day == 30:
                admin.delete_topics(["deleted"])["deleted"].result()
            wait = start + (quarter + 1) * DAY_S / QUARTERS - time.monotonic()
            if wait > 0:
                time.sleep(wait)  # this is the load's own pace, not a wait for something
            file.write(f"{(time.monotonic() - start) / DAY_S:.3f},{allocated(broker.data_dir)}\n")


if __name__ == "__main__":
    record(int(sys.argv[1]), Path(sys.argv[2]))
