"""Reads a mirror's properties file into `MirrorSettings`, and checks everything that the file alone can show.

The keys are those of MirrorMaker 2 and the project's own (`keys.py`). A key is looked for as `a->b.KEY`, then as
`KEY`; settings of connections as `a.KEY`, then as `KEY`. Used in the main thread of the command; all results are
immutable.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from odradek.clients.cluster import Cluster, parse_servers
from odradek.clients.errors import ClientError
from odradek.clients.security import ClientSecurity
from odradek.clients.security_keys import KEYS as SECURITY_KEYS
from odradek.config import properties, providers
from odradek.config.errors import ConfigError, raise_all
from odradek.config.listeners import parse_address
from odradek.mirror.keys import (
    ALIAS,
    BOOL,
    CHOICE,
    FILTERS,
    GROUP_PREFIX,
    INT,
    JAVA_PACKAGE,
    KEYS,
    PATTERNS,
    STRUCTURE,
    WITHOUT_EFFECT,
    WITHOUT_EFFECT_PREFIXES,
    MirrorKey,
    Value,
    split_patterns,
)
from odradek.mirror.names import Edge, Patterns, ReplicationPolicy
from odradek.mirror.routes import LaneOptions
from odradek.mirror.starting import positions_group
from odradek.spelling import did_you_mean

LONGEST_FILE = 1 << 20
PROTOCOL_TYPE = "odradek-mirror"
CLIENT_ID = "odradek-mirror"
SERVERS = "bootstrap.servers"
_ARROW = "->"

Entry = tuple[str, str, str]
"""Name, value, and where the value was set."""


@dataclass(frozen=True)
class ClusterSettings:
    """How to connect to one cluster. :param servers: "host:port,..."."""

    alias: str
    servers: str
    security: ClientSecurity
    request_timeout_s: float = 30.0

    def connect(self, timeout_s: float | None = None) -> Cluster:
        """A new `Cluster`, for one thread; it connects at its first request. :param timeout_s: default: `request_timeout_s`."""
        timeout_s = timeout_s or self.request_timeout_s
        return Cluster(self.servers, timeout_s, security=self.security, client_id=CLIENT_ID)


@dataclass(frozen=True)
class FlowSettings:
    """One flow: from a source to a target.

    :param values: every key of the table `KEYS` with the value that holds for this flow.
    """

    source: ClusterSettings
    target: ClusterSettings
    policy: ReplicationPolicy
    topics: Patterns
    groups: Patterns
    excluded_settings: Patterns
    values: Mapping[str, Value]

    @property
    def name(self) -> str:
        """Such as "a->b"."""
        return f"{self.source.alias}{_ARROW}{self.target.alias}"

    @property
    def group_id(self) -> str:
        """The group in the target whose members are the workers."""
        return f"{GROUP_PREFIX}{self.name}"

    @property
    def lanes(self) -> int:
        """The number of lanes."""
        return self.integer("odradek.mirror.lanes")

    @property
    def exactly_once(self) -> bool:
        """Whether records and positions are written in one transaction."""
        return self.flag("odradek.mirror.exactly.once")

    @property
    def edge(self) -> Edge:
        """The flow as the search for cycles sees it."""
        return Edge(self.source.alias, self.target.alias, self.policy, self.topics)

    @property
    def positions_group(self) -> str:
        """The group in the target that has the positions."""
        return positions_group(self.group_id, self.exactly_once)

    def transactional_id(self, lane: int) -> str:
        """The transactional id of a lane."""
        return f"{self.group_id}.{self.lanes}.{lane}"

    def flag(self, key: str) -> bool:
        """The value of a boolean key."""
        return bool(self.values[key])

    def integer(self, key: str) -> int:
        """The value of an integer key."""
        value = self.values[key]
        assert isinstance(value, int), key
        return value

    def text(self, key: str) -> str:
        """The value of any other key, as text."""
        return str(self.values[key])

    def every_s(self, what: str) -> float | None:
        """The interval of a periodic task in seconds; None if it is disabled. :param what: such as "refresh.topics"."""
        return float(self.integer(f"{what}.interval.seconds")) if self.flag(f"{what}.enabled") else None

    @property
    def lane_options(self) -> LaneOptions:
        """The options of the flow's lanes."""
        return LaneOptions(
            exactly_once=self.exactly_once,
            commit_interval_ms=self.integer("odradek.mirror.commit.interval.ms"),
            commit_bytes=self.integer("odradek.mirror.commit.bytes"),
            fetch_max_bytes=self.integer("odradek.mirror.fetch.max.bytes"),
            partition_fetch_bytes=self.integer("odradek.mirror.partition.fetch.bytes"),
            fetch_memory_bytes=self.integer("odradek.mirror.fetch.memory.bytes"),
            fetch_wait_ms=self.integer("odradek.mirror.fetch.wait.ms"),
            transaction_timeout_ms=self.integer("odradek.mirror.transaction.timeout.ms"),
            request_timeout_s=self.integer("odradek.mirror.request.timeout.ms") / 1000,
            start=self.text("odradek.mirror.start"),
            append=self.text("odradek.mirror.copies.with.records") == "append",
            continue_truncated=self.text("odradek.mirror.source.truncation") == "continue",
            retry_stopped_s=float(self.integer("odradek.mirror.retry.stopped.seconds")),
        )


