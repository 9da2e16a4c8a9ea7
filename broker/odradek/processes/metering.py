"""Metrics that a process counts about itself: how busy it is (about twice a second, from the loop's timer, in the measured
thread), and the errors of the forwarded requests that it answers."""

import time
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import odradek._ext.shm.meter_reading as meter_reading
from odradek._ext.shm.metering import count, count_failed_request, count_request_errors
from odradek.api.answer_errors import errors_in_steps, errors_of
from odradek.api.table import BY_KEY
from odradek.net.forward_frames import ForwardContext


class UncountedErrors(NamedTuple):
    """The errors of a forwarded response that the forwarding worker does not count.

    :param codes: the error codes without the one at the beginning of the response, which the worker counts.
    :param of_request: whether the worker counts the request as successful, because the response does not begin with an error.
    """

    api_key: int
    codes: Sequence[int]
    of_request: bool


def uncounted_errors(api_key: int, response: object) -> Generator[None, None, UncountedErrors | None]:
    """The uncounted errors of a decoded response; None if the worker counts all. Works in steps: a response may be large."""
    codes: list[int] = yield from errors_in_steps(api_key, response)
    counted = bool(codes) and BY_KEY[api_key].leads_with_error and bool(getattr(response, "error_code", 0))
    if counted:
        del codes[0]
    return UncountedErrors(api_key, codes, not counted) if codes else None


def count_errors_of_response(uncounted: UncountedErrors | None, context: ForwardContext) -> None:
    """Count the errors in this process's meter page, attributed to the client; must run in the loop's thread."""
    if uncounted is None:
        return
    count_request_errors(uncounted.api_key, uncounted.codes)
    if uncounted.of_request:
        count_failed_request(context, uncounted.api_key)


def count_errors_at_once(api_key: int, response: Any, context: ForwardContext) -> None:
    """Count the errors of a small response, attributed to the client; must run in the loop's thread. The worker counts the code
    at the beginning of the response, if there is one."""
    codes = errors_of(api_key, response)
    if not codes:
        return
    if BY_KEY[api_key].leads_with_error:
        count_request_errors(api_key, codes[1:])
    else:
        count_request_errors(api_key, codes)
        count_failed_request(context, api_key)


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
