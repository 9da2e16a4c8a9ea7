"""Executes long requests in steps in the event loop of the coordinator process, which does other work between the steps
(docs/decisions/0022-what-one-request-may-cost.md). Used only in that loop; `LoopSlices` limits the time of the steps in a turn.
"""

import asyncio
import logging

from odradek.api.stepwise import Steps, Stepwise
from odradek.net.forward_frames import Status
from odradek.processes.forwarded import ServedRequest
from odradek.processes.slices import LoopSlices

log = logging.getLogger("odradek.requests")


class RequestSteps:
    """See the module."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._slices = LoopSlices(loop)

    def begin(self, request: ServedRequest, steps: Steps) -> None:
        """Execute the first step now, and the others in later turns of the loop.

        The remaining steps are dropped if the request is answered before they end, or if its client disconnects. If a later
        step raises an exception, the client's connection is closed. An exception of the first step reaches the caller.

        :param steps: answers the request itself; the return value of the generator is ignored.
        """
        work = Stepwise(steps, lambda: request.answered)
        if not work.step():
            return

        def fail() -> None:
            request.answer(b"", 0, int(Status.FAILED))

        def step() -> bool:
            try:
                return work.step()
            except Exception:
                client, fields = request.context.client, request.context.log_fields
                log.exception("a request of %s failed; its connection is closed", client, extra=fields)
                fail()
                return False

        request.when_gone(fail)
        self._slices(step)
