"""A broker's configuration: file and command line read, checked and put together; and what was changed since.

Made once by the command, before any process is forked. Every process has its own copy and reads it without a lock; what
changes while the broker runs comes to each copy by `BrokerConfig.run_with`, called by one thread of the process.
"""

import copy
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from odradek.config import properties
from odradek.config.errors import ConfigError, raise_all
from odradek.config.key import NONE, NONE_YET, ConfigKey, Value, show
from odradek.config.listeners import (
    SUPPORTED_PROTOCOLS,
    Listener,
    advertise,
    check_advertised,
    check_ports,
    parse_address,
    parse_listeners,
    parse_protocol_map,
)
from odradek.config.table import BROKER_KEYS, FREE_PREFIXES, TOPIC_KEYS, broker_key, validate_topic_configs

DEFAULT_NODE_ID = 1
ALL_BROKERS, THIS_BROKER = "changed at run time for all brokers", "changed at run time for this broker"
"""What `BrokerConfig.where` says of settings that are in the metadata store."""


class Setting(NamedTuple):
    """A value that somebody set: as typed, as written, and where (``file:line`` or ``--set``)."""

    value: Value
    text: str
    where: str


class UnknownKey(NamedTuple):
    """A setting that no row of the table knows."""

    name: str
    where: str


def _ignored(key: UnknownKey) -> str:
    from difflib import get_close_matches  # hardly any configuration has an unknown key

    close = get_close_matches(key.name, BROKER_KEYS, 1, 0.8)
    return f"unknown key {key.name} is ignored ({key.where})" + (f"; did you mean {close[0]}?" if close else "")