@dataclass(frozen=True)
class MirrorSettings:
    """The contents of a mirror's file.

    :param flows: the enabled flows, in the order of the file's aliases. :param notes: one line for each key that has
        no effect.
    :param metrics: host and port of the HTTP server; None: there is none.
    """

    file: str
    clusters: Mapping[str, ClusterSettings]
    flows: tuple[FlowSettings, ...]
    worker: str
    metrics: tuple[str, int] | None
    notes: tuple[str, ...] = ()

    def of(self, targets: Sequence[str], sources: Sequence[str] = ()) -> "MirrorSettings":
        """The settings with only the flows to these targets and from these sources; an empty argument selects all.

        Raises ConfigError for an unknown alias, and if no flow is left.
        """
        for alias in (*targets, *sources):
            if alias not in self.clusters:
                known = ", ".join(self.clusters)
                raise ConfigError("", None, f"'{alias}' is not in `clusters` of {self.file}; the aliases are {known}")
        flows = tuple(
            flow
            for flow in self.flows
            if (not targets or flow.target.alias in targets) and (not sources or flow.source.alias in sources)
        )
        if not flows:
            chosen = ", ".join((*targets, *sources))
            raise ConfigError("", None, f"no enabled flow of {self.file} concerns {chosen}; set `a->b.enabled = true`")
        return replace(self, flows=flows)


def load(path: str, overrides: Sequence[str] = ()) -> MirrorSettings:
    """Read and check the file. :param overrides: KEY=VALUE, which replace settings of the file. Raises ConfigError."""
    try:
        with open(path, "rb") as stream:
            text = properties.decode(stream.read(LONGEST_FILE + 1))
    except OSError as error:
        raise ConfigError("", None, f"cannot read the mirror's file {path}: {error.strerror}") from None
    if len(text) > LONGEST_FILE:
        raise ConfigError("", None, f"{path} is larger than {LONGEST_FILE} bytes; it must be a properties file")
    entries = [(entry.name, entry.value.strip(), f"{path}:{entry.line}") for entry in properties.parse(text, path)]
    for word in overrides:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise ConfigError("", None, f"--set {word} is not KEY=VALUE, e.g. a->b.enabled=true")
        entries.append((key.strip(), value.strip(), "--set"))
    return _Reader(path, providers.resolved(entries)).settings()


