"""Creates the group coordinator of a coordinator process, with its settings and its view of the topics.

This module imports the 28 modules of the groups, which a broker without groups does not need. So the coordinator imports it
only when `__consumer_offsets` exists. If a log directory has a partition of that topic at the start, the supervisor imports it
before the fork (`processes/table.py:also_imported`). Used in the coordinator's loop.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from odradek._ext.shm.topics import TopicDirectory
from odradek.config.broker_config import BrokerConfig
from odradek.config.dynamic import group_values
from odradek.coordination.environment import Timers
from odradek.groups import metadata_limits
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.offsets import offset_record
from odradek.groups.settings import ConsumerSettings, GroupSettings
from odradek.processes.slices import LoopSlices
from odradek.quotas.new_names import GROUPS, configured

MINUTE_MS = 60_000
OF_GROUP = ("session.timeout", "heartbeat.interval", "assignment.interval")
NOBODY, _ = offset_record("", "", -1, None)
"""The key of an offset that no client can commit."""

StoredTopics = Callable[[], frozenset[str] | None]


def settings_of(config: BrokerConfig) -> GroupSettings:
    """The settings of classic groups and of offsets, from the configuration."""
    return GroupSettings(
        initial_rebalance_delay_ms=config.integer("group.initial.rebalance.delay.ms"),
        min_session_timeout_ms=config.integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.integer("group.max.session.timeout.ms"),
        max_size=config.integer("group.max.size"),
        max_member_bytes=config.integer("message.max.bytes"),
        offset_metadata_max_bytes=config.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=config.integer("offsets.retention.minutes") * MINUTE_MS,
        names=configured(GROUPS, config),
        metadata=metadata_limits.configured(config),
    )


def consumer_settings_of(config: BrokerConfig) -> ConsumerSettings:
    """The settings of consumer groups (KIP-848), from the configuration."""
    policy = str(config["group.consumer.migration.policy"]).lower()
    return ConsumerSettings(
        session_timeout_ms=config.integer("group.consumer.session.timeout.ms"),
        heartbeat_interval_ms=config.integer("group.consumer.heartbeat.interval.ms"),
        max_size=config.integer("group.consumer.max.size"),
        upgrade=policy in ("bidirectional", "upgrade"),
        downgrade=policy in ("bidirectional", "downgrade"),
        assignors=tuple(str(name) for name in config["group.consumer.assignors"]),  # type: ignore[union-attr]
        assignment_interval_ms=config.integer("group.consumer.assignment.interval.ms"),
    )


class LiveConsumerSettings:
    """The current settings of consumer groups (KIP-848): the broker's, and those that are set for a single group.

    The store thread replaces both mappings as a whole when they change, so values derived from them stay valid while the
    mappings are the same objects.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._seen: tuple[object, object] | None = None
        self._of_broker = ConsumerSettings()
        self._of_group: dict[str, ConsumerSettings] = {}

    def of(self, group_id: str) -> ConsumerSettings:
        """See `SettingsSource`."""
        settings, groups = self._config.settings, self._config.groups
        if self._seen is None or self._seen[0] is not settings or self._seen[1] is not groups:
            self._seen = settings, groups
            self._of_broker, self._of_group = consumer_settings_of(self._config), {}
        overrides = groups.get(group_id)
        if overrides is None:
            return self._of_broker
        group_settings = self._of_group.get(group_id)
        if group_settings is None:
            values = group_values(self._config, overrides)
            session_ms, heartbeat_ms, assignment_ms = (cast(int, values[f"consumer.{name}.ms"]) for name in OF_GROUP)
            group_settings = self._of_group[group_id] = replace(
                self._of_broker,
                session_timeout_ms=session_ms,
                heartbeat_interval_ms=heartbeat_ms,
                assignment_interval_ms=assignment_ms,
            )
        return group_settings


class KnownTopics:
    """The coordinator's directory of the topics, as groups use it. :param stored: see `GroupService`."""

    def __init__(self, directory: TopicDirectory, stored: StoredTopics) -> None:
        self._directory = directory
        self._stored = stored

    def in_store(self) -> frozenset[str] | None:
        """See `Topics`."""
        return self._stored()

    @property
    def version(self) -> int:
        """The version of the metadata in the directory; it differs after every change."""
        return int(self._directory.version)

    def names(self) -> list[str]:
        """The names of all topics that exist."""
        return [topic.name for topic in self._directory.by_name.values() if topic.existing_count()]

    def find(self, name: str) -> tuple[bytes, int] | None:
        """The id and the number of partitions of a topic; None if it does not exist."""
        topic = self._directory.get(name)
        if topic is None:
            return None
        count = topic.existing_count()
        return (topic.topic_id, count) if count else None

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id; None if it does not exist."""
        topic = self._directory.by_id.get(topic_id)
        return None if topic is None else topic.name


def make_groups(
    config: BrokerConfig,
    timers: Timers,
    partitions: int,
    topics: TopicDirectory,
    stored: StoredTopics,
    diverged: Callable[[int], None],
    slices: LoopSlices,
) -> GroupCoordinator:
    """The coordinator of all groups. :param partitions: of `__consumer_offsets`. :param stored: see `GroupService`.
    :param diverged: see `GroupCoordinator`."""
    known = KnownTopics(topics, stored)
    return GroupCoordinator(
        timers, settings_of(config), partitions, known, LiveConsumerSettings(config), diverged, slices
    )
