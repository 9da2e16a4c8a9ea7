"""The table of configuration keys, which joins the rows of all areas, and lookups by name.

Constants and pure functions. Loading, DescribeConfigs and the reference in ``docs/`` all derive from ``ROWS``.
"""

from collections.abc import Mapping

from odradek.config.errors import ConfigError, raise_all
from odradek.config.key import ConfigKey, Value
from odradek.config.keys import (
    broker,
    group,
    log,
    metrics,
    network,
    quota,
    replication,
    sasl,
    security,
    ssl,
    topic,
    transaction,
    unused,
    zookeeper,
)

AREAS = (
    broker,
    network,
    log,
    topic,
    replication,
    group,
    transaction,
    quota,
    metrics,
    security,
    ssl,
    sasl,
    zookeeper,
)
ROWS = (*(key for area in AREAS for key in area.KEYS), *unused.KEYS)
BROKER_KEYS: dict[str, ConfigKey] = {key.name: key for key in ROWS if key.scope == "broker"}
TOPIC_KEYS: dict[str, ConfigKey] = {key.name: key for key in ROWS if key.scope == "topic"}

MOST_ERRORS = 20
LISTENER_PREFIX = "listener.name."
METRICS = "metrics"
"""The name of metrics.listener in keys of one listener."""
FREE_PREFIXES = ("config.providers.", "rlmm.config.", "rsm.config.")
"""Prefixes of keys of plugins, which are in no table. `odradek.config.providers` uses those of config.providers; the others
have no effect."""


def split_key(name: str) -> tuple[str, str]:
    """The listener and the general key of ``listener.name.NAME.KEY`` or ``listener.name.NAME.MECHANISM.KEY``; for another
    name, "" and the name."""
    if name.startswith(LISTENER_PREFIX) and name not in BROKER_KEYS:
        parts = name[len(LISTENER_PREFIX) :].split(".")
        for skip in (1, 2):
            key = ".".join(parts[skip:])
            if key in BROKER_KEYS:
                return parts[0], key
    return "", name


def broker_key(name: str) -> ConfigKey | None:
    """The row of a broker key; None if the key does not exist.

    ``listener.name.NAME.KEY`` (or ``listener.name.NAME.MECHANISM.KEY``) is KEY for one listener; ``name`` in its row is the
    whole name.
    """
    row = BROKER_KEYS.get(split_key(name)[1])
    return row if row is None or row.name == name else row._replace(name=name)


def topic_key(name: str) -> ConfigKey:
    """The row of a topic key. Raises ConfigError if the key does not exist."""
    row = TOPIC_KEYS.get(name)
    if row is None:
        raise ConfigError(name, None, "is not a topic configuration key")
    return row


def validate_topic_config(name: str, value: str) -> Value:
    """The typed value of a topic key. Raises ConfigError with the key, the value and the allowed values."""
    return topic_key(name).parse(value)


def without_effect(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a topic that differ from the default but have no effect."""
    rows = {name: topic_key(name) for name in settings}
    return {
        name: settings[name] for name, row in rows.items() if row.no_effect and row.parse(settings[name]) != row.default
    }


def validate_topic_configs(overrides: dict[str, str]) -> dict[str, Value]:
    """Typed values of the settings of a topic, checked individually and against each other.

    Raises ConfigError with the first `MOST_ERRORS` errors: a request may have tens of thousands.
    """
    values: dict[str, Value] = {}
    errors: list[ConfigError] = []
    for name, value in overrides.items():
        try:
            values[name] = validate_topic_config(name, value)
        except ConfigError as error:
            errors.append(error)
            if len(errors) == MOST_ERRORS:
                break
    raise_all(errors)
    min_lag, max_lag = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
    if isinstance(min_lag, int) and isinstance(max_lag, int) and min_lag > max_lag:
        raise ConfigError("min.compaction.lag.ms", str(min_lag), f"must not exceed max.compaction.lag.ms={max_lag}")
    return values
