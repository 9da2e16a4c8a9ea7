"""The wall clock: the time of records, files and log lines. Stateless; every process and thread may use it."""

import time


def now_ms() -> int:
    """The present time in ms since 1970. It can jump; measure durations with `time.monotonic`."""
    return time.time_ns() // 1_000_000
