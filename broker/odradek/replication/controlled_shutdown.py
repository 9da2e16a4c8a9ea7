"""Controlled shutdown: a broker that is to stop asks the controller to move its leaderships to other brokers, while it still
serves. Used on the event loop of the coordinator.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from odradek.protocol.errors import ErrorCode, peer_error_text
from odradek.protocol.schemas import controlled_shutdown

log = logging.getLogger("odradek.replication")

NAMED = 5
"""The number of partitions that a log message names."""

Ask = Callable[[Any], Awaitable[Any]]
"""Sends a ControlledShutdown request to the controller and returns its response. Raises an exception without a response."""


async def shut_down(ask: Ask, broker_id: int, broker_epoch: Callable[[], int], retries: int, backoff_s: float) -> bool:
    """Ask until the controller has moved all leaderships that other brokers can take. Returns whether it has.

    :param retries: the number of attempts, controlled.shutdown.max.retries. :param backoff_s: the time between two attempts.
    """
    for attempt in range(1, retries + 1):
        try:
            response = await ask(controlled_shutdown.Request(broker_id=broker_id, broker_epoch=broker_epoch()))
        except Exception as error:
            reason = f"no response: {error}"
        else:
            if response.error_code == ErrorCode.NONE and not response.remaining_partitions:
                log.info("controlled shutdown: the leaderships of this broker were moved to other brokers")
                return True
            reason = _reason(response.error_code, response.remaining_partitions)
        last = attempt == retries
        log.warning(
            "controlled shutdown, attempt %d of %d: %s%s",
            attempt, retries, reason, "; stopping without it" if last else f"; retrying in {backoff_s:g} s",
        )  # fmt: skip
        if not last:
            await asyncio.sleep(backoff_s)
    return False


def _reason(code: int, remaining: Sequence[Any]) -> str:
    """The meaning of a response that is no success."""
    if code:
        return f"the controller responded with {peer_error_text(code)}"
    names = [f"{entry.topic_name}-{entry.partition_index}" for entry in remaining[:NAMED]]
    more = f" and {len(remaining) - NAMED} more" if len(remaining) > NAMED else ""
    return f"this broker still leads {', '.join(names)}{more}: no other replica is in sync and alive"