class BrokerConfig:
    """Typed values by key: ``config["log.segment.bytes"]``.

    Attributes: ``settings`` what was set, by key, wherever that was; of these ``static`` in the file or on the command line,
    ``of_all`` and ``of_broker`` at run time, the latter winning; ``groups`` the settings of single groups by id (in the
    coordinator, see `odradek.config.dynamic.group_values`; replaced, never changed); ``listeners`` and
    ``advertised_listeners`` in the order given; ``inter_broker_listener``; ``log_dirs`` absolute; ``node_id``; ``unknown``
    keys; ``warnings``, lines for people.
    """

    def __init__(
        self,
        settings: Mapping[str, Setting],
        unknown: Sequence[UnknownKey] = (),
        refused: Sequence[ConfigError] = (),
        to_start: bool = False,
    ) -> None:
        """Derives and cross-checks everything. Raises ConfigError, with all that is wrong.

        :param refused: errors of other settings, which are reported together with those that are found here.
        :param to_start: also refuse what only a start refuses (`check_metadata_store`).
        """
        self.static = dict(settings)
        self.of_all: dict[str, Setting] = {}
        self.of_broker: dict[str, Setting] = {}
        self.settings = dict(settings)
        self.groups: dict[str, dict[str, Value]] = {}
        self.unknown = tuple(unknown)
        self.warnings: list[str] = [_ignored(key) for key in unknown]
        self._values: dict[str, Value] = {name: key.default for name, key in BROKER_KEYS.items()}
        self._values.update((name, setting.value) for name, setting in settings.items())
        errors = [*refused, *self._derive_identity(), *self._derive_listeners(), *self._derive_log_dirs()]
        if self._values["num.network.threads"] is None:
            self._values["num.network.threads"] = len(os.sched_getaffinity(0))
        if self._values["metadata.store"] is None:
            self._values["metadata.store"] = "zookeeper" if self._values["zookeeper.connect"] else "embedded"
        errors += self._wrong_pairs({error.name for error in refused})
        if to_start and not {"metadata.store", "process.roles"}.intersection(error.name for error in errors):
            errors += self._wrong_metadata_store()
        raise_all(errors)
        self.warnings += self.replica_warnings()
        self.topic_defaults: dict[str, Value] = {name: self._topic_default(key) for name, key in TOPIC_KEYS.items()}

    def replica_warnings(self) -> list[str]:
        """A line for people if more replicas are asked for than a partition of this broker can have; else none."""
        name = "min.insync.replicas"
        if self.integer(name) <= 1:
            return []
        return [
            f"{name}={self[name]} ({self.where(name)}) does not make acks=all safer: this broker does not replicate yet, "
            "partitions have one replica, and a write with acks=all is acknowledged when this broker alone has it"
        ]

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, default: Value = None) -> Value:
        """The value of a key; ``default`` if no row and no setting has that name."""
        return self._values.get(name, default)

    def integer(self, name: str) -> int:
        """The value of a key that is an integer and has one."""
        value = self._values[name]
        if not isinstance(value, int):
            raise TypeError(f"{name} is no integer: {value!r}")
        return value

    def text(self, name: str) -> str:
        """The value of a key that is a text and has one."""
        value = self._values[name]
        if not isinstance(value, str):
            raise TypeError(f"{name} is no text: {value!r}")
        return value

    def is_set(self, name: str) -> bool:
        """True if a person set this very key, in whatever place."""
        return name in self.settings

    def changed(self, of_all: Mapping[str, str], of_broker: Mapping[str, str]) -> "BrokerConfig":
        """A copy with these settings at run time, instead of those there are. Raises ConfigError."""
        new = copy.copy(self)
        new.of_all = _typed(of_all, ALL_BROKERS)
        new.of_broker = _typed(of_broker, THIS_BROKER)
        new.settings = self.static | new.of_all | new.of_broker
        new._values = dict(self._values)
        for name in {*self.of_all, *self.of_broker, *new.of_all, *new.of_broker}:
            row = broker_key(name)
            default = row.default if row is not None and row.name in BROKER_KEYS else None
            new._values[name] = new.settings[name].value if name in new.settings else default
        raise_all([*new._wrong_pairs()])
        new.topic_defaults = {name: new._topic_default(key) for name, key in TOPIC_KEYS.items()}
        return new

    def run_with(self, of_all: Mapping[str, str], of_broker: Mapping[str, str]) -> list[ConfigError]:
        """Take over these settings at run time, in place. What cannot be used is left out: the errors."""
        layers = dict(of_all), dict(of_broker)
        errors: list[ConfigError] = []
        while True:
            try:
                vars(self).update(vars(self.changed(*layers)))
                return errors
            except ConfigError as error:
                first = error.errors[0]  # the others may go with it
                errors.append(first)
                found = [layer for layer in layers if first.name in layer]
                for layer in found or layers:  # two keys may contradict each other, and only the other one be set here
                    layer.pop(first.name, None) if found else layer.clear()

    @property
    def metrics_listener(self) -> Listener | None:
        """Where HTTP is served, under the name METRICS; None if nowhere."""
        address = self.text("metrics.listener")
        if not address:
            return None
        return Listener(*parse_address("metrics.listener", f"METRICS://{address}"), "HTTP")

    def where(self, name: str) -> str:
        """Where a key was set: ``file:line``, ``--set``, or ``default``."""
        setting = self.settings.get(name)
        return setting.where if setting else "default"

    def check_metadata_store(self) -> None:
        """Refuse to start where the cluster's metadata is kept by others: the broker would start with no topics at all.

        Raises ConfigError. For the start alone: the command reads such files too, to take over a Kafka's directories.
        """
        raise_all([*self._wrong_metadata_store()])

    def _wrong_metadata_store(self) -> Iterator[ConfigError]:
        instead = (
            "it would start alone, without the topics of that cluster. To run it on a metadata store of its own,"
            " set metadata.store=embedded; to take over the directories of a Kafka, run `odradek adopt` before that"
        )
        if self.is_set("metadata.store") and self._values["metadata.store"] == "zookeeper":
            yield self._error("metadata.store", "is not supported yet; set metadata.store=embedded")
        elif self._values["metadata.store"] == "zookeeper":
            yield self._error("zookeeper.connect", f"this broker cannot join a cluster on ZooKeeper yet: {instead}")
        roles = _items(self._values["process.roles"])
        if roles and "controller" not in roles and not self.is_set("metadata.store"):
            yield self._error("process.roles", f"this broker cannot join a KRaft cluster's controllers: {instead}")

    @property
    def node_id_is_configured(self) -> bool:
        """False if node_id is only the default, so that the id in an existing data directory wins."""
        return any(self.is_set(name) and self.settings[name].value != -1 for name in ("node.id", "broker.id"))

    @property
    def without_effect(self) -> tuple[str, ...]:
        """Keys that were set and on which nothing depends yet."""
        return tuple(name for name in self.settings if (row := broker_key(name)) and row.effect in (NONE, NONE_YET))

    def topic_config(self, overrides: Mapping[str, str]) -> dict[str, Value]:
        """Effective values of all topic keys for a topic with these settings. Raises ConfigError for a bad one."""
        return self.topic_defaults | validate_topic_configs(dict(overrides))

    def _topic_default(self, key: ConfigKey) -> Value:
        """The broker's value for a topic key: the first synonym that is set, else the default."""
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
            yield self._error("broker.id", f"must equal node.id={node_id} or be left out")
        resolved = next((value for value in (node_id, broker_id) if value != -1), DEFAULT_NODE_ID)
        self.node_id = int(str(resolved))
        self._values["node.id"] = self._values["broker.id"] = self.node_id
        roles = self._values["process.roles"]
        if roles and "broker" not in _items(roles):
            yield self._error("process.roles", "must contain broker: a controller alone is not supported")
        if self.is_set("process.roles"):
            self.warnings.append(
                "process.roles and controller.* belong to KRaft and have no effect: metadata.store counts"
            )

    def _derive_listeners(self) -> Iterator[ConfigError]:
        skip = tuple(name.upper() for name in _items(self._values["controller.listener.names"]))
        errors: list[ConfigError] = []
        given = {name: _items(self._values[name]) for name in ("listeners", "advertised.listeners")}
        parsed: dict[str, list[Listener]] = {}
        protocols: dict[str, str] = {}
        try:
            protocols = parse_protocol_map(str(self._values["listener.security.protocol.map"]))
        except ConfigError as error:
            errors += error.errors  # nothing of the listeners can be judged without it
            given = {}
        for name in [name for name, items in given.items() if items or name == "listeners"]:
            try:
                parsed[name] = parse_listeners(name, given[name], protocols, skip)
            except ConfigError as error:
                errors += error.errors
        if not errors:
            listeners, advertised = parsed["listeners"], parsed.get("advertised.listeners")
            if len(listeners) < len(given["listeners"]):
                self.warnings.append(f"the controller listener {', '.join(skip)} of listeners is not opened")
            try:
                check_ports(listeners)
                if advertised is not None:
                    check_advertised(listeners, advertised)
            except ConfigError as error:
                errors.append(error)
            self.listeners = tuple(listeners)
            self.advertised_listeners = tuple(advertise(listeners) if advertised is None else advertised)
        yield from (error.at(self.where(error.name) if self.is_set(error.name) else "") for error in errors)
        yield from self._derive_inter_broker_listener(protocols, not errors)

    def _derive_inter_broker_listener(
        self, protocols: Mapping[str, str], listeners_known: bool
    ) -> Iterator[ConfigError]:
        """Where the listeners are wrong, only what would be wrong with any others is reported."""
        name, key = self._values["inter.broker.listener.name"], "security.inter.broker.protocol"
        wanted = self._values[key]
        if wanted not in SUPPORTED_PROTOCOLS:
            yield self._error(key, f"is not supported yet; must be {' or '.join(SUPPORTED_PROTOCOLS)}")
        elif name is not None and self.is_set(key):
            yield self._error("inter.broker.listener.name", f"must not be set together with {key}")
        elif protocols.get(str(name).upper(), SUPPORTED_PROTOCOLS[0]) not in SUPPORTED_PROTOCOLS:
            yield self._error(
                "inter.broker.listener.name",
                f"has the security protocol {protocols[str(name).upper()]}, which is not supported yet; "
                f"must be a listener with {' or '.join(SUPPORTED_PROTOCOLS)}",
            )
        elif not listeners_known:
            return
        elif name is None:
            found = [one for one in self.advertised_listeners if one.protocol == wanted]
            if found:
                self.inter_broker_listener = next((one for one in found if one.name == wanted), found[0])
            else:
                yield self._error(key, "must be the protocol of an advertised listener")
        else:
            by_name = {one.name: one for one in self.advertised_listeners}
            if str(name).upper() in by_name:
                self.inter_broker_listener = by_name[str(name).upper()]
            else:
                yield self._error("inter.broker.listener.name", f"must be an advertised listener: {', '.join(by_name)}")

    def _derive_log_dirs(self) -> Iterator[ConfigError]:
        name = "log.dirs" if self._values["log.dirs"] else "log.dir"
        given = _items(self._values[name])
        paths = tuple(os.path.abspath(path) for path in given if path and "\0" not in path)  # noqa: PTH100 - Path.resolve would follow links
        if len(paths) < len(given):
            yield self._error(name, "must be a comma-separated list of directories, none of them empty")
        elif len(set(paths)) < len(paths):
            yield self._error(name, "names a directory twice")
        self.log_dirs = paths
        self._values["log.dirs"] = paths

    def _wrong_pairs(self, refused: Collection[str] = ()) -> Iterator[ConfigError]:
        """:param refused: keys whose values are wrong by themselves; no pair with one of them is checked."""
        for lesser, greater in _AT_MOST:
            low, high = self._values[lesser], self._values[greater]
            if lesser in refused or greater in refused:
                continue
            if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
                name, other, word = (
                    (lesser, greater, "at most") if self.is_set(lesser) else (greater, lesser, "at least")
                )
                yield self._error(name, f"must be {word} {other}={show(self._values[other])}")
        name = "group.coordinator.rebalance.protocols"
        if "classic" not in _items(self._values[name]):
            yield self._error(name, "must contain classic, which cannot be disabled")
        without = not self._values["zookeeper.connect"] and "zookeeper.connect" not in refused
        if self._values["metadata.store"] == "zookeeper" and without:
            yield self._error("metadata.store", "needs zookeeper.connect")


