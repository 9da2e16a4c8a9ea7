"""Checks of settings of a broker or a group that are changed at run time. Pure functions over the table of keys."""

from collections.abc import Iterable, Mapping

from odradek.config.broker_config import AT_MOST, BrokerConfig
from odradek.config.errors import ConfigError, raise_all
from odradek.config.key import CLUSTER_WIDE, INT, MEDIUM, PER_BROKER, ConfigKey, Range, Synonym, Value
from odradek.config.table import BROKER_KEYS, LISTENER_PREFIX, METRICS, TOPIC_KEYS, broker_key, split_key

# fmt: off
GROUP_KEYS: dict[str, ConfigKey] = {key.name: key for key in (
    ConfigKey("consumer.session.timeout.ms", INT, 45000, Range(1), MEDIUM, CLUSTER_WIDE,
        "The time in ms without a heartbeat after which the broker removes a member of the group (consumer protocol).", "group",
        (Synonym("group.consumer.session.timeout.ms"),)),
    ConfigKey("consumer.heartbeat.interval.ms", INT, 5000, Range(1), MEDIUM, CLUSTER_WIDE,
        "The time in ms between two heartbeats of a member of the group (consumer protocol).", "group",
        (Synonym("group.consumer.heartbeat.interval.ms"),)),
    ConfigKey("consumer.assignment.interval.ms", INT, 1000, Range(0), MEDIUM, CLUSTER_WIDE,
        "The minimum time in ms between two assignments of the group (consumer protocol).", "group",
        (Synonym("group.consumer.assignment.interval.ms"),)),
)}
"""Settings of a single group (KIP-848). The value of an unset key is that of its synonym, a broker key."""
# fmt: on

_BOUNDS = {
    "consumer.session.timeout.ms": "group.consumer.{}.session.timeout.ms",
    "consumer.heartbeat.interval.ms": "group.consumer.{}.heartbeat.interval.ms",
    "consumer.assignment.interval.ms": "group.consumer.{}.assignment.interval.ms",
}

UNITS: tuple[frozenset[str], ...] = (
    *(
        frozenset((row.name, *(synonym.name for synonym in row.synonyms)))
        for rows in (BROKER_KEYS, TOPIC_KEYS, GROUP_KEYS)
        for row in rows.values()
        if row.synonyms
    ),
    *map(frozenset, AT_MOST),
    frozenset(f"log.message.timestamp.{limit}.max.ms" for limit in ("difference", "before", "after")),
    frozenset(
        (
            "log.cleanup.policy",
            "log.retention.ms",
            "log.retention.minutes",
            "log.retention.hours",
            "log.retention.bytes",
            "odradek.retention.exact",
            "log.cleaner.delete.retention.ms",
        )
    ),
)
"""Keys that determine a value together (each chain of synonyms; limits of timestamps), that are checked against each other, or
that together decide which records are deleted: with log.cleanup.policy=delete, an old time of retention begins to count."""
_OF_LISTENERS = (
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
    "controller.listener.names",
    "metrics.listener",
)
"""Keys that determine the listeners; all are read-only."""
_SECURITY = ("sasl.", "ssl.")


def check_broker_changes(config: BrokerConfig, of_all: Mapping[str, str], of_broker: Mapping[str, str]) -> BrokerConfig:
    """The configuration with these settings at run time. Raises ConfigError with all errors."""
    errors: list[ConfigError] = []
    for layer, for_one in ((of_all, False), (of_broker, True)):
        for name, text in layer.items():
            try:
                _check_broker_change(name, text, for_one)
            except ConfigError as error:
                errors.append(error)
    raise_all(errors)
    return config.changed(of_all, of_broker)


def _check_broker_change(name: str, text: str, for_one: bool) -> None:
    """Raise ConfigError if the setting cannot be changed at run time. :param for_one: it is set for one broker, not for all."""
    row = broker_key(name)
    if row is None:
        raise ConfigError(name, text, "is not a broker configuration key")
    if row.read_only:
        raise row.error(text, "cannot be changed at run time: set it in the broker's configuration file and restart it")
    if row.sensitive:
        raise row.error(
            text,
            "secrets are not kept in the metadata store: set it in the broker's configuration file and restart it",
        )
    row.parse(text)
    if name.startswith("ssl.") and row.update_mode == PER_BROKER:
        raise ConfigError(
            name, text, f"can be changed at run time for single listeners only: set {LISTENER_PREFIX}<listener>.{name}"
        )
    if not for_one and (row.update_mode == PER_BROKER or name.startswith(LISTENER_PREFIX)):
        raise ConfigError(name, text, "cannot be set for all brokers: set it for each broker, by the broker's id")


