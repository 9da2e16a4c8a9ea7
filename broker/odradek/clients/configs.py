"""Reads and changes the configurations of topics, brokers, loggers and groups.

Functions over a `Cluster`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from odradek.clients.cluster import Cluster
from odradek.clients.errors import RefusedError, only
from odradek.clients.wire import Connection
from odradek.protocol.errors import ErrorCode

TOPIC, BROKER, LOGGERS, GROUP = 2, 4, 8, 32
KINDS = {"topic": TOPIC, "broker": BROKER, "loggers": LOGGERS, "group": GROUP}
SOURCES = {
    0: "unknown",
    1: "topic",
    2: "broker, at run time",
    3: "all brokers, at run time",
    4: "broker's file",
    5: "default",
    6: "broker's logger",
    7: "client metrics",
    8: "group",
}
"""Names of the sources of a value, by their number on the wire."""
TYPES = {1: "boolean", 2: "string", 3: "int", 4: "short", 5: "long", 6: "double", 7: "list", 8: "class", 9: "password"}
TOPIC_SOURCE, DEFAULT_SOURCE = 1, 5
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOPICS_AT_A_TIME = 500


class Resource(NamedTuple):
    """A topic, broker, broker's set of loggers or group. :param kind: a key of KINDS.

    :param name: with kind broker, "" means the defaults of all brokers; with kind loggers, the id of the broker.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        if self.kind == "loggers":
            return f"the loggers of broker {self.name}"
        return f"{self.kind} '{self.name}'" if self.kind != "broker" else self._broker()

    def _broker(self) -> str:
        return f"broker {self.name}" if self.name else "all brokers"


class Entry(NamedTuple):
    """A key with its effective value. :param synonyms: (key, value, source), the effective one first."""

    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    type: int
    documentation: str | None
    synonyms: tuple[tuple[str, str | None, int], ...]


def describe(
    cluster: Cluster,
    resource: Resource,
    keys: Collection[str] | None = None,
    explain: bool = False,
) -> dict[str, Entry]:
    """The entries of a configuration by name, or the existing ones of `keys`.

    :param explain: include synonyms and documentation.

    Raises RefusedError, ClientError.
    """
    from odradek.protocol.schemas import describe_configs as api

    make = api.Request
    request = make(
        resources=[
            make.DescribeConfigsResource(
                resource_type=KINDS[resource.kind],
                resource_name=resource.name,
                configuration_keys=None if keys is None else list(keys),
            )
        ],
        include_synonyms=True,
        include_documentation=explain,
    )
    oldest = 3 if explain else 1
    response = _broker_for(cluster, resource).ask(api.SCHEMA, request, oldest=oldest)
    result = only(response.results, str(resource))
    if result.error_code:
        raise _refused(cluster, resource, result.error_code, result.error_message)
    return {config.name: _entry(config) for config in result.configs}


def of_topics(cluster: Cluster, topics: Sequence[str], key: str) -> dict[str, Entry]:
    """The effective value of one key, by topic; topics that no longer exist are omitted. Raises RefusedError, ClientError."""
    from odradek.protocol.schemas import describe_configs as api

    make = api.Request
    entries: dict[str, Entry] = {}
    for first in range(0, len(topics), TOPICS_AT_A_TIME):
        resources = [
            make.DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=[key])
            for name in topics[first : first + TOPICS_AT_A_TIME]
        ]
        request = make(resources=resources, include_synonyms=False, include_documentation=False)
        for result in cluster.any_broker().ask(api.SCHEMA, request, oldest=1).results:
            if result.error_code not in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise _refused(
                    cluster, Resource("topic", result.resource_name), result.error_code, result.error_message
                )
            for config in result.configs:
                if config.name == key:
                    entries[result.resource_name] = _entry(config)
    return entries


def _entry(config: Any) -> Entry:
    return Entry(
        config.name,
        config.value,
        config.config_source,
        config.read_only,
        config.is_sensitive,
        config.config_type,
        config.documentation,
        tuple((synonym.name, synonym.value, synonym.source) for synonym in config.synonyms),
    )


def alter(
    cluster: Cluster,
    resource: Resource,
    values: Mapping[str, str],
    deletions: Collection[str] = (),
    validate_only: bool = False,
) -> None:
    """Set `values`, and reset `deletions` to their defaults. Raises RefusedError, ClientError."""
    from odradek.protocol.schemas import incremental_alter_configs as api

    make = api.Request
    changes = [make.AlterableConfig(name=name, config_operation=SET, value=value) for name, value in values.items()]
    changes += [make.AlterableConfig(name=name, config_operation=DELETE, value=None) for name in deletions]
    request = make(
        resources=[
            make.AlterConfigsResource(resource_type=KINDS[resource.kind], resource_name=resource.name, configs=changes)
        ],
        validate_only=validate_only,
    )
    result = only(_broker_for(cluster, resource).ask(api.SCHEMA, request).responses, str(resource))
    if result.error_code:
        raise _refused(cluster, resource, result.error_code, result.error_message)


def _broker_for(cluster: Cluster, resource: Resource) -> Connection:
    """The connection that serves a resource: the broker itself for its configuration and loggers, any broker for the rest."""
    if resource.kind in ("broker", "loggers") and resource.name.isdigit():
        return cluster.broker(int(resource.name))
    return cluster.any_broker()


def _refused(cluster: Cluster, resource: Resource, code: int, message: str | None) -> RefusedError:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return cluster.no_topic(resource.name)
    return RefusedError(code, message, str(resource))
