"""The configuration of a broker: settings of the file and the command line, checked and combined, and changes at run time.

The command creates it once, before it forks a process. Every process has its own copy and reads it without a lock.
`BrokerConfig.run_with` applies the changes at run time to a copy; one thread of each process calls it.
"""

import copy
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from odradek.config import properties, providers
from odradek.config.errors import ConfigError, combined, raise_all
from odradek.config.key import ConfigKey, Value, show
from odradek.config.listeners import (
    Listener,
    advertise,
    check_advertised,
    check_ports,
    parse_address,
    parse_host,
    parse_listeners,
    parse_protocol_map,
)
from odradek.config.loggers import ROOT, parse_levels
from odradek.config.regular_file import read_regular
from odradek.config.super_users import doubtful_super_users, parse_super_users
from odradek.config.table import (
    BROKER_KEYS,
    FREE_PREFIXES,
    LISTENER_PREFIX,
    METRICS,
    TOPIC_KEYS,
    broker_key,
    validate_topic_configs,
)
from odradek.spelling import did_you_mean

DEFAULT_NODE_ID = 1
KEY_CUTOFF = 0.8  # for hints: many keys differ by one word, so a less similar key is seldom the one meant
KEY_LIST = "docs/reference/configuration.md lists all keys"
GROUP_PROTOCOLS = "group.coordinator.rebalance.protocols"
PROTOCOLS_IN_CLUSTER = ("classic",)
"""The default in a cluster: a Kafka 3.9 broker that becomes a coordinator ignores the records of KIP-848 groups."""
ALL_BROKERS, THIS_BROKER = "changed at run time for all brokers", "changed at run time for this broker"
"""The results of `BrokerConfig.where` for settings in the metadata store."""


class Setting(NamedTuple):
    """A setting: its typed value, its text, and where it was set (``file:line`` or ``--set``)."""

    value: Value
    text: str
    where: str


_OF_PROCESS = ("/dev/fd/", "/dev/stdin", "/proc/")


class Environment(NamedTuple):
    """Settings of the program that starts the broker, such as those from environment variables, as (key, text, where).

    :param defaults: settings over which the file takes precedence. :param entries: settings that take precedence over the
        file, but not over `--set`. :param notes: lines to log about variables without effect.
    """

    defaults: tuple[tuple[str, str, str], ...] = ()
    entries: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()


NO_ENVIRONMENT = Environment()


class Source(NamedTuple):
    """The arguments of `load`: a configuration file, and settings that take precedence over it."""

    path: str
    overrides: tuple[str, ...]
    environment: Environment = NO_ENVIRONMENT

    def read_again(self) -> "BrokerConfig":
        """The configuration with which the broker would start now. Raises ConfigError, also if the file could make this process
        wait, or if its path means another file than at the start (a descriptor)."""
        if os.path.abspath(self.path).startswith(_OF_PROCESS):  # noqa: PTH100 - Path.resolve would follow links
            reason = "it is a descriptor of the process that started, so it cannot be read again: start the broker with a file"
            raise _unreadable(self.path, reason)
        return load(
            self.path,
            self.overrides,
            to_start=True,
            read=lambda file: read_regular(file, -1),
            environment=self.environment,
        )


class UnknownKey(NamedTuple):
    """A setting whose key is not in the table."""

    name: str
    where: str


def _unknown_key_warning(key: UnknownKey) -> str:
    synonyms = TOPIC_KEYS[key.name].synonyms if key.name in TOPIC_KEYS else ()
    of_topics = f"it is a key of topics, whose default is the broker's {synonyms[0].name};" if synonyms else ""
    hint = of_topics or _similar_key(key.name)
    advice = f"{hint} {KEY_LIST}" if hint else KEY_LIST
    return f"ignoring unknown key {key.name} ({key.where}); {advice}"


