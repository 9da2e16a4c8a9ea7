"""A ParallelConsumer in a separate process whose handlers block at first: ``python -m tests.parallel.hoarder SETTINGS``.

SETTINGS is JSON. Handlers wait until every partition is paused; then all records are processed. Prints as JSON by how many
bytes the process grew at its peak, and two counters.
"""

import json
import sys
import threading
from pathlib import Path

from odradek.clients import ParallelConsumer
from odradek.clients.parallel_consumer import Counters

LIMIT_S = 300


def status(name):
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


class WhenAllArePaused(Counters):
    """Counters that set an event when enough partitions are paused."""

    partitions = 0
    event = threading.Event()

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "pauses" and value >= self.partitions > 0:
            self.event.set()


def main():
    settings = json.loads(sys.argv[1])
    processed = threading.Semaphore(0)

    def work(_):
        assert counters.event.wait(LIMIT_S), counters
        processed.release()

    consumer = ParallelConsumer(settings["config"], [settings["topic"]], work, **settings["options"])
    counters = consumer.counters = WhenAllArePaused()
    counters.partitions = settings["partitions"]
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    before = status("VmRSS")

    def watch():
        try:
            for _ in range(settings["records"]):
                assert processed.acquire(timeout=LIMIT_S), counters
        finally:
            consumer.stop()

    threading.Thread(target=watch, daemon=True).start()
    consumer.run()
    print(json.dumps({"grown": status("VmHWM") - before, "pauses": counters.pauses, "polled": counters.polled}))


if __name__ == "__main__":
    main()
