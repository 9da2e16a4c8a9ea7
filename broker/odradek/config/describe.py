"""Effective values with their source, synonyms and documentation, for DescribeConfigs and the command.

Pure functions over a BrokerConfig. Sources have the numbers of the DescribeConfigs response. `effective` describes one key.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.config.broker_config import BrokerConfig, Setting
from odradek.config.dynamic import GROUP_KEYS, check_group_settings, group_values
from odradek.config.errors import ConfigError
from odradek.config.key import ConfigKey, show
from odradek.config.table import BROKER_KEYS, TOPIC_KEYS, broker_key, split_key, validate_topic_configs

DYNAMIC_TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5
DYNAMIC_BROKER_LOGGER_CONFIG = 6
GROUP_CONFIG = 8

SOURCE_NAMES = {
    DYNAMIC_TOPIC_CONFIG: "DYNAMIC_TOPIC_CONFIG",
    DYNAMIC_BROKER_CONFIG: "DYNAMIC_BROKER_CONFIG",
    DYNAMIC_DEFAULT_BROKER_CONFIG: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    STATIC_BROKER_CONFIG: "STATIC_BROKER_CONFIG",
    DEFAULT_CONFIG: "DEFAULT_CONFIG",
    DYNAMIC_BROKER_LOGGER_CONFIG: "DYNAMIC_BROKER_LOGGER_CONFIG",
    GROUP_CONFIG: "GROUP_CONFIG",
}


class SynonymEntry(NamedTuple):
    """A setting that could have provided a value. The first entry of a list is the setting that did."""

    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    """A key as DescribeConfigs returns it; ``value`` is None if the key is unset or sensitive."""

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
        """The field that version 0 returns instead of the source."""
        return self.source == DEFAULT_CONFIG


def describe_broker(config: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """All broker keys in the order of the table, then keys of single listeners. :param names: return only these keys."""
    of_listeners = [key for name in config.settings if name not in BROKER_KEYS and (key := broker_key(name))]
    keys = [*BROKER_KEYS.values(), *of_listeners]
    return [_broker_entry(config, key) for key in keys if names is None or key.name in names]


def describe_all_brokers(config: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The settings made at run time for all brokers. :param names: return only these keys."""
    entries = []
    for name, setting in config.of_all.items():
        key = broker_key(name)
        if key is None or (names is not None and name not in names):
            continue
        value = _shown(key, setting)
        synonym = SynonymEntry(name, value, DYNAMIC_DEFAULT_BROKER_CONFIG)
        entries.append(_entry(key, value, key.read_only, [synonym]))
    return entries


def describe_topic(
    config: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """All topic keys of a topic with these settings. Raises ConfigError for an invalid setting.

    :param names: return only these keys.
    """
    values = validate_topic_configs(dict(overrides))
    entries = []
    for name, key in TOPIC_KEYS.items():
        if names is not None and name not in names:
            continue
        synonyms = [SynonymEntry(name, show(values[name]), DYNAMIC_TOPIC_CONFIG)] if name in values else []
        synonyms += _layers_from_effective(config, [synonym.name for synonym in key.synonyms])
        value = values[name] if name in values else config.topic_defaults[name]
        entries.append(_entry(key, show(value), False, synonyms))
    return entries


def describe_group(
    config: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """All keys of a group with these settings. Raises ConfigError for an invalid setting."""
    own = check_group_settings(config, overrides)
    effective = group_values(config, own)
    entries = []
    for name, key in GROUP_KEYS.items():
        if names is not None and name not in names:
            continue
        first = [SynonymEntry(name, show(effective[name]), GROUP_CONFIG)] if name in own else []
        synonyms = [*first, *_layers(config, [synonym.name for synonym in key.synonyms])]
        entries.append(_entry(key, show(effective[name]), False, synonyms))
    return entries


def effective(config: BrokerConfig, name: str, topic_overrides: Mapping[str, str] | None = None) -> ConfigEntry:
    """The effective value, source and synonyms of one key of a topic with these settings, or (None) of the broker.

    Raises ConfigError if the key does not exist, or if a setting of the topic is invalid.
    """
    entries = (
        describe_broker(config, {name}) if topic_overrides is None else describe_topic(config, topic_overrides, {name})
    )
    if not entries:
        resource = "broker" if topic_overrides is None else "topic"
        raise ConfigError(name, None, f"is not a {resource} configuration key")
    return entries[0]


def _broker_entry(config: BrokerConfig, key: ConfigKey) -> ConfigEntry:
    names = [key.name, *(synonym.name for synonym in key.synonyms)]
    if key.name not in BROKER_KEYS:  # a key of one listener: the general key is its synonym
        names.append(split_key(key.name)[1])
    value = None if key.sensitive else show(config[key.name])
    layers = _layers(config, names)
    while layers and layers[0].name != key.name and key.name in BROKER_KEYS:
        del layers[0]  # a synonym is not a source of this key
    return _entry(key, value, key.read_only, layers)


def _entry(key: ConfigKey, value: str | None, read_only: bool, synonyms: Iterable[SynonymEntry]) -> ConfigEntry:
    synonyms = tuple(synonyms)
    source = synonyms[0].source if synonyms else DEFAULT_CONFIG
    return ConfigEntry(key.name, value, source, read_only, key.sensitive, key.type, key.doc, synonyms)


def _layers(config: BrokerConfig, names: Collection[str]) -> list[SynonymEntry]:
    """Broker settings that could provide a value, in descending precedence."""
    layers = (
        (config.of_broker, DYNAMIC_BROKER_CONFIG),
        (config.of_all, DYNAMIC_DEFAULT_BROKER_CONFIG),
        (config.static, STATIC_BROKER_CONFIG),
    )
    entries = []
    for settings, source in layers:
        for name in names:
            key = broker_key(name)
            if name in settings and key is not None:
                entries.append(SynonymEntry(name, _shown(key, settings[name]), source))
    for name in names:
        if name in BROKER_KEYS:
            entries += _default(BROKER_KEYS[name])
    return entries


def _layers_from_effective(config: BrokerConfig, names: Sequence[str]) -> list[SynonymEntry]:
    """`_layers`, from the effective setting on: an earlier name takes precedence over a later one in every layer."""
    layers = _layers(config, names)
    first = next((name for name in names if name in config.settings and config.settings[name].value is not None), None)
    first = names[0] if first is None and names else first
    while layers and layers[0].name != first:
        del layers[0]
    return layers


def _shown(key: ConfigKey, setting: Setting) -> str | None:
    return None if key.sensitive else show(setting.value)


def _default(key: ConfigKey) -> list[SynonymEntry]:
    return [] if key.default is None else [SynonymEntry(key.name, show(key.default), DEFAULT_CONFIG)]
