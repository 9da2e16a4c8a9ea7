"""Configurations of topics, brokers, their loggers, and groups: read with their sources, and changed.

Functions over a `Cluster`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from odradek.clients.cluster import Cluster
from odradek.clients.errors import Refused
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
"""Who gave a value, by the number on the wire."""
TYPES = {1: "boolean", 2: "string", 3: "int", 4: "short", 5: "long", 6: "double", 7: "list", 8: "class", 9: "password"}
TOPIC_SOURCE, DEFAULT_SOURCE = 1, 5
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOPICS_AT_A_TIME = 500


class Resource(NamedTuple):
    """What has a configuration. :param kind: a key of KINDS.

    :param name: "" with kind broker stands for all of them; with kind loggers it is the id of their broker.
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
    """A key with its effective value. :param synonyms: (key, value, source), the one that counts first."""

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
    """The configuration, or these keys of it that exist, by name. :param explain: with synonyms and documentation.

    Raises Refused, ClientError.
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
    (told,) = _asked_of(cluster, resource).ask(api.SCHEMA, request, oldest=oldest).results
    if told.error_code:
        raise _refused(resource, told.error_code, told.error_message)
    return {one.name: _entry(one) for one in told.configs}


def of_topics(cluster: Cluster, topics: Sequence[str], key: str) -> dict[str, Entry]:
    """The effective value of one key, by topic; topics that do not exist any more are left out. Raises Refused, ClientError."""
    from odradek.protocol.schemas import describe_configs as api

    make = api.Request
    found: dict[str, Entry] = {}
    for first in range(0, len(topics), TOPICS_AT_A_TIME):
        resources = [
            make.DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=[key])
            for name in topics[first : first + TOPICS_AT_A_TIME]
        ]
        request = make(resources=resources, include_synonyms=False, include_documentation=False)
        for told in cluster.any_broker().ask(api.SCHEMA, request, oldest=1).results:
            if told.error_code not in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise _refused(Resource("topic", told.resource_name), told.error_code, told.error_message)
            for one in told.configs:
                if one.name == key:
                    found[told.resource_name] = _entry(one)
    return found


def _entry(told: Any) -> Entry:
    return Entry(
        told.name,
        told.value,
        told.config_source,
        told.read_only,
        told.is_sensitive,
        told.config_type,
        told.documentation,
        tuple((synonym.name, synonym.value, synonym.source) for synonym in told.synonyms),
    )


def alter(
    cluster: Cluster,
    resource: Resource,
    values: Mapping[str, str],
    deletions: Collection[str] = (),
    validate_only: bool = False,
) -> None:
    """Set keys, and give others back to their default. Raises Refused, ClientError."""
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
    (told,) = _asked_of(cluster, resource).ask(api.SCHEMA, request).responses
    if told.error_code:
        raise _refused(resource, told.error_code, told.error_message)


def _asked_of(cluster: Cluster, resource: Resource) -> Connection:
    """The connection to ask: a broker for itself and its loggers, any for the rest."""
    if resource.kind in ("broker", "loggers") and resource.name.isdigit():
        return cluster.broker(int(resource.name))
    return cluster.any_broker()


def _refused(resource: Resource, code: int, message: str | None) -> Refused:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return Refused(code, f"there is no topic '{resource.name}'; `odradek topic list` shows what there is")
    return Refused(code, message, str(resource))
