"""Metrics that a process counts about itself: how busy it is (about twice a second, from the loop's timer, in the measured
thread), and the errors of the forwarded requests that it answers."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import odradek._ext.shm.meter_reading as meter_reading
from odradek._ext.shm.metering import count, count_failed_request, count_request_errors
from odradek.api.pipeline import Outcome
from odradek.net.forward_frames import ForwardContext


class UncountedErrors(NamedTuple):
    """The errors of a forwarded response that the forwarding worker does not count.

    :param codes: the error codes without the one at the beginning of the response, which the worker counts.
    :param of_request: whether the worker counts the request as successful, because the response does not begin with an error.
    """

    api_key: int
    codes: Sequence[int]
    of_request: bool


def uncounted_errors(executed: Outcome) -> UncountedErrors | None:
    """The errors of a forwarded request that the worker does not count; None if it counts all."""
    codes, counted = executed.errors, executed.of_request and executed.row.leads_with_error
    if counted:
        codes = codes[1:]
    return UncountedErrors(executed.row.key, codes, not counted) if codes else None


def count_errors(uncounted: UncountedErrors | None, context: ForwardContext) -> None:
    """Count the errors in this process's meter page, attributed to the client; must run in the loop's thread."""
    if uncounted is None:
        return
    count_request_errors(uncounted.api_key, uncounted.codes)
    if uncounted.of_request:
        count_failed_request(context, uncounted.api_key)


class BusyTime:
    """Adds to `cpu_us` the calling thread's CPU time, and to `busy_us` the larger one of this CPU time and the time in turns of
    the data loop: during a turn that waits for the disk, the thread serves no other client."""

    def __init__(self) -> None:
        self._cpu_us = self._thread_us()
        self._turn_us = meter_reading.own_turn_us()

    @staticmethod
    def _thread_us() -> int:
        return time.clock_gettime_ns(time.CLOCK_THREAD_CPUTIME_ID) // 1000

    def tick(self) -> None:
        """Count the time since the last call."""
        cpu_us, turn_us = self._thread_us(), meter_reading.own_turn_us()
        count("cpu_us", cpu_us - self._cpu_us)
        count("busy_us", max(cpu_us - self._cpu_us, turn_us - self._turn_us))
        self._cpu_us, self._turn_us = cpu_us, turn_us