class _Reader:
    """The entries of one file, and the errors found so far. The last entry of a key counts, as in Java."""

    def __init__(self, path: str, entries: Sequence[Entry]) -> None:
        self._path = path
        self._entries = {name: (value, where) for name, value, where in entries}
        self._errors: list[ConfigError] = []
        self._notes: list[str] = []

    def settings(self) -> MirrorSettings:
        """Everything. Raises ConfigError with all errors."""
        aliases = self._aliases()
        self._check_names(aliases)
        top = {row.name: self._value(row, "") for row in KEYS.values()}
        flows_of = [(source, target) for source in aliases for target in aliases if self._enabled(source, target)]
        used = {alias for pair in flows_of for alias in pair}
        timeout_s = _whole(top, "odradek.mirror.request.timeout.ms") / 1000
        clusters = {
            alias: self._cluster(alias, timeout_s) for alias in aliases if alias in used or self._given(f"{alias}.")
        }
        raise_all(self._errors)
        flows = tuple(self._flow(clusters[source], clusters[target]) for source, target in flows_of)
        if not flows:
            example = _ARROW.join(aliases[:2])
            self._fail("", None, f"{self._path} enables no flow; set e.g. `{example}.enabled = true`", "")
        metrics = self._metrics(str(top["odradek.mirror.metrics.listener"]))
        raise_all(self._errors)
        worker = str(top["odradek.mirror.worker"])
        return MirrorSettings(self._path, clusters, flows, worker, metrics, tuple(self._notes))

    # -- names ----------------------------------------------------------------------------------------------------

    def _aliases(self) -> list[str]:
        text, where = self._entries.get("clusters", ("", ""))
        aliases = list(dict.fromkeys(split_patterns(text)))
        for alias in aliases:
            if not ALIAS.fullmatch(alias):
                self._fail(
                    "clusters",
                    alias,
                    "an alias must consist of letters, digits, '.', '_' and '-', because names of topics contain it",
                    where,
                )
        if len(aliases) < 2 and not self._errors:
            reason = "must list the aliases of at least two clusters, e.g. `clusters = a, b`"
            self._fail("clusters", text or None, reason, where or self._path)
        raise_all(self._errors)
        return aliases

    def _check_names(self, aliases: Sequence[str]) -> None:
        """Every key is known at its place, or has a note that it changes nothing, or is an error."""
        for name, (value, where) in self._entries.items():
            scope, key = _scope(name, aliases)
            if key in FILTERS and (_ARROW in scope or not scope):
                if value not in ("", FILTERS[key]):
                    self._fail(
                        name, value, f"only {FILTERS[key]} is supported, because Java classes cannot be loaded", where
                    )
                continue
            if self._is_known(scope, key):
                continue
            if key in WITHOUT_EFFECT or key.startswith(WITHOUT_EFFECT_PREFIXES):
                self._notes.append(f"{where}: {name} of MirrorMaker 2 or Kafka Connect has no effect here")
                continue
            self._fail(name, None, self._unknown(name, scope, key, aliases), where)

    def _is_known(self, scope: str, key: str) -> bool:
        if _ARROW in scope:
            return key in KEYS and KEYS[key].per_flow
        if scope:
            return key == SERVERS or key in SECURITY_KEYS
        return key in KEYS or key in STRUCTURE or key in SECURITY_KEYS or key.startswith("config.providers.")

    def _unknown(self, name: str, scope: str, key: str, aliases: Sequence[str]) -> str:
        source, arrow, target = name.partition(_ARROW)
        if arrow and not scope:
            found = [alias for alias in aliases if target.startswith(f"{alias}.")]
            alias = source if source not in aliases else target.partition(".")[0]
            if source not in aliases or not found:
                hint = did_you_mean(alias, aliases) or f"the aliases are {', '.join(aliases)}"
                return f"'{alias}' is not an alias in `clusters`; {hint}"
        if scope and _ARROW not in scope and key in KEYS and KEYS[key].per_flow:
            other = next(alias for alias in aliases if alias != scope)
            return f"is a key of flows: write `{other}{_ARROW}{scope}.{key}`, or `{key}` for all flows"
        if _ARROW in scope:
            known = [row.name for row in KEYS.values() if row.per_flow]
        elif scope:
            known = [SERVERS, *SECURITY_KEYS]
        else:
            known = [*KEYS, *STRUCTURE, *SECURITY_KEYS, *(f"{alias}.{SERVERS}" for alias in aliases)]
        hint = did_you_mean(key, known)
        return f"is not a key of the mirror; {hint or 'docs/operate/mirror.md lists all keys'}"

    def _given(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self._entries)

    # -- values ---------------------------------------------------------------------------------------------------

    def _enabled(self, source: str, target: str) -> bool:
        """Whether a flow exists. `enabled` at the top of the file enables no flow of a cluster with itself."""
        key = f"{source}{_ARROW}{target}.enabled"
        if source == target:
            if key in self._entries:
                self._fail(key, None, "a flow needs two different clusters", self._entries[key][1])
            return False
        return bool(self._value(KEYS["enabled"], f"{source}{_ARROW}{target}."))

    def _value(self, row: MirrorKey, prefix: str) -> Value:
        """The value of a key for a flow, or the default if the text is wrong; the error is noted once."""
        name = f"{prefix}{row.name}" if f"{prefix}{row.name}" in self._entries else row.name
        if name not in self._entries:
            return row.default
        text, where = self._entries[name]
        try:
            return _parsed(row, text)
        except ValueError as error:
            if all(known.name != name for known in self._errors):
                self._fail(name, text, str(error), where)
            return row.default

    def _cluster(self, alias: str, timeout_s: float) -> ClusterSettings:
        servers, where = self._entries.get(f"{alias}.{SERVERS}", ("", ""))
        try:
            if not servers:
                raise ConfigError(
                    f"{alias}.{SERVERS}", None, "is missing: name the brokers of the cluster as HOST:PORT,..."
                )
            parse_servers(servers)
            security = ClientSecurity.from_settings(self._security(alias))
        except ClientError as error:
            self._fail(f"{alias}.{SERVERS}", servers, str(error), where)
        except ConfigError as error:
            name = error.name if error.name.startswith(f"{alias}.") else f"{alias}.{error.name}"
            self._fail(name, error.value, error.reason, self._entries.get(name, ("", self._path))[1])
        else:
            self._notes += [f"{self._path}: {alias}: {line}" for line in security.warnings]
            return ClusterSettings(alias, servers, security, timeout_s)
        return ClusterSettings(alias, servers, ClientSecurity(), timeout_s)

    def _security(self, alias: str) -> dict[str, str]:
        """The settings of a cluster's connections: its own, and those at the top of the file."""
        values = {key: value for key, (value, _) in self._entries.items() if key in SECURITY_KEYS}
        for key in SECURITY_KEYS:
            if f"{alias}.{key}" in self._entries:
                values[key] = self._entries[f"{alias}.{key}"][0]
        return values

    def _flow(self, source: ClusterSettings, target: ClusterSettings) -> FlowSettings:
        prefix = f"{source.alias}{_ARROW}{target.alias}."
        values = {row.name: self._value(row, prefix) for row in KEYS.values()}
        timeout_s = _whole(values, "odradek.mirror.request.timeout.ms") / 1000
        policy = self._policy(source.alias, target.alias, values)
        return FlowSettings(
            replace(source, request_timeout_s=timeout_s),
            replace(target, request_timeout_s=timeout_s),
            policy,
            self._patterns(values, "topics", "topics.exclude"),
            self._patterns(values, "groups", "groups.exclude"),
            self._patterns(values, "config.properties.exclude", None),
            values,
        )

    def _policy(self, source: str, target: str, values: Mapping[str, Value]) -> ReplicationPolicy:
        separator = str(values["replication.policy.separator"])
        identity = str(values["replication.policy.class"]).startswith("Identity")
        if not re.fullmatch(r"[._-]{1,10}", separator):
            key, reason = "replication.policy.separator", "must consist of 1 to 10 of the characters '.', '_' and '-'"
            if all(known.name != key for known in self._errors):
                self._fail(key, separator, reason, self._entries.get(key, ("", self._path))[1])
        for alias in (source, target):
            if not identity and separator and separator in alias:
                reason = (
                    f"contains the separator '{separator}': names of topics would not show their source; choose another"
                )
                if all(known.value != alias for known in self._errors):
                    self._fail("clusters", alias, reason, self._entries["clusters"][1])
        own = bool(values["replication.policy.internal.topic.separator.enabled"])
        return ReplicationPolicy(identity, separator, separator if own else ".")

    def _patterns(self, values: Mapping[str, Value], include: str, exclude: str | None) -> Patterns:
        def items(key: str | None) -> tuple[str, ...]:
            value = () if key is None else values[key]
            assert isinstance(value, tuple)
            return value

        return Patterns(items(include), items(exclude))

    def _metrics(self, text: str) -> tuple[str, int] | None:
        key = "odradek.mirror.metrics.listener"
        if not text:
            return None
        try:
            _, host, port = parse_address(key, f"http://{text}")
        except ConfigError as error:
            reason = (
                error.reason
                if text.rpartition(":")[1] and "port" in error.reason
                else "must be HOST:PORT, e.g. 127.0.0.1:9405"
            )
            self._fail(key, text, reason, self._entries[key][1])
            return None
        return host, port

    def _fail(self, name: str, value: str | None, reason: str, where: str) -> None:
        self._errors.append(ConfigError(name, value, reason, where))


