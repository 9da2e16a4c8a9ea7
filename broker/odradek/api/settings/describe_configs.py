"""DescribeConfigs (32): returns the configuration of topics, this broker, its loggers, and groups. Executed by the
coordinator, in its store thread.

No other resources have a configuration. Values are returned with their sources, from the table of keys; sensitive values are
never returned.
"""

from collections.abc import Callable, Collection
from typing import Any

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.guarding import (
    Asked,
    Merged,
    VerdictInSteps,
    appended,
)
from odradek.api.permits import NAMES_A_STEP
from odradek.api.settings.config_changes import BROKER, BROKER_LOGGER, GROUP, TOPIC, check_broker_name
from odradek.api.settings.resources import code_of_denied, refused_resource, rights_of
from odradek.config import describe
from odradek.config.describe import DYNAMIC_BROKER_LOGGER_CONFIG, ConfigEntry
from odradek.config.errors import ConfigError
from odradek.config.loggers import LOGGERS
from odradek.controller.broker_settings import read_settings
from odradek.controller.store_errors import code_of
from odradek.controller.topic_names import why_illegal
from odradek.controller.topics import Refusal
from odradek.metadata import znodes
from odradek.metadata.store import StoreError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_configs
from odradek.security.acl import Operation
from odradek.stepwise import Pace, Steps

UNKNOWN_TYPE = 0
"""The type of a logger's level, as in Kafka."""

STEP = 20
"""The number of resources per step."""
Result = describe_configs.Response.DescribeConfigsResult
API = Api(
    describe_configs.SCHEMA,
    versions=(0, 4),
    place=Place.COORDINATOR,
    rights=rights_of(Operation.DESCRIBE_CONFIGS),
)


def guard(asked: Asked) -> VerdictInSteps:
    """DESCRIBE_CONFIGS on the topic, the group, or the cluster (brokers and their loggers)."""
    make = describe_configs.Response.DescribeConfigsResult
    kept, refused = [], []
    pace = Pace(NAMES_A_STEP)
    for resource in asked.request.resources:
        if pace.over():
            yield
        code = code_of_denied(resource.resource_type, resource.resource_name, Operation.DESCRIBE_CONFIGS, asked.permits)
        if code is None:
            kept.append(resource)
        else:
            refused.append(refused_resource(make, resource, code))
    if not refused:
        return None
    asked.request.resources = kept
    return Merged(appended("results", refused))


def handle(request: describe_configs.Request, call: CoordinatorCall) -> Steps:
    """Describe each resource of the request independently, a few per step. A resource that is named twice with the same keys is
    described once: a description may be a thousand times as large as its request.
    """
    resources = {
        (resource.resource_type, resource.resource_name, tuple(resource.configuration_keys or ())): resource
        for resource in request.resources
    }
    results = []
    pace = Pace(STEP)
    for resource in resources.values():
        if pace.over():
            yield
        results.append(_describe(resource, request, call))
    return describe_configs.Response(results=results)


def _describe(resource: Any, request: describe_configs.Request, call: CoordinatorCall) -> Any:
    result = Result(resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None)
    names = frozenset(resource.configuration_keys or ()) or None
    source = _SOURCES.get(resource.resource_type)
    try:
        if source is None:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"Resources of type {resource.resource_type} have no configuration:"
                f" use topics ({TOPIC}), brokers ({BROKER}), loggers ({BROKER_LOGGER}) or groups ({GROUP}).",
            )
        entries = source(resource.resource_name, names, call)
    except Refusal as refused:
        result.error_code, result.error_message = refused.code, str(refused)
    except StoreError as error:
        result.error_code, result.error_message = code_of(error), str(error)
    except ConfigError as error:
        result.error_code, result.error_message = ErrorCode.INVALID_CONFIG, str(error)
    else:
        result.configs = [_entry(entry, request, call.version) for entry in entries]
    return result


def _topic(name: str, names: Collection[str] | None, call: CoordinatorCall) -> list[ConfigEntry]:
    reason = why_illegal(name)
    if reason is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    store = call.view.store
    if store.exists(znodes.topic_path(name)) is None or store.exists(znodes.delete_topic_path(name)) is not None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
    settings = read_settings(store, znodes.topic_config_path(name))
    return describe.describe_topic(call.view.config, settings, names)


def _broker(name: str, names: Collection[str] | None, call: CoordinatorCall) -> list[ConfigEntry]:
    """This broker's configuration. An empty name means all brokers: the settings that were set at run time for all."""
    if name == "":
        return describe.describe_all_brokers(call.view.config, names)
    check_broker_name(name, call, " or empty string")
    return describe.describe_broker(call.view.config, names)


def _group(name: str, names: Collection[str] | None, call: CoordinatorCall) -> list[ConfigEntry]:
    if name == "":
        raise Refusal(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    return describe.describe_group(call.view.config, call.view.settings.of_group(name), names)


def _loggers(name: str, names: Collection[str] | None, call: CoordinatorCall) -> list[ConfigEntry]:
    """The effective level of each logger: its own, or that of its parent."""
    check_broker_name(name, call)
    return [
        ConfigEntry(logger, level, DYNAMIC_BROKER_LOGGER_CONFIG, False, False, UNKNOWN_TYPE, LOGGERS[logger], ())
        for logger, level in call.view.settings.levels().items()
        if names is None or logger in names
    ]


_SOURCES: dict[int, Callable[[str, Collection[str] | None, CoordinatorCall], list[ConfigEntry]]] = {
    TOPIC: _topic,
    BROKER: _broker,
    BROKER_LOGGER: _loggers,
    GROUP: _group,
}


def _entry(entry: ConfigEntry, request: describe_configs.Request, version: int) -> Any:
    result = describe_configs.Response.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_sensitive=entry.is_sensitive,
        config_source=entry.source,
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
    if version == 0:
        result.is_default = entry.is_default
    if request.include_synonyms:
        result.synonyms = [
            describe_configs.Response.DescribeConfigsSynonym(
                name=synonym.name, value=synonym.value, source=synonym.source
            )
            for synonym in entry.synonyms
        ]
    return result
