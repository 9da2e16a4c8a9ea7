"""What DescribeConfigs tells about a broker or topic: values with their source, synonyms and documentation.

Pure functions over a BrokerConfig; sources are numbered as in the DescribeConfigs response.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from broker.config.broker_config import BrokerConfig
from broker.config.key import ConfigKey, show
from broker.config.table import BROKER_KEYS, TOPIC_KEYS, validate_topic_configs

DYNAMIC_TOPIC_CONFIG = 1
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5


class SynonymEntry(NamedTuple):
    """One of the settings that a value could have come from; the first of a list is the one that counts."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """A key as DescribeConfigs shows it; ``value`` is None if unset or sensitive."""

    name: str
    value: str | None
    source: int
    read_only: bool
    is_sensitive: bool
    type: int
    documentation: str
    synonyms: tuple[SynonymEntry, ...]

    @property
    def is_default(self) -> bool:
        """What version 0 tells instead of the source."""
        return self.source == DEFAULT_CONFIG


def describe_broker(config: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """All broker keys, or those in ``names`` that exist, in the order of the table."""
    return [_broker_entry(config, key) for name, key in BROKER_KEYS.items() if names is None or name in names]


def describe_topic(
    config: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """All topic keys, or those in ``names`` that exist, of a topic with these settings.

    Raises ConfigError for a bad one.
    """
    values = validate_topic_configs(dict(overrides))
    entries = []
    for name, key in TOPIC_KEYS.items():
        if names is not None and name not in names:
            continue
        synonyms = [SynonymEntry(name, show(values[name]), DYNAMIC_TOPIC_CONFIG)] if name in values else []
        for synonym in key.synonyms:
            synonyms += _static(config, synonym.name)
        for synonym in key.synonyms:
            synonyms += _default(BROKER_KEYS[synonym.name])
        if not key.synonyms:
            synonyms += _default(key)
        value = values[name] if name in values else config.topic_defaults[name]
        source = synonyms[0].source if synonyms else DEFAULT_CONFIG
        entries.append(ConfigEntry(name, show(value), source, False, key.sensitive, key.type, key.doc, tuple(synonyms)))
    return entries


def _broker_entry(config: BrokerConfig, key: ConfigKey) -> ConfigEntry:
    names = [key.name, *(synonym.name for synonym in key.synonyms)]
    synonyms = [entry for name in names for entry in _static(config, name)]
    synonyms += [entry for name in names for entry in _default(BROKER_KEYS[name])]
    value = None if key.sensitive else show(config[key.name])
    source = STATIC_BROKER_CONFIG if config.is_set(key.name) else DEFAULT_CONFIG
    return ConfigEntry(key.name, value, source, key.read_only, key.sensitive, key.type, key.doc, tuple(synonyms))


def _static(config: BrokerConfig, name: str) -> list[SynonymEntry]:
    if not config.is_set(name):
        return []
    value = None if BROKER_KEYS[name].sensitive else show(config.settings[name].value)
    return [SynonymEntry(name, value, STATIC_BROKER_CONFIG)]


def _default(key: ConfigKey) -> list[SynonymEntry]:
    return [] if key.default is None else [SynonymEntry(key.name, show(key.default), DEFAULT_CONFIG)]
