"""A group member in a separate process that tests kill: ``python -m tests.parallel.member``, settings as JSON in argv.

Each processed record becomes one line of a file, written with one system call before the record counts as processed.
Ends in good order on SIGTERM, once there is a file named after it and its process.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from odradek.clients import ParallelConsumer


def main() -> None:
    settings = json.loads(sys.argv[1])
    out = os.open(settings["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def work(message):
        slow = message.offset() % settings["slow_every"] == 0
        time.sleep(settings["slow_s" if slow else "work_s"])  # the slow work; others overtake the slowest
        os.write(out, f"{os.getpid()} {message.partition()} {message.offset()}\n".encode())

    consumer = ParallelConsumer(settings["config"], [settings["topic"]], work, **settings["options"])
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    Path(f"{settings['file']}.{os.getpid()}").touch()  # from here on SIGTERM is an ordered end
    consumer.run()


if __name__ == "__main__":
    main()
