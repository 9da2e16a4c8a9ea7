"""What retention would delete from a topic, asked before it does. Functions over a `Cluster`.

Brokers delete whole segments, and look from time to time: what is told is the most that the setting allows to be deleted.
By time: a segment goes once its newest record is older than `retention.ms`; no record behind the first that is young enough
goes. By size: the oldest segments go as long as what is left is at least `retention.bytes`.
"""

from typing import NamedTuple

from broker.clients import topics
from broker.clients.cluster import Cluster

UNLIMITED = -1


class Loss(NamedTuple):
    """Of a partition. :param records: at most so many offsets. :param size: about so many bytes; None if not told."""

    partition: int
    start: int
    end: int
    before: int
    records: int
    size: int | None


def preview(
    cluster: Cluster, topic: str, retention_ms: int, retention_bytes: int, deletes: bool, now_ms: int
) -> list[Loss]:
    """What may go of each partition that has a leader. Raises ClientError.

    :param deletes: whether `cleanup.policy` has "delete": else nothing goes.
    """
    (info,) = cluster.topics([topic])
    starts = topics.list_offsets(cluster, info.partitions, topics.EARLIEST)
    ends = topics.list_offsets(cluster, info.partitions, topics.LATEST)
    sizes = topics.sizes(cluster, [info])
    young = {}
    if deletes and retention_ms >= 0:
        young = topics.list_offsets(cluster, info.partitions, max(0, now_ms - retention_ms))
    losses = []
    for place, found in sorted(ends.items()):
        if found.error or starts[place].error:
            continue
        start, end = starts[place].offset, found.offset
        size = sizes.get(place) if sizes is not None else None
        before = start
        if place in young and not young[place].error:
            before = young[place].offset if young[place].offset >= 0 else end
        if deletes and retention_bytes >= 0 and size and size > retention_bytes:
            before = max(before, start + round((end - start) * (size - retention_bytes) / size))
        before = min(max(before, start), end)
        part = None if size is None else round(size * (before - start) / (end - start)) if end > start else 0
        losses.append(Loss(place[1], start, end, before, before - start, part))
    return losses
