"""What retention would delete from a topic, computed before it does. Functions over a `Cluster`.

Brokers delete whole segments, from time to time: the result is the most that the setting allows to be deleted, and the least
that it frees. By time: a segment is deleted once its newest record is older than `retention.ms`; no record behind the first
that is young enough is deleted. By size: the oldest segments are deleted as long as what is left is at least `retention.bytes`.
"""

from typing import NamedTuple

from odradek.clients import topics
from odradek.clients.cluster import Cluster
from odradek.clients.freed_space import SpaceRules

UNLIMITED = -1


class Loss(NamedTuple):
    """Of a partition. :param records: at most so many offsets. :param size: about so many bytes at the most; None if not
    known. :param size_at_least: of these, the bytes that are freed for certain.
    """

    partition: int
    start: int
    end: int
    before: int
    records: int
    size: int | None
    size_at_least: int | None


def preview(
    cluster: Cluster, topic: str, retention_ms: int, retention_bytes: int, deletes: bool, now_ms: int, rules: SpaceRules
) -> list[Loss]:
    """What may be deleted from each partition that has a leader. Raises ClientError.

    :param deletes: whether `cleanup.policy` has "delete": else nothing is deleted.
    :param rules: of the topic.
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
        # With all of its records expired the active segment is rolled and deleted, too.
        at_least = part if part is None or before == end else rules.at_least(part)
        losses.append(Loss(place[1], start, end, before, before - start, part, at_least))
    return losses
