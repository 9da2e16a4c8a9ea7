"""How much space deleted records free, and when: what a cluster's settings say of it. Functions over a `Cluster`.

Brokers delete whole segments, from time to time. The segment with the first record that stays is not deleted, and neither is
the active segment, the one being written, before it was rolled: Kafka does that when all of its records have expired, or with
the next append that is due for it; this broker does it also when all of its records were deleted by DeleteRecords.
"""

from typing import NamedTuple

from odradek.clients import configs
from odradek.clients.cluster import Cluster

OURS = "odradek.log.dir.reserve.bytes"
DELETION_POLICY = "odradek.segment.deletion.policy.class.name"
CHECK_INTERVAL = "log.retention.check.interval.ms"
SEGMENT_BYTES, DELETE_DELAY = "segment.bytes", "file.delete.delay.ms"


class SpaceRules(NamedTuple):
    """Of a topic. :param segment_bytes: the size of its segments; None where the broker does not say, as for the others.

    :param check_interval_ms: how long until segments are taken out of the log at the latest.
    :param delete_delay_ms: how long until their files are deleted after that.
    :param is_odradek: whether the brokers are of this kind.
    :param deletion_policy: the class of the brokers that may delete segments besides; None if there is none.
    """

    segment_bytes: int | None
    check_interval_ms: int | None
    delete_delay_ms: int | None
    is_odradek: bool
    deletion_policy: str | None

    def at_least(self, size: int) -> int:
        """Bytes that are freed for certain when about `size` bytes are deleted from the beginning of a log that goes on."""
        return 0 if self.segment_bytes is None else max(0, size - self.segment_bytes)


class Freed(NamedTuple):
    """Bytes of log files that become free: about `at_most`, and not less than `at_least`."""

    at_least: int
    at_most: int


def space_rules(cluster: Cluster, topic: str) -> SpaceRules:
    """What the topic's and its brokers' settings say. Raises ClientError."""
    broker = configs.Resource("broker", str(min(cluster.view().brokers)))
    theirs = configs.describe(cluster, broker, [OURS, CHECK_INTERVAL, DELETION_POLICY])
    own = configs.describe(cluster, configs.Resource("topic", topic), [SEGMENT_BYTES, DELETE_DELAY])
    return SpaceRules(
        _number(own, SEGMENT_BYTES),
        _number(theirs, CHECK_INTERVAL),
        _number(own, DELETE_DELAY),
        OURS in theirs,
        theirs[DELETION_POLICY].value or None if DELETION_POLICY in theirs else None,
    )


def freed_by_deletion(rules: SpaceRules, size: int, start: int, new_start: int, end: int) -> Freed:
    """What one partition of `size` bytes frees when its records from `start` to before `new_start` are deleted.

    :param end: the log end offset.
    """
    if new_start <= start:
        return Freed(0, 0)
    if new_start >= end:
        return Freed(size if rules.is_odradek else rules.at_least(size), size)
    part = round(size * (new_start - start) / (end - start))
    return Freed(rules.at_least(part), part)


def total(freed: list[Freed]) -> Freed:
    """Of several partitions."""
    return Freed(sum(one.at_least for one in freed), sum(one.at_most for one in freed))


def _number(entries: dict[str, configs.Entry], name: str) -> int | None:
    value = entries[name].value if name in entries else None
    return int(value) if value is not None and value.lstrip("-").isdigit() else None