_AT_MOST = (
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
"""Pairs of which the first must not exceed the second."""


def _typed(settings: Mapping[str, str], where: str) -> dict[str, Setting]:
    typed, errors = {}, []
    for name, text in settings.items():
        row = broker_key(name)
        if row is None:
            continue  # of another version of the broker
        try:
            typed[name] = Setting(row.parse(text), text, where)
        except ConfigError as error:
            errors.append(error.at(where))
    raise_all(errors)
    return typed


def _items(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def load(path: str | os.PathLike[str] | None, overrides: Sequence[str] = (), to_start: bool = False) -> BrokerConfig:
    """The configuration of a ``server.properties`` file (or of nothing but defaults) with ``key=value`` overrides.

    The last setting of a key wins, overrides over the file. Raises ConfigError for everything that cannot be used, one line
    for each setting; an unreadable file is one.

    :param to_start: also refuse what only a start refuses (`BrokerConfig.check_metadata_store`).
    """
    given: list[tuple[str, str, str]] = []
    if path is not None:
        file = os.fspath(path)
        try:
            with open(file, "rb") as stream:
                data = stream.read()
        except OSError as error:
            raise ConfigError("", None, f"cannot read the configuration file {file}: {error.strerror}") from None
        given += [
            (name, value, f"{file}:{line}") for name, value, line in properties.parse(properties.decode(data), file)
        ]
    for override in overrides:
        name, found, value = override.partition("=")
        if not found or not name.strip():
            raise ConfigError("", None, f"must be key=value, not {override!r}", "--set")
        given.append((name.strip(), value, "--set"))
    return resolve(given, to_start)


def resolve(given: Sequence[tuple[str, str, str]], to_start: bool = False) -> BrokerConfig:
    """The configuration of (key, text, where) in order of rising precedence; `to_start` as for `load`. Raises ConfigError."""
    settings: dict[str, Setting] = {}
    unknown: dict[str, UnknownKey] = {}
    refused: list[ConfigError] = []
    last = {name: (text, where) for name, text, where in given}
    for name, (text, where) in last.items():
        row = broker_key(name)
        if row is None:
            if not name.startswith(FREE_PREFIXES):
                unknown[name] = UnknownKey(name, where)
            continue
        try:
            settings[name] = Setting(row.parse(text), text, where)
        except ConfigError as error:
            refused.append(error.at(where))
    try:
        return BrokerConfig(settings, tuple(unknown.values()), refused, to_start)
    except ConfigError as error:
        order = {name: place for place, name in enumerate(last)}
        raise_all(sorted(error.errors, key=lambda one: order.get(one.name, len(order))))
        raise
