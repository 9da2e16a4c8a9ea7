"""The attempts of a broker that stops to have its leaderships moved."""

import asyncio
import logging
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import controlled_shutdown
from odradek.replication.controlled_shutdown import shut_down

Response = controlled_shutdown.Response


def remaining(count: int) -> Any:
    entry = Response.RemainingPartition
    return Response(remaining_partitions=[entry(topic_name="orders", partition_index=index) for index in range(count)])


def attempts(*outcomes: Any, retries: int = 3) -> tuple[bool, list[Any]]:
    """The result, and the requests that were sent."""
    requests: list[Any] = []
    epochs = iter(range(40, 50))
    given = iter(outcomes)

    async def ask(request: Any) -> Any:
        requests.append(request)
        outcome = next(given)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return asyncio.run(shut_down(ask, 2, lambda: next(epochs), retries, 0.0)), requests


def test_it_ends_when_the_controller_has_moved_everything():
    moved, requests = attempts(Response())
    assert moved
    assert [(request.broker_id, request.broker_epoch) for request in requests] == [(2, 40)]


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (ConnectionError("the network is down"), "no response: the network is down"),
        (Response(error_code=ErrorCode.STALE_BROKER_EPOCH), "STALE_BROKER_EPOCH"),
        (Response(error_code=12345), "error 12345"),
        (remaining(2), "still leads orders-0, orders-1: "),
        (remaining(7), "orders-4 and 2 more: "),
    ],
)
def test_it_is_repeated_with_the_present_epoch(outcome: Any, text: str, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "odradek.replication")
    moved, requests = attempts(outcome, Response())
    assert moved
    assert [request.broker_epoch for request in requests] == [40, 41]
    assert text in caplog.text


def test_it_gives_up_after_the_last_attempt(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "odradek.replication")
    moved, requests = attempts(*[remaining(1)] * 3)
    assert not moved
    assert len(requests) == 3
    assert "stopping without it" in caplog.text
