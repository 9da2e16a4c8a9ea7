"""How busy a process is: counted twice a second or so, from its loop's own timer, in the thread that it is about."""

import time

import broker._ext.meter_reading as meter_reading
from broker._ext.metering import count


class BusyTime:
    """Adds to `cpu_us` (the calling thread's CPU time) and to `busy_us` (the same, or the time in turns of the data loop where
    that is longer: a turn that waits for the disk serves nobody else)."""

    def __init__(self) -> None:
        self._cpu_us = self._thread_us()
        self._turn_us = meter_reading.own_turn_us()

    @staticmethod
    def _thread_us() -> int:
        return time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID) // 1000

    def tick(self) -> None:
        """Count what has passed since the last call."""
        cpu_us, turn_us = self._thread_us(), meter_reading.own_turn_us()
        count("cpu_us", cpu_us - self._cpu_us)
        count("busy_us", max(cpu_us - self._cpu_us, turn_us - self._turn_us))
        self._cpu_us, self._turn_us = cpu_us, turn_us
