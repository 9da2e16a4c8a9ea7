"""Previews what retention would delete from a topic. Functions over a `Cluster`.

Brokers delete whole segments, periodically: the preview is the most that the settings allow to be deleted, and the least
that this frees. By time: a broker deletes a segment once its newest record is older than `retention.ms`; it deletes no
record after the first one that is young enough. By size: it deletes the oldest segments while the rest is at least
`retention.bytes`.
"""

from typing import NamedTuple

from odradek.clients import topics
from odradek.clients.cluster import Cluster
from odradek.clients.freed_space import SpaceRules

UNLIMITED = -1


class ExpectedDeletion(NamedTuple):
    """What retention may delete from a partition: the offsets [start, before).

    :param end: the log end offset. :param records: the largest number of deleted offsets.
    :param size: about the largest number of deleted bytes; None if unknown.
    :param size_at_least: the bytes that are certainly freed; None if unknown.
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
) -> list[ExpectedDeletion]:
    """Preview the deletion for each partition that has a leader. Raises ClientError.

    :param deletes: whether `cleanup.policy` contains "delete"; otherwise nothing is deleted.
    :param rules: the space rules of the topic.
    """
    (info,) = cluster.topics([topic])
    starts = topics.list_offsets(cluster, info.partitions, topics.EARLIEST)
    ends = topics.list_offsets(cluster, info.partitions, topics.LATEST)
    sizes = topics.sizes(cluster, [info])
    young = {}
    if deletes and retention_ms >= 0:
        young = topics.list_offsets(cluster, info.partitions, max(0, now_ms - retention_ms))
    deletions = []
    for place, log_end in sorted(ends.items()):
        if log_end.error or starts[place].error:
            continue
        start, end = starts[place].offset, log_end.offset
        size = sizes.get(place) if sizes is not None else None
        before = start
        if place in young and not young[place].error:
            before = young[place].offset if young[place].offset >= 0 else end
        if deletes and retention_bytes >= 0 and size and size > retention_bytes:
            before = max(before, start + round((end - start) * (size - retention_bytes) / size))
        before = min(max(before, start), end)
        part = None if size is None else round(size * (before - start) / (end - start)) if end > start else 0
        # If all its records have expired, the active segment is rolled and deleted, too.
        at_least = part if part is None or before == end else rules.at_least(part)
        deletions.append(ExpectedDeletion(place[1], start, end, before, before - start, part, at_least))
    return deletions