def _scope(name: str, aliases: Sequence[str]) -> tuple[str, str]:
    """The flow or alias that a key belongs to, "" for the top of the file, and the rest of the key."""
    for scope in _scopes(aliases):
        if name.startswith(f"{scope}."):
            return scope, name[len(scope) + 1 :]
    return "", name


def _scopes(aliases: Sequence[str]) -> Iterator[str]:
    """All scopes, the longest aliases first: one alias may be the beginning of another."""
    longest = sorted(aliases, key=lambda alias: -len(alias))
    yield from (f"{source}{_ARROW}{target}" for source in longest for target in longest)
    yield from longest


def _whole(values: Mapping[str, Value], key: str) -> int:
    value = values[key]
    assert isinstance(value, int), key
    return value


def _parsed(row: MirrorKey, text: str) -> Value:
    """The value of a text. Raises ValueError with what is allowed."""
    if row.kind == BOOL:
        if text.lower() not in ("true", "false"):
            raise ValueError("must be true or false")
        return text.lower() == "true"
    if row.kind == INT:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or not row.low <= int(text) <= row.high:
            raise ValueError(f"must be a whole number from {row.low} to {row.high}")
        return int(text)
    if row.kind == CHOICE:
        word = text.removeprefix(JAVA_PACKAGE)
        for choice in row.choices:
            if word.lower() == choice.lower():
                return choice
        raise ValueError(f"must be {' or '.join(row.choices)}")
    if row.kind == PATTERNS:
        return _checked_patterns(split_patterns(text))
    return text


def _checked_patterns(items: tuple[str, ...]) -> tuple[str, ...]:
    for item in items:
        try:
            re.compile(item)
        except re.error as error:
            raise ValueError(f"'{item}' is not a regular expression: {error}") from None
    return items
