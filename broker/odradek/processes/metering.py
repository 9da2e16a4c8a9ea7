"""What processes count of themselves: how busy they are (twice a second or so, from the loop's own timer, in the thread that
it is about), and with which errors they answer what was forwarded to them."""

import time
from collections.abc import Generator, Sequence
from typing import NamedTuple

import odradek._ext.shm.meter_reading as meter_reading
from odradek._ext.shm.metering import count, count_failed_request, count_request_errors
from odradek.api.answer_errors import errors_in_steps, leads_with_error
from odradek.net.forward_frames import ForwardContext


class UncountedErrors(NamedTuple):
    """What a worker does not see of an answer that it passes on.

    :param codes: the error codes but for the one that it finds at the beginning.
    :param of_request: whether it takes the request for one without error.
    """

    api_key: int
    codes: Sequence[int]
    of_request: bool


def uncounted_errors(api_key: int, response: object) -> Generator[None, None, UncountedErrors | None]:
    """Of a response, as objects; None if there is nothing that a worker does not see. In steps, for it may be large."""
    codes: list[int] = yield from errors_in_steps(api_key, response)
    told = bool(codes) and leads_with_error(api_key) and bool(getattr(response, "error_code", 0))
    if told:
        del codes[0]
    return UncountedErrors(api_key, codes, not told) if codes else None


def count_errors_of_response(uncounted: UncountedErrors | None, context: ForwardContext) -> None:
    """Count it in this process's page, in the client's name; in the thread of the loop."""
    if uncounted is None:
        return
    count_request_errors(uncounted.api_key, uncounted.codes)
    if uncounted.of_request:
        count_failed_request(context, uncounted.api_key)


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
