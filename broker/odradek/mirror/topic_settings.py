"""Reads the settings of many topics, and computes which settings of a target topic must change to follow its source.

Functions over a `Cluster` and values. Used in the thread of a flow, and by `odradek mirror check`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.clients.cluster import Cluster
from odradek.clients.configs import DEFAULT_SOURCE, TOPIC, TOPIC_SOURCE
from odradek.clients.errors import RefusedError
from odradek.mirror.names import Patterns

AT_A_TIME = 200
TIMESTAMP_TYPE, LARGEST_MESSAGE = "message.timestamp.type", "max.message.bytes"
CREATE_TIME = "CreateTime"


class Setting(NamedTuple):
    """A key of a topic. :param of_topic: set for this topic. :param default: nobody set it, neither for the topic nor
    for brokers.

    :param fixed: it cannot be written, or its value is hidden.
    """

    value: str | None
    of_topic: bool
    default: bool
    fixed: bool


Settings = Mapping[str, Setting]


def read(cluster: Cluster, topics: Sequence[str]) -> tuple[dict[str, dict[str, Setting]], dict[str, str]]:
    """The settings of each topic by key, and the reason for each topic whose settings cannot be read.

    Raises ClientError; UnsupportedError for brokers before Kafka 1.1.
    """
    from odradek.protocol.schemas import describe_configs as api

    make = api.Request
    found: dict[str, dict[str, Setting]] = {}
    refused: dict[str, str] = {}
    for first in range(0, len(topics), AT_A_TIME):
        resources = [
            make.DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
            for name in topics[first : first + AT_A_TIME]
        ]
        request = make(resources=resources, include_synonyms=False, include_documentation=False)
        for result in cluster.any_broker().ask(api.SCHEMA, request, oldest=1).results:
            if result.error_code:
                refused[result.resource_name] = str(RefusedError(result.error_code, result.error_message))
                continue
            found[result.resource_name] = {
                config.name: Setting(
                    config.value,
                    config.config_source == TOPIC_SOURCE,
                    config.config_source == DEFAULT_SOURCE,
                    config.read_only or config.is_sensitive or config.value is None,
                )
                for config in result.configs
            }
    return found, refused


def wanted(source: Settings, excluded: Patterns, source_defaults: bool) -> dict[str, str]:
    """The settings that a new target topic gets: those that somebody set in the source.

    :param source_defaults: also the defaults of the source (`use.defaults.from=source`).
    """
    return {
        key: setting.value
        for key, setting in source.items()
        if setting.value is not None
        and not setting.fixed
        and not excluded.selects(key)
        and (source_defaults or not setting.default)
    }


class Changes(NamedTuple):
    """What to change in the settings of a target topic. :param unknown: keys of the source that the target does not
    have.
    """

    values: dict[str, str]
    deletions: list[str]
    unknown: list[str]


def changes(source: Settings, target: Settings, excluded: Patterns, source_defaults: bool) -> Changes:
    """What makes the settings of the target equal to those of the source."""
    values = wanted(source, excluded, source_defaults)
    known = {key: value for key, value in values.items() if key in target}
    return Changes(
        {key: value for key, value in known.items() if target[key].value != value and not target[key].fixed},
        sorted(
            key
            for key, setting in target.items()
            if setting.of_topic
            and not setting.fixed
            and key in source
            and key not in values
            and not excluded.selects(key)
        ),
        sorted(set(values) - set(known)),
    )


def largest_message(settings: Settings) -> int | None:
    """The value of max.message.bytes; None if it is not known."""
    setting = settings.get(LARGEST_MESSAGE)
    value = None if setting is None else setting.value
    return int(value) if value is not None and re.fullmatch("[0-9]{1,10}", value) else None


def has_create_time(settings: Settings) -> bool:
    """Whether records keep the timestamps of their producers."""
    setting = settings.get(TIMESTAMP_TYPE)
    return setting is None or setting.value in (None, CREATE_TIME)
