"""Executes long requests in steps in the event loop of the coordinator process, which does other work between the steps
(docs/decisions/0022-what-one-request-may-cost.md). Used only in that loop; `LoopSlices` limits the time of the steps in a turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from odradek.net.forward_frames import Status
from odradek.processes.coordinator.forwarded import ServedRequest
from odradek.processes.slices import LoopSlices
from odradek.security.owners import owner_of
from odradek.stepwise import Steps, Stepwise

log = logging.getLogger("odradek.requests")


class RequestSteps:
    """See the module. Of the requests of one owner (`owner_of`), one is executed at a time, so that a client with many
    connections needs no more memory and no more time than one with one connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._slices = LoopSlices(loop)
        self._queues: dict[str, deque[_Work]] = {}  # by owner: the first request is executed, the others wait

    def begin(self, request: ServedRequest, steps: Steps) -> None:
        """Execute the first step now, and the others in later turns of the loop.

        The remaining steps are dropped if the request is answered before they end, or if its client closes the connection or
        its own direction of it. If a later step fails, the client's connection is closed. An exception of the first step
        reaches the caller.
        """
        work = _Work(request, steps)
        if not work.steps.step():
            return
        owner = owner_of(request.context.principal, request.context.peer)
        queue = self._queues.setdefault(owner, deque())
        queue.append(work)

        def gone() -> None:
            work.fail()
            if work in queue and queue[0] is not work:  # the first one ends with its next step
                queue.remove(work)

        request.when_gone(gone)
        if len(queue) == 1:
            self._slices(lambda: self._continue(owner, queue))

    def _continue(self, owner: str, queue: deque[_Work]) -> bool:
        """Execute a step of the first request of an owner; returns whether there are more."""
        if not queue[0].step():
            queue.popleft()
        if queue:
            return True
        del self._queues[owner]
        return False


class _Work:
    """The remaining steps of a request."""

    def __init__(self, request: ServedRequest, steps: Steps) -> None:
        self._request = request
        self.steps = Stepwise(steps, lambda: request.answered)

    def step(self) -> bool:
        """Execute a step; returns whether there is another one."""
        try:
            return self.steps.step()
        except Exception:
            context = self._request.context
            log.exception("a request of %s failed; its connection is closed", context.client, extra=context.log_fields)
            self.fail()
            return False

    def fail(self) -> None:
        """Answer with an error, unless the request was answered before."""
        self._request.answer(b"", 0, int(Status.FAILED))