def file_changes(config: BrokerConfig, fresh: BrokerConfig) -> tuple[dict[str, str | None], list[str]]:
    """What to use of a changed configuration file: (`of_file` of `BrokerConfig.changed`; names of the changed keys that need a
    restart, which keep what they have now).

    Keys that belong together are used as a whole or not at all. For example, log.retention.ms can change at run time, but
    log.retention.hours, which is in force if log.retention.ms is not set, cannot. If a file removes the first key and changes
    the second one, the first change alone would put a retention in force that no file ever contained.

    :param fresh: the configuration of the file as it is now.
    """
    started, before, after = (
        {name: setting.text for name, setting in each.items()} for each in (config.started, config.static, fresh.static)
    )
    held = _held([name for name in {*before, *after} if before.get(name) != after.get(name)])
    use = {name: before.get(name) if name in held else after.get(name) for name in sorted({*started, *before, *after})}
    return {name: text for name, text in use.items() if text != started.get(name)}, sorted(held)


def _held(changed: Iterable[str]) -> list[str]:
    """The changed keys that need a restart, and those that belong to them."""
    held = [name for name in changed if not _changes_at_run_time(name)]
    free = {name for name in changed if name not in held}
    for name in held:  # which grows
        more = [other for other in free if _belongs_to(other, name)]
        held += more
        free.difference_update(more)
    return held


def _belongs_to(name: str, held: str) -> bool:
    """Whether a change of `name` must wait because the change of `held` waits."""
    if any(name in unit and held in unit for unit in UNITS):
        return True
    listener, key = split_key(name)
    if held in _OF_LISTENERS:
        return bool(listener) or key.startswith(_SECURITY)
    held_listener, held_key = split_key(held)
    other_listener = listener and held_listener and listener != held_listener
    return not other_listener and any(key.startswith(kind) and held_key.startswith(kind) for kind in _SECURITY)


def _changes_at_run_time(name: str) -> bool:
    row = broker_key(name)
    for_listeners_only = row is not None and name.startswith("ssl.") and row.update_mode == PER_BROKER
    return row is not None and not (row.read_only or row.sensitive or for_listeners_only)


def check_listeners(config: BrokerConfig, settings: Mapping[str, str]) -> None:
    """Raise ConfigError with all settings of listeners that the broker does not have.

    Kafka accepts them: its listeners can change at run time. Here they cannot, so such a setting would never have an effect.
    """
    names = [listener.name.lower() for listener in config.listeners]
    if config.metrics_listener is not None:
        names.append(METRICS)
    prefixes = tuple(f"{LISTENER_PREFIX}{name}." for name in names)
    raise_all(
        [
            ConfigError(
                name,
                text,
                f"listeners has no listener {name[len(LISTENER_PREFIX) :].partition('.')[0]}; the names (in lower case) are "
                f"{', '.join(names)}",
            )
            for name, text in settings.items()
            if name.startswith(LISTENER_PREFIX) and not name.startswith(prefixes)
        ]
    )


def check_group_settings(config: BrokerConfig, settings: Mapping[str, str]) -> dict[str, Value]:
    """Typed values of the settings of a group. Raises ConfigError with the key and the range that the broker allows."""
    values: dict[str, Value] = {}
    errors: list[ConfigError] = []
    for name, text in settings.items():
        try:
            values[name] = _group_value(config, name, text)
        except ConfigError as error:
            errors.append(error)
    raise_all(errors)
    effective = group_values(config, values)
    heartbeat, session = (effective[name] for name in ("consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"))
    if isinstance(heartbeat, int) and isinstance(session, int) and heartbeat >= session:
        raise ConfigError(
            "consumer.heartbeat.interval.ms", str(heartbeat), f"must be less than consumer.session.timeout.ms={session}"
        )
    return values


def _group_value(config: BrokerConfig, name: str, text: str) -> Value:
    key = GROUP_KEYS.get(name)
    if key is None:
        raise ConfigError(name, text, f"is not a group configuration key; must be one of {', '.join(GROUP_KEYS)}")
    low, high = (config.integer(_BOUNDS[name].format(end)) for end in ("min", "max"))
    value = key.parse(text)
    if not Range(low, high).accepts(value):
        ends = tuple(_BOUNDS[name].format(end) for end in ("min", "max"))
        raise ConfigError(name, text, f"must be an integer from {low} ({ends[0]}) to {high} ({ends[1]})")
    return value


def group_values(config: BrokerConfig, own: Mapping[str, Value]) -> dict[str, Value]:
    """Effective values of all keys of a group. :param own: the typed settings of the group."""
    return {name: own.get(name, config[key.synonyms[0].name]) for name, key in GROUP_KEYS.items()}


def change_text(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """A change of settings as text for messages: "a=1, b=2, c unset"."""
    changed = [f"{name}={value}" for name, value in after.items() if before.get(name) != value]
    return ", ".join([*changed, *(f"{name} unset" for name in before if name not in after)])
