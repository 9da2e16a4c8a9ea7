"""Requests that workers forward to the coordinator: what its places share."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

from odradek._ext.net.arrivals import Arrival
from odradek.api.pipeline import Host, NotServed
from odradek.net.forward_frames import ForwardContext, ForwardReply, Status


class ServedRequest(Protocol):
    """A request for code that answers it at once or later, without a task: an `Arrival`, or an `AwaitedRequest`."""

    @property
    def kind(self) -> int: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def context(self) -> ForwardContext: ...
    @property
    def api_key(self) -> int: ...
    @property
    def answered(self) -> bool: ...
    def answer(self, payload: bytes, metadata_version: int = 0, status: int = 0) -> None: ...
    def when_gone(self, callback: Callable[[], None]) -> None: ...


class AwaitedRequest:
    """A request that a task serves with code that otherwise answers requests without a task.

    A task serves it because an earlier request of its connection has an unfinished task (see `ForwardServer`).

    :ivar reply: the answer. If the task is cancelled, the answer is ignored.
    """

    def __init__(self, request: Arrival) -> None:
        self.kind = request.kind
        self.payload = request.payload
        self.context: ForwardContext = request.context
        self.api_key = request.api_key
        self.deadline = request.deadline
        self.reply: asyncio.Future[ForwardReply] = asyncio.get_running_loop().create_future()

    @property
    def answered(self) -> bool:
        """Whether the request was answered, or its task was cancelled."""
        return self.reply.done()

    def answer(self, payload: bytes, metadata_version: int = 0, status: int = 0) -> None:
        """Answer the request, unless it was answered before."""
        if not self.reply.done():
            self.reply.set_result(ForwardReply(Status(status), metadata_version, payload))

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Call `callback` if the client's connection ends before the request is answered: then the task is cancelled."""
        self.reply.add_done_callback(lambda reply: callback() if reply.cancelled() else None)

    def park(self) -> None:
        """Release `payload`."""
        self.payload = b""


class ForwardedHost(Host):
    """A place of the coordinator, whose requests are forwarded with a context and a deadline."""

    def deadline(self, request: Any) -> float | None:
        """See `Host`."""
        deadline: float = request.deadline
        return deadline


def refused(executed: NotServed, request: Arrival | ServedRequest, log: logging.Logger) -> ForwardReply:
    """The reply that closes the connection of a request that is not executed; the reason is logged."""
    if executed.reason is None:
        return ForwardReply(Status.FAILED, 0)
    if not executed.malformed:
        return ForwardReply(Status.UNSUPPORTED, 0)
    api = "" if executed.row is None else f"{executed.row.name} "
    log.warning(
        "cannot decode a %srequest of %s: %s; its connection is closed",
        api, request.context.client, executed.reason, extra=request.context.log_fields,
    )  # fmt: skip
    return ForwardReply(Status.MALFORMED, 0)
