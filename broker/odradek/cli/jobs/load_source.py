"""Reads from the brokers what `odradek load` needs before it starts Spark: partitions, topic ids, first and last offsets.

Runs in the process of the command.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.backoff import Waits
from odradek.clients.errors import ClientError, RefusedError
from odradek.clients.topics import EARLIEST, LATEST, ListedOffset, list_offsets
from odradek.config import properties, providers
from odradek.config.errors import ConfigError
from odradek.jobs.load.offsets import Bounds, ClusterState, TopicState
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster, Partition, TopicInfo
    from odradek.jobs.load.registry import Registry

_NO_ID = bytes(16)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
#: How long a load waits for unavailable brokers after it has read a step, in seconds: as long as its readers do.
PATIENCE_S = 120.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
#: Kafka's settings that only brokers and Odradek's own client know.
_OWN = ("metrics.listener",)


def topics_of(
    cluster: "Cluster", named: Iterable[str], pattern: re.Pattern[str] | None, loaded: Iterable[str]
) -> tuple[str, ...]:
    """The topics that a run loads, each once.

    :param named: those that are named. :param pattern: matches the whole names of others; None: there are none
    :param loaded: those of earlier runs, so that a topic that matches and does not exist any more is not forgotten
    :raises LoadError: nothing is named, and nothing matches. :raises ClientError: a broker does not answer
    """
    from odradek.jobs.load.errors import LoadError

    names = dict.fromkeys(named)
    if pattern is not None:
        view = cluster.metadata()
        there = [topic.name for topic in view.topics.values() if not topic.internal]
        names |= dict.fromkeys(name for name in sorted({*there, *loaded}) if pattern.fullmatch(name))
        if not names:
            raise LoadError(
                f"--topics-matching {pattern.pattern!r}: matches the whole name of no topic of cluster {view.cluster_id or ''};"
                " `odradek topic list` shows all topics"
            )
    return tuple(names)


def cluster_state(
    cluster: "Cluster", topics: Sequence[str], from_ms: int | None = None, to_ms: int | None = None
) -> ClusterState:
    """What the cluster has of the topics now.

    :param from_ms, to_ms: also look up the first offset of these times or later
    :raises ClientError: a broker does not answer, denies a topic, or a partition has no leader
    """
    for name in topics:
        if not _TOPIC.fullmatch(name) or name in (".", ".."):
            raise ClientError(
                f"topic {name!r} is no name of a topic: expected 1 to 249 letters, digits, '.', '_' and '-', not '.' or '..'"
            )
    view = cluster.metadata(topics)
    found = [view.topics[name] for name in topics if name in view.topics]
    partitions = [partition for topic in found for partition in topic.partitions]
    for partition in partitions:
        if partition.leader < 0:
            raise ClientError(
                f"partition {partition.topic}-{partition.number} has no leader: start the brokers of its replicas, then repeat"
            )
    earliest = _offsets(cluster, partitions, EARLIEST)
    high = _offsets(
        cluster, partitions, LATEST, committed_only=False
    )  # before the ends: only a transaction is between them
    ends = _offsets(cluster, partitions, LATEST)
    starts = None if from_ms is None else _offsets(cluster, partitions, from_ms, committed_only=False)
    stops = None if to_ms is None else _offsets(cluster, partitions, to_ms, committed_only=False)
    return ClusterState(
        view.cluster_id or "",
        {topic.name: _topic(topic, earliest, ends, starts, stops, high) for topic in found},
        tuple(name for name in topics if name not in view.topics),
    )


def patiently(look: Callable[[], ClusterState]) -> Callable[[], ClusterState]:
    """A function that calls `look` again for up to `PATIENCE_S` seconds, so that a restart of a broker does not end a load."""

    def repeated() -> ClusterState:
        backoff = Waits(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, PATIENCE_S)
        while True:
            try:
                return look()
            except ClientError:
                if not backoff.wait():
                    raise

    return repeated


def _topic(
    topic: "TopicInfo",
    earliest: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int] | None,
    stops: Mapping[TopicPartition, int] | None,
    high: Mapping[TopicPartition, int],
) -> TopicState:
    def at(offsets: Mapping[TopicPartition, int] | None, place: TopicPartition) -> int | None:
        if offsets is None:
            return None
        return max(high[place], ends[place]) if offsets[place] < 0 else offsets[place]

    partitions = {}
    for partition in topic.partitions:
        place = (topic.name, partition.number)
        partitions[partition.number] = Bounds(
            earliest[place], ends[place], at(starts, place), at(stops, place), high[place]
        )
    return TopicState(None if topic.topic_id == _NO_ID else topic.topic_id.hex(), partitions)


def _offsets(
    cluster: "Cluster", partitions: "Sequence[Partition]", time_ms: int, committed_only: bool = True
) -> dict[TopicPartition, int]:
    """Offsets by time, before the last stable offset or the high watermark; -1 for a partition without such a record."""
    listed: dict[TopicPartition, ListedOffset] = list_offsets(cluster, partitions, time_ms, committed_only)
    for partition in partitions:
        place = (partition.topic, partition.number)
        if place not in listed:
            raise ClientError(f"the leader of {place[0]}-{place[1]} did not return its offsets; repeat the command")
        if listed[place].error != ErrorCode.NONE:
            raise RefusedError(listed[place].error, what=f"{place[0]}-{place[1]}")
    return {place: offset.offset for place, offset in listed.items()}


def java_settings(path: str | None) -> dict[str, str]:
    """The keys of a --command-config for the readers, with the values that providers supply. Raises ClientError."""
    if path is None:
        return {}
    return {name: value for name, value in _settings_in(path, "client").items() if not name.startswith(_OWN)}


def _settings_in(path: str, what: str) -> dict[str, str]:
    try:
        text = properties.decode(Path(path).read_bytes())
        entries = [(entry.name, entry.value, f"{path}:{entry.line}") for entry in properties.parse(text, path)]
        resolved = providers.resolved(entries)
    except OSError as error:
        raise ClientError(f"cannot read the {what} configuration {path}: {error.strerror}") from None
    except ConfigError as error:
        raise ClientError(f"{path}: {error}") from None
    return {name: value.strip() for name, value, _ in resolved}


def registry_named(url: str | None, config: str | None) -> "Registry | None":
    """The schema registry of the options. :param config: a file of properties. Raises LoadError, ClientError."""
    from odradek.jobs.load.errors import LoadError
    from odradek.jobs.load.registry import registry_of

    if url is not None:
        return registry_of(url, {} if config is None else _settings_in(config, "registry"))
    if config is not None:
        raise LoadError("--registry-config needs --registry URL")
    return None
