"""What the brokers of a cluster know about one partition. Functions over a `Cluster`."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from odradek.clients.cluster import Cluster, Partition
from odradek.clients.errors import ClientError, RefusedError
from odradek.protocol.schemas import explain_partition

LEADER = "leader"


class Explained(NamedTuple):
    """What one broker knows. :param facts: an ExplainPartition response; None if the broker gave none, for `problem`."""

    broker_id: int
    facts: Any | None
    problem: str | None


def explain(cluster: Cluster, topic: str, number: int) -> tuple[Partition, list[Explained]]:
    """The partition as the metadata describes it, and as each broker with a replica describes it, the leader first.

    Raises RefusedError if the topic does not exist, ClientError for a partition that does not exist.
    """
    partition = cluster.partition(topic, number)
    order = sorted(partition.replicas, key=lambda broker_id: broker_id != partition.leader)
    return partition, [_explained(cluster, topic, number, broker_id) for broker_id in order]


def _explained(cluster: Cluster, topic: str, number: int, broker_id: int) -> Explained:
    api = explain_partition
    try:
        connection = cluster.broker(broker_id)
        if connection.serves(api.API_KEY) is None:
            return Explained(broker_id, None, "the broker is not an Odradek broker that can explain partitions")
        response = connection.ask(api.SCHEMA, api.Request(topic_name=topic, partition_index=number))
    except ClientError as error:
        return Explained(broker_id, None, str(error))
    if response.error_code:
        return Explained(broker_id, None, RefusedError(response.error_code, response.error_message).reason)
    return Explained(broker_id, response, None)


def findings(facts: Any) -> Iterator[str]:
    """Sentences about what is unusual in the facts of one broker: what the high watermark waits for, what is under way."""
    if facts.state != "online":
        yield f"the log of this broker is {facts.state}"
    if facts.lost_tail:
        yield _of_lost_tail(facts)
    for failing in facts.failing_tasks:
        since = datetime.fromtimestamp(failing.since_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        yield f"the task '{failing.task}' fails here since {since}: {failing.reason}"
    if facts.role == LEADER:
        yield from _of_leader(facts)
    elif facts.fetch_error:
        yield f"this broker does not fetch from its leader: error {facts.fetch_error}"
    if facts.adding_replicas or facts.removing_replicas:
        yield (
            f"a reassignment is under way: it adds {_ids(facts.adding_replicas)} and removes {_ids(facts.removing_replicas)}"
        )
    if facts.published_epoch != facts.leader_epoch and facts.role != "none":
        yield (
            f"clients are still sent to leader {facts.published_leader} of epoch {facts.published_epoch}, "
            f"this broker follows epoch {facts.leader_epoch}"
        )


def _of_lost_tail(facts: Any) -> str:
    cut = f"{facts.lost_tail_bytes} bytes were" if facts.lost_tail_bytes else "an unknown number of bytes was"
    lost = (
        f"the log lost its end when this broker loaded it: {cut} cut off, and it ended at offset {facts.lost_tail_end}"
    )
    if facts.lost_tail == "led":
        return f"{lost}; this broker became the leader without these records, so that acknowledged records may be lost"
    return f"{lost}; it is not in sync again"


def _of_leader(facts: Any) -> Iterator[str]:
    if facts.recovering:
        yield "the leader was elected uncleanly: records that were acknowledged before may be lost"
    if facts.in_sync_state != "committed":
        change = "added to" if facts.in_sync_state == "expanding" else "removed from"
        yield f"replicas are to be {change} the in-sync replicas; the controller has not decided for {facts.in_sync_ms} ms"
    least = min(facts.min_in_sync_replicas, len(facts.replicas))
    if len(facts.in_sync_replicas) < least:
        yield (
            f"{len(facts.in_sync_replicas)} replicas are in sync and min.insync.replicas is {facts.min_in_sync_replicas}: "
            "writes with acks=all are refused, and the high watermark does not move"
        )
    elif facts.high_watermark < facts.log_end_offset:
        waited_for = [
            follower
            for follower in facts.followers
            if follower.broker_id in facts.maximal_in_sync and follower.log_end_offset <= facts.high_watermark
        ]
        for follower in waited_for:
            last = "never in this epoch" if follower.fetched_ms_ago < 0 else f"{follower.fetched_ms_ago} ms ago"
            behind = facts.log_end_offset - max(follower.log_end_offset, 0)
            yield (
                f"the high watermark waits for broker {follower.broker_id}, which is {behind} records behind "
                f"and fetched {last}"
            )
        if not waited_for:
            yield "the high watermark waits for the device, or for a flush"


def _ids(broker_ids: Any) -> str:
    return ", ".join(map(str, broker_ids)) or "none"