def _similar_key(name: str) -> str:
    """A hint with the broker key that is closest to an unknown key; empty if none is similar."""
    listener = re.match(rf"{re.escape(LISTENER_PREFIX)}[^.]+\.([^.]+\.(?=sasl\.))?", name)
    if listener is None:
        return did_you_mean(name, BROKER_KEYS, KEY_CUTOFF)
    # Only the key after the prefix is compared: with the prefix, all keys of one listener would be similar.
    hint = did_you_mean(name[listener.end() :], BROKER_KEYS, KEY_CUTOFF)
    return hint.replace("'", f"'{listener.group()}", 1)


class BrokerConfig:
    """Typed values by key: ``config["log.segment.bytes"]``.

    Attributes: ``settings``: all settings by key; they consist of ``static`` (from the file or the command line),
    ``of_all`` and ``of_broker`` (set at run time for all brokers and for this broker; the latter take precedence);
    ``started``: ``static`` as it was at the start, before the file was read again; ``source``: the file, None without one;
    ``groups``: the settings of single groups by group id (only in the coordinator, see
    `odradek.config.dynamic.group_values`; the dict is replaced, never modified); ``listeners`` and
    ``advertised_listeners``, in the order of the setting; ``inter_broker_listener``; ``log_dirs``, absolute paths;
    ``published_address``: host and port of `odradek.published.address`;
    ``node_id``; ``unknown`` keys and ``unknown_key_warnings``; all ``warnings``, and
    ``notes``, which require no action, one line each.
    """

    def __init__(
        self,
        settings: Mapping[str, Setting],
        unknown: Sequence[UnknownKey] = (),
        refused: Sequence[ConfigError] = (),
        to_start: bool = False,
    ) -> None:
        """Compute the derived attributes and check the settings against each other. Raises ConfigError with all errors.

        :param refused: errors of other settings, which are raised together with the errors of these checks.
        :param to_start: also check what only a starting broker refuses (`check_metadata_store`).
        """
        self.source: Source | None = None
        self.started = dict(settings)
        self.static = self.started
        self.of_all: dict[str, Setting] = {}
        self.of_broker: dict[str, Setting] = {}
        self.settings = dict(settings)
        self.groups: dict[str, dict[str, Value]] = {}
        self.published_address: tuple[str, int | None] | None = None
        self.unknown = tuple(unknown)
        self.unknown_key_warnings = [_unknown_key_warning(key) for key in unknown]
        self.warnings: list[str] = [*self.unknown_key_warnings]
        self.notes: list[str] = []
        self._values: dict[str, Value] = {name: key.default for name, key in BROKER_KEYS.items()}
        self._values.update((name, setting.value) for name, setting in settings.items())
        errors = [*refused, *self._derive_identity(), *self._derive_listeners(), *self._derive_log_dirs()]
        if self._values["num.network.threads"] is None:
            self._values["num.network.threads"] = len(os.sched_getaffinity(0))
        if self._values["metadata.store"] is None:
            self._values["metadata.store"] = "zookeeper" if self._values["zookeeper.connect"] else "embedded"
        if self.clustered and not self.is_set(GROUP_PROTOCOLS):
            self._values[GROUP_PROTOCOLS] = PROTOCOLS_IN_CLUSTER
        errors += self._wrong_pairs({error.name for error in refused})
        if to_start and not {"metadata.store", "process.roles"}.intersection(error.name for error in errors):
            errors += self._wrong_metadata_store()
        raise_all(errors)
        self.warnings += self.replica_warnings()
        self.warnings += self._unused_listener_keys()
        self.warnings += doubtful_super_users(parse_super_users(str(self._values[SUPER_USERS] or "")))
        self.topic_defaults: dict[str, Value] = {name: self._topic_default(key) for name, key in TOPIC_KEYS.items()}

    def replica_warnings(self) -> list[str]:
        """A warning if min.insync.replicas exceeds the number of replicas that new topics have; else none."""
        name, replicas = "min.insync.replicas", "default.replication.factor"
        count = self.integer(replicas) if self.clustered else 1
        if self.integer(name) <= count:
            return []
        needless = f"{name}={self[name]} ({self.where(name)}) does not make acks=all safer"
        if self.clustered:
            return [
                f"{needless} for new topics: they have {count} replicas ({replicas}), and acks=all waits for these only"
            ]
        return [
            f"{needless}: with metadata.store=embedded every partition has one replica, and acks=all waits for this broker only"
        ]

    def _unused_listener_keys(self) -> list[str]:
        """A warning for each prefix of a listener that does not exist: its keys have no effect."""
        names = [listener.name.lower() for listener in self.listeners]
        others = {name.lower() for name in _items(self._values["controller.listener.names"])}
        found = dict.fromkeys(
            name[len(LISTENER_PREFIX) :].partition(".")[0] for name in self.static if name.startswith(LISTENER_PREFIX)
        )
        return [
            f"ignoring all keys {LISTENER_PREFIX}{prefix}.*: there is no listener of this name; the names of the listeners, in "
            f"lower case, are {', '.join(names)}"
            for prefix in found
            if prefix not in names and prefix != METRICS and prefix not in others
        ]

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, default: Value = None) -> Value:
        """The value of a key; ``default`` if neither the table nor the settings contain the key."""
        return self._values.get(name, default)

    def integer(self, name: str) -> int:
        """The value of an integer key. Raises TypeError if it is unset or not an integer."""
        value = self._values[name]
        if not isinstance(value, int):
            raise TypeError(f"{name} is not an integer: {value!r}")
        return value

    def text(self, name: str) -> str:
        """The value of a string key. Raises TypeError if it is unset or not a string."""
        value = self._values[name]
        if not isinstance(value, str):
            raise TypeError(f"{name} is not a string: {value!r}")
        return value

    def own_listener_value(self, listener: str, key: str) -> Value:
        """The value of `listener.name.<listener>.<key>`; None if it is not set."""
        return self._values.get(f"{LISTENER_PREFIX}{listener.lower()}.{key}")

    def listener_value(self, listener_name: str, key: str, mechanism: str | None = None) -> Value:
        """The value of a key for one listener: that of `listener.name.<listener>.<mechanism>.<key>` if it is set, else that of
        `listener.name.<listener>.<key>`, else that of the key itself. The prefixed names are in lower case.

        :param mechanism: of SASL, such as "scram-sha-256"; None for keys that do not depend on it.
        """
        name = self.listener_key(listener_name, key, mechanism)
        return self.settings[name].value if name in self.settings else self._values[key]

    def listener_key(self, listener_name: str, key: str, mechanism: str | None = None) -> str:
        """The name under which `listener_value` finds the value, for messages."""
        prefix = f"{LISTENER_PREFIX}{listener_name.lower()}."
        names = [f"{prefix}{key}"] if mechanism is None else [f"{prefix}{mechanism.lower()}.{key}", f"{prefix}{key}"]
        return next((name for name in names if name in self.settings), key)

    def logger_levels(self, changed: Mapping[str, str]) -> dict[str, str]:
        """Level by logger, for the loggers with a configured level. :param changed: set at run time, of higher precedence."""
        entries = self["log.levels"]
        assert isinstance(entries, tuple)
        return {ROOT: self.text("log.level")} | parse_levels(entries) | dict(changed)

    def is_set(self, name: str) -> bool:
        """True if this key itself (not a synonym) was set anywhere."""
        return name in self.settings

    def changed(
        self, of_all: Mapping[str, str], of_broker: Mapping[str, str], of_file: Mapping[str, str | None] | None = None
    ) -> "BrokerConfig":
        """A copy in which these settings replace the current ones that were made at run time. Raises ConfigError.

        :param of_file: what changed in the file since the start, None for a key that was removed; without it, the file stays as
            it is.
        """
        new = copy.copy(self)
        if of_file is not None:
            set_now = {name: text for name, text in of_file.items() if text is not None}
            kept = {name: setting for name, setting in self.started.items() if name not in of_file}
            new.static = kept | _typed(set_now, self.source.path if self.source is not None else "")
        new.of_all = _typed(of_all, ALL_BROKERS)
        new.of_broker = _typed(of_broker, THIS_BROKER)
        new.settings = new.static | new.of_all | new.of_broker
        new._values = dict(self._values)
        of_files = {name for name, _ in self.static.items() ^ new.static.items()}
        for name in {*of_files, *self.of_all, *self.of_broker, *new.of_all, *new.of_broker}:
            row = broker_key(name)
            default = row.default if row is not None and row.name in BROKER_KEYS else None
            new._values[name] = new.settings[name].value if name in new.settings else default
        raise_all([*new._wrong_pairs()])
        new.topic_defaults = {name: new._topic_default(key) for name, key in TOPIC_KEYS.items()}
        return new

    def run_with(
        self, of_all: Mapping[str, str], of_broker: Mapping[str, str], of_file: Mapping[str, str | None] | None = None
    ) -> list[ConfigError]:
        """Replace the settings made at run time, in place; skip those that cannot be used, and return their errors.

        :param of_file: see `changed`.
        """
        if of_file is None and not (of_all or of_broker or self.of_all or self.of_broker):
            return []  # the usual case at a start; it saves a copy of the values
        layers = dict(of_all), dict(of_broker)
        errors: list[ConfigError] = []
        while True:
            try:
                vars(self).update(vars(self.changed(*layers, of_file)))
                return errors
            except ConfigError as error:
                first = error.errors[0]  # the other errors may disappear with this setting
                errors.append(first)
                containing = [layer for layer in layers if first.name in layer]
                # No layer contains the key if it contradicts another key and only that other key was set at run time.
                for layer in containing or layers:
                    layer.pop(first.name, None) if containing else layer.clear()

    @property
    def metrics_listener(self) -> Listener | None:
        """The listener for HTTP, with the name METRICS; None if it is disabled."""
        address = self.text("metrics.listener")
        if not address:
            return None
        return Listener(*parse_address("metrics.listener", f"METRICS://{address}"), "HTTP")

    def where(self, name: str) -> str:
        """Where a key was set: ``file:line``, ``--set``, `ALL_BROKERS`, `THIS_BROKER`, or ``default``."""
        setting = self.settings.get(name)
        return setting.where if setting else "default"

    @property
    def clustered(self) -> bool:
        """Whether the metadata store is ZooKeeper, so that other brokers may belong to the cluster."""
        return self._values["metadata.store"] == "zookeeper"

    def check_metadata_store(self) -> None:
        """Raise ConfigError if the settings of a cluster with ZooKeeper are wrong, or if KRaft controllers keep the metadata:
        the broker would then start without any topics.

        Only a start checks this: the command also reads such files to adopt the directories of a Kafka broker.
        """
        raise_all([*self._wrong_metadata_store()])

    def _wrong_metadata_store(self) -> Iterator[ConfigError]:
        if self.clustered:
            yield from self._wrong_broker_id()
            from odradek.config import zookeeper_client  # here: only few configurations need OpenSSL

            yield from zookeeper_client.wrong_settings(self)
        roles = _items(self._values["process.roles"])
        if roles and "controller" not in roles and not self.is_set("metadata.store"):
            yield self._error(
                "process.roles",
                "this broker cannot join the controllers of a KRaft cluster: it would start without the topics of that"
                " cluster. Set metadata.store=embedded to use the broker's own metadata store. To take over the directories"
                " of a Kafka broker, run `odradek adopt` first",
            )

    def _wrong_broker_id(self) -> Iterator[ConfigError]:
        name = "node.id" if self.is_set("node.id") else "broker.id"
        generates, largest = bool(self["broker.id.generation.enable"]), self.integer("reserved.broker.max.id")
        if not self.node_id_is_configured:
            if not generates:
                yield ConfigError("broker.id", None, "must be set, because broker.id.generation.enable=false")
        elif generates and self.node_id > largest:
            yield self._error(
                name,
                f"must not be above reserved.broker.max.id={largest}, because ZooKeeper generates the ids above it; set "
                "broker.id.generation.enable=false, or a larger reserved.broker.max.id",
            )

    @property
    def node_id_is_configured(self) -> bool:
        """False if node_id is only the default; the id in an existing data directory then takes precedence."""
        return any(self.is_set(name) and self.settings[name].value != -1 for name in ("node.id", "broker.id"))

    def use_node_id(self, node_id: int) -> None:
        """Use the id that a data directory contains, or that was generated, in place of the default."""
        self.node_id = node_id
        self._values["node.id"] = self._values["broker.id"] = node_id

    def use_metrics_port(self, port: int) -> None:
        """Use another port in the default of `metrics.listener`, because a process of this machine has its port."""
        host, _, _ = str(self._values["metrics.listener"]).rpartition(":")
        self._values["metrics.listener"] = f"{host}:{port}"

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The keys that were set but have no effect."""
        return tuple(name for name in self.settings if (row := broker_key(name)) and row.no_effect)

    def topic_config(self, overrides: Mapping[str, str]) -> dict[str, Value]:
        """Effective values of all topic keys for a topic with these settings. Raises ConfigError for an invalid setting."""
        return self.topic_defaults | validate_topic_configs(dict(overrides))

    def _topic_default(self, key: ConfigKey) -> Value:
        """The broker's value of a topic key: that of the first synonym that is set, else the default."""
        for synonym in key.synonyms:
            value = self.settings[synonym.name].value if synonym.name in self.settings else None
            if value is not None:
                if synonym.factor != 1 and isinstance(value, int):
                    return value * synonym.factor if value >= 0 else value
                return value
        return key.default

    def _error(self, name: str, reason: str) -> ConfigError:
        return ConfigError(
            name, show(self._values[name]), reason, self.settings[name].where if name in self.settings else ""
        )

    def _derive_identity(self) -> Iterator[ConfigError]:
        node_id, broker_id = self._values["node.id"], self._values["broker.id"]
        if node_id != -1 and broker_id not in (-1, node_id):
            yield self._error("broker.id", f"must be equal to node.id={node_id}, or unset")
        resolved = next((value for value in (node_id, broker_id) if value != -1), None)
        self.use_node_id(DEFAULT_NODE_ID if resolved is None else int(str(resolved)))
        roles = self._values["process.roles"]
        if roles and "broker" not in _items(roles):
            yield self._error("process.roles", "must contain broker: this program cannot run as a controller only")

    def _derive_listeners(self) -> Iterator[ConfigError]:
        skip = tuple(name.upper() for name in _items(self._values["controller.listener.names"]))
        errors: list[ConfigError] = []
        addresses = {name: _items(self._values[name]) for name in ("listeners", "advertised.listeners")}
        parsed: dict[str, list[Listener]] = {}
        protocols: dict[str, str] = {}
        try:
            protocols = parse_protocol_map(str(self._values["listener.security.protocol.map"]))
        except ConfigError as error:
            errors += error.errors  # the listeners cannot be checked without the map
            addresses = {}
        for name in [name for name, items in addresses.items() if items or name == "listeners"]:
            try:
                parsed[name] = parse_listeners(name, addresses[name], protocols, skip)
            except ConfigError as error:
                errors += error.errors
        if not errors:
            listeners, advertised = parsed["listeners"], parsed.get("advertised.listeners")
            try:
                check_ports(listeners)
                if advertised is not None:
                    check_advertised(listeners, advertised)
            except ConfigError as error:
                errors.append(error)
            self.listeners = tuple(listeners)
            self.advertised_listeners = tuple(advertise(listeners) if advertised is None else advertised)
            errors += self._wrong_published_address()
        yield from (error.at(self.where(error.name) if self.is_set(error.name) else "") for error in errors)
        yield from self._derive_inter_broker_listener(protocols, not errors)

    def _wrong_published_address(self) -> Iterator[ConfigError]:
        key = "odradek.published.address"
        text = self._values[key]
        if text is None:
            return
        try:
            self.published_address = parse_host(key, str(text))
        except ConfigError as error:
            yield error
        else:
            if self.published_address[1] is not None and len(self.listeners) > 1:
                yield ConfigError(
                    key, str(text), "must have no port, because there are several listeners; use advertised.listeners"
                )

    def _derive_inter_broker_listener(
        self, protocols: Mapping[str, str], listeners_known: bool
    ) -> Iterator[ConfigError]:
        """Derive the listener. :param listeners_known: False: report only errors that do not depend on the listeners."""
        name, key = self._values["inter.broker.listener.name"], "security.inter.broker.protocol"
        protocol = self._values[key]
        store = self._values["metadata.store"] or ("zookeeper" if self._values["zookeeper.connect"] else "embedded")
        if name is not None and self.is_set(key):
            yield self._error("inter.broker.listener.name", f"must not be set together with {key}")
        elif not listeners_known:
            return
        elif name is None:
            matches = [listener for listener in self.advertised_listeners if listener.protocol == protocol]
            if matches:
                same_name = (listener for listener in matches if listener.name == protocol)
                self.inter_broker_listener = next(same_name, matches[0])
            elif store == "embedded" and not self.is_set(key):  # no other broker exists
                self.inter_broker_listener = self.advertised_listeners[0]
            else:
                yield self._error(key, "must be the protocol of an advertised listener")
        else:
            by_name = {listener.name: listener for listener in self.advertised_listeners}
            if str(name).upper() in by_name:
                self.inter_broker_listener = by_name[str(name).upper()]
            else:
                yield self._error(
                    "inter.broker.listener.name", f"must be the name of an advertised listener: {', '.join(by_name)}"
                )

    def _derive_log_dirs(self) -> Iterator[ConfigError]:
        name = "log.dirs" if self._values["log.dirs"] else "log.dir"
        items = _items(self._values[name])
        paths = tuple(os.path.abspath(path) for path in items if path and "\0" not in path)  # noqa: PTH100 - Path.resolve would follow links
        if len(paths) < len(items):
            yield self._error(name, "must be a comma-separated list of directories without empty elements")
        elif len(set(paths)) < len(paths):
            yield self._error(name, "contains a directory twice; each directory must be listed once")
        self.log_dirs = paths
        self._values["log.dirs"] = paths

    def _wrong_pairs(self, refused: Collection[str] = ()) -> Iterator[ConfigError]:
        """Check settings against each other. :param refused: keys that already have an error; their pairs are not checked."""
        for lesser, greater in AT_MOST:
            low, high = self._values[lesser], self._values[greater]
            if lesser in refused or greater in refused:
                continue
            if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
                name, other, relation = (
                    (lesser, greater, "at most") if self.is_set(lesser) else (greater, lesser, "at least")
                )
                yield self._error(name, f"must be {relation} {other}={show(self._values[other])}")
        if "classic" not in _items(self._values[GROUP_PROTOCOLS]):
            yield self._error(GROUP_PROTOCOLS, "must contain classic, which cannot be disabled")
        try:
            parse_super_users(str(self._values[SUPER_USERS] or ""))
        except ValueError as error:
            yield self._error(SUPER_USERS, str(error))
        no_servers = not self._values["zookeeper.connect"] and "zookeeper.connect" not in refused
        if self._values["metadata.store"] == "zookeeper" and no_servers:
            yield self._error("metadata.store", "requires zookeeper.connect, which is not set")


