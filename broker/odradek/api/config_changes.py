"""Changes of settings, as AlterConfigs and IncrementalAlterConfigs ask for them: of topics, brokers, loggers, groups. In the
controller thread.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.stepwise import Steps
from odradek.config.dynamic import GROUP_KEYS
from odradek.config.key import LIST, ConfigKey, Value, show
from odradek.config.loggers import LEVELS, LOGGERS, ROOT
from odradek.config.table import TOPIC_KEYS, broker_key
from odradek.controller.controller import NotController
from odradek.controller.topic_names import why_illegal
from odradek.controller.topics import Refusal
from odradek.metadata.store import NodeError, StoreError
from odradek.protocol.errors import ErrorCode

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
OPERATIONS = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

Change = Callable[[Mapping[str, str]], dict[str, str]]
KeyOf = Callable[[str], ConfigKey | None]
MakeChange = Callable[[Sequence[Any], KeyOf, Callable[[str], Value]], Change]
Outcome = tuple[ErrorCode, str | None]


def replaced(configs: Sequence[Any], key_of: KeyOf, value_of: Callable[[str], Value]) -> Change:
    """All settings are those given (AlterConfigs)."""

    def change(_: Mapping[str, str]) -> dict[str, str]:
        _refuse_twice(configs)
        _refuse_nulls(one.name for one in configs if one.value is None)
        return {one.name: one.value for one in configs}

    return change


def edited(configs: Sequence[Any], key_of: KeyOf, value_of: Callable[[str], Value]) -> Change:
    """Each setting given is set, deleted, or a list's elements are added or taken away (IncrementalAlterConfigs, KIP-339).

    :param key_of: the row of a key, None if there is none.
    :param value_of: what a list begins with where nothing is set.
    """

    def change(present: Mapping[str, str]) -> dict[str, str]:
        _refuse_twice(configs)
        _refuse_nulls(one.name for one in configs if one.config_operation != DELETE and one.value is None)
        settings = dict(present)
        for one in configs:
            _edit(settings, one, key_of, value_of)
        return settings

    return change


def _refuse_twice(configs: Sequence[Any]) -> None:
    for name, count in Counter(one.name for one in configs).items():
        if count > 1:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {name}")


def _refuse_nulls(names: Any) -> None:
    nulls = ", ".join(names)
    if nulls:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {nulls}")


def _edit(settings: dict[str, str], one: Any, key_of: KeyOf, value_of: Callable[[str], Value]) -> None:
    if one.config_operation == DELETE:
        settings.pop(one.name, None)
        return
    if one.config_operation == SET:
        settings[one.name] = one.value
        return
    if one.config_operation not in OPERATIONS:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Unknown operation {one.config_operation} for {one.name}: use 0 (set), 1 (delete), 2 (append) or 3 (subtract)",
        )
    key = key_of(one.name)
    if key is None or key.type != LIST:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"Can't {OPERATIONS[one.config_operation]} to key {one.name} because its type is not LIST.",
        )
    before = settings[one.name] if one.name in settings else show(value_of(one.name)) or ""
    elements = [element for element in before.split(",") if element]
    given = [element.strip() for element in one.value.split(",") if element.strip()]
    if one.config_operation == APPEND:
        elements += [element for element in given if element not in elements]
    else:
        elements = [element for element in elements if element not in given]
    settings[one.name] = ",".join(elements)


def check_broker_name(name: str, call: CoordinatorCall, otherwise: str = "") -> None:
    """Refuse the id of another broker than this. :param otherwise: what else could have been given."""
    node_id = call.view.config.node_id
    if not name.removeprefix("-").isdecimal():
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise Refusal(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}{otherwise}, but received {name}"
        )


def carry_out(resource: Any, make: MakeChange, validate_only: bool, call: CoordinatorCall) -> Outcome:
    """Change one resource; the error and its message."""
    alter = _ALTER.get(resource.resource_type)
    try:
        if alter is None:
            raise Refusal(ErrorCode.INVALID_REQUEST, _why_not(resource.resource_type))
        return alter(resource, make, validate_only, call)
    except Refusal as refusal:
        return refusal.code, refusal.message
    except (StoreError, NotController) as error:
        retriable = isinstance(error, NotController | NodeError)
        return ErrorCode.NOT_CONTROLLER if retriable else ErrorCode.KAFKA_STORAGE_ERROR, str(error)


def _why_not(kind: int) -> str:
    known = f"use topics ({TOPIC}), brokers ({BROKER}), loggers ({BROKER_LOGGER}) or groups ({GROUP})"
    if kind == CLIENT_METRICS:
        return f"This broker does not support client metrics subscriptions: {known}."
    return f"Unknown resource type {kind}"


def _as_policy_wants(kind: str, resource: Any, change: Change, call: CoordinatorCall) -> Change:
    named = [one.name for one in resource.configs]
    return call.view.controller.policies.checked(kind, resource.resource_name, named, change)


def _alter_topic(resource: Any, make: MakeChange, validate_only: bool, call: CoordinatorCall) -> Outcome:
    name = resource.resource_name
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    reason = why_illegal(name)
    if reason is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    defaults = call.view.config.topic_defaults
    change = make(resource.configs, TOPIC_KEYS.get, defaults.__getitem__)
    outcome = call.view.controller.alter_topic(name, _as_policy_wants("TOPIC", resource, change, call), validate_only)
    return outcome.code, outcome.message


def _alter_broker(resource: Any, make: MakeChange, validate_only: bool, call: CoordinatorCall) -> Outcome:
    name = resource.resource_name
    if name:
        check_broker_name(name, call)
    change = make(resource.configs, broker_key, call.view.config.get)
    call.view.settings.alter_broker(bool(name), _as_policy_wants("BROKER", resource, change, call), validate_only)
    return ErrorCode.NONE, None


def _alter_group(resource: Any, make: MakeChange, validate_only: bool, call: CoordinatorCall) -> Outcome:
    name = resource.resource_name
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    change = make(resource.configs, GROUP_KEYS.get, call.view.config.get)
    call.view.settings.alter_group(name, _as_policy_wants("GROUP", resource, change, call), validate_only)
    return ErrorCode.NONE, None


def _alter_loggers(resource: Any, make: MakeChange, validate_only: bool, call: CoordinatorCall) -> Outcome:
    """The levels of this broker's loggers, until it stops (KIP-412). What is allowed is what Kafka allows."""
    if make is not edited:
        raise Refusal(
            ErrorCode.INVALID_REQUEST, "AlterConfigs cannot change the levels of loggers: use IncrementalAlterConfigs"
        )
    check_broker_name(resource.resource_name, call)
    for one in resource.configs:
        if one.config_operation in OPERATIONS:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"{OPERATIONS[one.config_operation]} operation is not allowed for the BROKER_LOGGER resource",
            )
        if one.name not in LOGGERS:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"Logger {one.name} does not exist!")
        if one.config_operation == DELETE and one.name == ROOT:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        if one.config_operation == SET and one.value is not None and one.value not in LEVELS:
            raise Refusal(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {one.name} to {one.value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(LEVELS)}",
            )
    change = make(resource.configs, lambda name: None, lambda name: None)
    call.view.settings.alter_levels(change, validate_only)
    return ErrorCode.NONE, None


_ALTER: dict[int, Callable[[Any, MakeChange, bool, CoordinatorCall], Outcome]] = {
    TOPIC: _alter_topic,
    BROKER: _alter_broker,
    BROKER_LOGGER: _alter_loggers,
    GROUP: _alter_group,
}


def answered(request: Any, make: MakeChange, response: Any, call: CoordinatorCall) -> Steps:
    """The response to a request of either kind, a resource at a step; one that is named twice is refused."""
    counts = Counter((one.resource_type, one.resource_name) for one in request.resources)
    told = []
    for one in {(one.resource_type, one.resource_name): one for one in request.resources}.values():
        outcome: Outcome
        if counts[one.resource_type, one.resource_name] > 1:
            outcome = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
        else:
            outcome = carry_out(one, make, bool(request.validate_only), call)
        told.append(
            response.AlterConfigsResourceResponse(
                error_code=outcome[0],
                error_message=outcome[1],
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
        )
        yield
    return response(responses=told)
