"""Estimates how much disk space deleted records free, and when, from a cluster's settings. Functions over a `Cluster`.

Brokers delete whole segments, periodically. The segment with the first remaining record is not deleted. The active segment is
deleted only after a roll: Kafka rolls it when all its records have expired, or at the next append that exceeds a roll limit;
this broker also rolls it when DeleteRecords deleted all its records.
"""

from typing import NamedTuple

from odradek.clients import configs
from odradek.clients.cluster import Cluster

ODRADEK_ONLY = "odradek.log.dir.reserve.bytes"
DELETION_POLICY = "odradek.segment.deletion.policy.class.name"
CHECK_INTERVAL = "log.retention.check.interval.ms"
SEGMENT_BYTES, DELETE_DELAY = "segment.bytes", "file.delete.delay.ms"


class SpaceRules(NamedTuple):
    """The settings of a topic and its brokers that decide when space becomes free; None where the broker does not report one.

    :param segment_bytes: `segment.bytes` of the topic.
    :param check_interval_ms: the longest time until the broker removes segments from the log.
    :param delete_delay_ms: the time from then until the broker deletes their files.
    :param is_odradek: whether the brokers run Odradek.
    :param deletion_policy: the brokers' segment deletion policy class, which may delete more segments; None if they have none.
    """

    segment_bytes: int | None
    check_interval_ms: int | None
    delete_delay_ms: int | None
    is_odradek: bool
    deletion_policy: str | None

    def at_least(self, size: int) -> int:
        """The bytes that are certainly freed when about `size` bytes are deleted from the start of a log with
        remaining records.
        """
        return 0 if self.segment_bytes is None else max(0, size - self.segment_bytes)


class FreedSpace(NamedTuple):
    """Bytes of log files that are freed: at least `at_least`, and about `at_most` at most."""

    at_least: int
    at_most: int


def space_rules(cluster: Cluster, topic: str) -> SpaceRules:
    """Read the settings of a topic and of the broker with the lowest id. Raises ClientError."""
    broker = configs.Resource("broker", str(min(cluster.view().brokers)))
    of_broker = configs.describe(cluster, broker, [ODRADEK_ONLY, CHECK_INTERVAL, DELETION_POLICY])
    of_topic = configs.describe(cluster, configs.Resource("topic", topic), [SEGMENT_BYTES, DELETE_DELAY])
    return SpaceRules(
        _number(of_topic, SEGMENT_BYTES),
        _number(of_broker, CHECK_INTERVAL),
        _number(of_topic, DELETE_DELAY),
        ODRADEK_ONLY in of_broker,
        of_broker[DELETION_POLICY].value or None if DELETION_POLICY in of_broker else None,
    )


def freed_by_deletion(rules: SpaceRules, size: int, start: int, new_start: int, end: int) -> FreedSpace:
    """The space that deleting the records [start, new_start) frees in a partition of `size` bytes.

    :param end: the log end offset.
    """
    if new_start <= start:
        return FreedSpace(0, 0)
    if new_start >= end:
        return FreedSpace(size if rules.is_odradek else rules.at_least(size), size)
    part = round(size * (new_start - start) / (end - start))
    return FreedSpace(rules.at_least(part), part)


def total(parts: list[FreedSpace]) -> FreedSpace:
    """The sum over several partitions."""
    return FreedSpace(sum(part.at_least for part in parts), sum(part.at_most for part in parts))


def _number(entries: dict[str, configs.Entry], name: str) -> int | None:
    value = entries[name].value if name in entries else None
    return int(value) if value is not None and value.lstrip("-").isdigit() else None