SUPER_USERS = "super.users"

AT_MOST = (
    ("odradek.log.dir.hard.free.bytes", "odradek.log.dir.soft.free.bytes"),
    ("odradek.log.dir.hard.free.percent", "odradek.log.dir.soft.free.percent"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"),
)
"""Pairs of keys: the value of the first must not exceed the value of the second."""


def _typed(settings: Mapping[str, str], where: str) -> dict[str, Setting]:
    typed, errors = {}, []
    for name, text in settings.items():
        row = broker_key(name)
        if row is None:
            continue  # another version of the broker stored this key
        try:
            typed[name] = Setting(row.parse(text), text, where)
        except ConfigError as error:
            errors.append(error.at(where))
    raise_all(errors)
    return typed


def _items(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _unreadable(file: str, reason: str | None) -> ConfigError:
    return ConfigError("", None, f"cannot read the configuration file {file}: {reason}")


def _read_any(file: str) -> bytes:
    with open(file, "rb") as stream:
        return stream.read()


def load(
    path: str | os.PathLike[str] | None,
    overrides: Sequence[str] = (),
    to_start: bool = False,
    read: Callable[[str], bytes] = _read_any,
    environment: Environment = NO_ENVIRONMENT,
) -> BrokerConfig:
    """Load a ``server.properties`` file (or only the defaults, if ``path`` is None) with ``key=value`` overrides.

    The last setting of a key takes precedence; overrides take precedence over the file. Raises ConfigError with one line for
    each setting that cannot be used, also if the file cannot be read.

    :param to_start: also check what only a starting broker refuses (`BrokerConfig.check_metadata_store`).
    :param environment: settings of the program that starts the broker.
    :param read: reads the file; the default also reads from pipes and devices. Raises OSError.
    """
    entries: list[tuple[str, str, str]] = [*environment.defaults]
    if path is not None:
        file = os.fspath(path)
        try:
            data = read(file)
        except OSError as error:
            raise _unreadable(file, error.strerror) from None
        entries += [
            (name, value, f"{file}:{line}") for name, value, line in properties.parse(properties.decode(data), file)
        ]
    entries += environment.entries
    for override in overrides:
        name, separator, value = override.partition("=")
        if not separator or not name.strip():
            raise ConfigError("", None, f"must be key=value, not {override!r}", "--set")
        entries.append((name.strip(), value, "--set"))
    config = resolve(providers.resolved(entries), to_start)
    config.notes += environment.notes
    if path is not None:
        config.source = Source(os.fspath(path), tuple(overrides), environment)
    return config


def resolve(entries: Sequence[tuple[str, str, str]], to_start: bool = False) -> BrokerConfig:
    """Build the configuration from (key, text, where) in ascending precedence. Raises ConfigError. `to_start`: see `load`."""
    settings: dict[str, Setting] = {}
    unknown: dict[str, UnknownKey] = {}
    refused: list[ConfigError] = []
    last = {name: (text, where) for name, text, where in entries}
    for name, (text, where) in last.items():
        row = broker_key(name)
        if row is None:
            if not name.startswith(FREE_PREFIXES):
                unknown[name] = UnknownKey(name, where)
            continue
        provider = providers.unreplaced(text) if row.sensitive else None
        if provider is not None:
            reason = f"contains ${{{provider}:...}}, but {providers.PROVIDERS} names no provider {provider}"
            refused.append(ConfigError(name, None, reason, where))
            continue
        try:
            settings[name] = Setting(row.parse(text), text, where)
        except ConfigError as error:
            refused.append(error.at(where))
    try:
        return BrokerConfig(settings, tuple(unknown.values()), refused, to_start)
    except ConfigError as error:
        order = {name: place for place, name in enumerate(last)}
        ordered = combined(sorted(error.errors, key=lambda refusal: order.get(refusal.name, len(order))))
        ordered.warnings = [_unknown_key_warning(key) for key in unknown.values()]
        raise ordered from None
