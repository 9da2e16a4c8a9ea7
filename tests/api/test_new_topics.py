"""A worker that was not woken yet sees the topics that the coordinator announced before its clients sent their requests."""

from pathlib import Path

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch, produce
from tests.api.worker_harness import HandWorker
from tests.wire import batch, fetch_request, produce_request


def ask(worker: HandWorker, request: object, key: int) -> int:
    """The error of the only partition of a Produce or a Fetch."""
    wire = worker.connect()
    wire.send(request, key, 12)
    worker.turn()
    (topic,) = wire.receive().responses
    (part,) = topic.partition_responses if key == produce.API_KEY else topic.partitions
    return int(part.error_code)


@pytest.mark.parametrize("key", [produce.API_KEY, fetch.API_KEY])
def test_a_topic_is_known_as_soon_as_it_is_announced_and_unknown_as_soon_as_it_is_deleted(
    tmp_path: Path, key: int
) -> None:
    worker = HandWorker(tmp_path)
    try:
        made = [("t", [(0, batch(b"x"))])], [("t", 0, 0)]
        request = produce_request(made[0]) if key == produce.API_KEY else fetch_request(made[1])
        assert ask(worker, request, key) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        slot = worker.broker.create("t")
        assert ask(worker, request, key) == ErrorCode.NONE
        worker.broker.table.delete(slot)
        worker.broker.table.announce([slot])
        assert ask(worker, request, key) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    finally:
        worker.close()
