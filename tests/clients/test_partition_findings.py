"""The sentences of `odradek partition explain` about what is unusual in one broker's description of a partition."""

from typing import Any

import pytest

from odradek.clients.partitions import findings
from odradek.protocol.schemas import explain_partition

Response = explain_partition.Response


def leader(**changes: Any) -> Any:
    """Broker 1 leads; all three replicas are in sync."""
    fields: dict[str, Any] = {
        "broker_id": 1, "state": "online", "role": "leader", "leader_id": 1, "leader_epoch": 7, "published_leader": 1,
        "published_epoch": 7, "log_end_offset": 130, "high_watermark": 130, "min_in_sync_replicas": 2,
        "replicas": [1, 2, 3], "in_sync_replicas": [1, 2, 3], "maximal_in_sync": [1, 2, 3], "in_sync_state": "committed",
    }  # fmt: skip
    return Response(**(fields | changes))


def follower(broker_id: int, log_end_offset: int, fetched_ms_ago: int = 40) -> Any:
    return Response.Follower(broker_id=broker_id, log_end_offset=log_end_offset, fetched_ms_ago=fetched_ms_ago)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (leader(), []),
        (
            leader(failing_tasks=[Response.FailingTask(task="compaction", reason="no valid batch", since_ms=1000)]),
            ["the task 'compaction' fails here since 1970-01-01T00:00:01Z: no valid batch"],
        ),
        (
            leader(high_watermark=120, followers=[follower(2, 130), follower(3, 120)]),
            ["the high watermark waits for broker 3, which is 10 records behind and fetched 40 ms ago"],
        ),
        (
            leader(high_watermark=0, followers=[follower(2, -1, -1), follower(3, 130)]),
            ["the high watermark waits for broker 2, which is 130 records behind and fetched never in this epoch"],
        ),
        (
            leader(high_watermark=120, in_sync_replicas=[1], maximal_in_sync=[1], followers=[follower(2, 120)]),
            ["1 replicas are in sync and min.insync.replicas is 2: writes with acks=all are refused, and the high watermark "
             "does not move"],
        ),
        (
            leader(high_watermark=120, replicas=[1], in_sync_replicas=[1], maximal_in_sync=[1]),
            ["the high watermark waits for the device, or for a flush"],
        ),
        (
            leader(in_sync_state="shrinking", in_sync_ms=900),
            ["replicas are to be removed from the in-sync replicas; the controller has not decided for 900 ms"],
        ),
        (
            leader(recovering=True, adding_replicas=[4], removing_replicas=[2, 3]),
            ["the leader was elected uncleanly: records that were acknowledged before may be lost",
             "a reassignment is under way: it adds 4 and removes 2, 3"],
        ),
        (
            leader(published_leader=2, published_epoch=6),
            ["clients are still sent to leader 2 of epoch 6, this broker follows epoch 7"],
        ),
        (
            leader(role="follower", fetch_error=6),
            ["this broker does not fetch from its leader: error 6"],
        ),
        (
            leader(lost_tail="led", lost_tail_bytes=90, lost_tail_end=40),
            ["the log lost its end when this broker loaded it: 90 bytes were cut off, and it ended at offset 40; this broker "
             "became the leader without these records, so that acknowledged records may be lost"],
        ),
        (
            leader(role="none", lost_tail="lost", lost_tail_end=40),
            ["the log lost its end when this broker loaded it: an unknown number of bytes was cut off, and it ended at offset "
             "40; it is not in sync again"],
        ),
        (leader(role="none", state="offline", published_epoch=9), ["the log of this broker is offline"]),
    ],
    ids=["nothing", "a task", "behind", "never fetched", "too few in sync", "one replica", "proposal", "unclean and reassigned",
         "stale view", "follower", "lost and led", "lost", "offline"],
)  # fmt: skip
def test_findings(facts: Any, expected: list[str]):
    assert list(findings(facts)) == expected
