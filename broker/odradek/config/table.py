"""The one table of configuration keys, joined from the rows of each area, and what follows from a name alone.

Constants and pure functions. Everything else that speaks of keys (loading, DescribeConfigs, the reference in ``docs/``)
derives from ``AREAS``.
"""

from collections.abc import Mapping

from odradek.config.errors import ConfigError, raise_all
from odradek.config.key import NONE, NONE_YET, ConfigKey, Value
from odradek.config.keys import (
    broker,
    group,
    kraft,
    log,
    metrics,
    network,
    quota,
    remote,
    replication,
    sasl,
    security,
    share,
    ssl,
    topic,
    transaction,
    zookeeper,
)

AREAS = (
    broker,
    network,
    log,
    topic,
    replication,
    group,
    share,
    transaction,
    quota,
    metrics,
    security,
    ssl,
    sasl,
    zookeeper,
    kraft,
    remote,
)
BROKER_KEYS: dict[str, ConfigKey] = {key.name: key for area in AREAS if area is not topic for key in area.KEYS}
TOPIC_KEYS: dict[str, ConfigKey] = {key.name: key for key in topic.KEYS}

LISTENER_PREFIX = "listener.name."
FREE_PREFIXES = ("config.providers.", "rlmm.config.", "rsm.config.")
"""Keys that belong to plugins: known, not checked, without effect."""


def broker_key(name: str) -> ConfigKey | None:
    """The row of a broker key, None if there is none.

    ``listener.name.NAME.KEY`` (and ``listener.name.NAME.MECHANISM.KEY``) is KEY for one listener: its row carries the
    whole name.
    """
    row = BROKER_KEYS.get(name)
    if row is not None or not name.startswith(LISTENER_PREFIX):
        return row
    parts = name[len(LISTENER_PREFIX) :].split(".")
    for skip in (1, 2):
        row = BROKER_KEYS.get(".".join(parts[skip:]))
        if row is not None:
            return row._replace(name=name)
    return None


def topic_key(name: str) -> ConfigKey:
    """The row of a topic key. Raises ConfigError if a topic has no such key."""
    row = TOPIC_KEYS.get(name)
    if row is None:
        raise ConfigError(name, None, "is not a key of a topic's configuration")
    return row


def validate_topic_config(name: str, value: str) -> Value:
    """The typed value of a topic's key. Raises ConfigError naming key, value and what is allowed."""
    return topic_key(name).parse(value)


def without_effect(settings: Mapping[str, str]) -> dict[str, str]:
    """Those of a topic's settings that ask for something else than the default and do not get it."""
    rows = {name: topic_key(name) for name in settings}
    return {
        name: settings[name]
        for name, row in rows.items()
        if row.effect in (NONE, NONE_YET) and row.parse(settings[name]) != row.default
    }


def validate_topic_configs(overrides: dict[str, str]) -> dict[str, Value]:
    """Typed values of what is set for a topic, checked singly and against each other.

    Raises ConfigError, with all that is wrong.
    """
    values: dict[str, Value] = {}
    errors: list[ConfigError] = []
    for name, value in overrides.items():
        try:
            values[name] = validate_topic_config(name, value)
        except ConfigError as error:
            errors.append(error)
    raise_all(errors)
    least, most = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise ConfigError("min.compaction.lag.ms", str(least), f"must not exceed max.compaction.lag.ms={most}")
    return values
