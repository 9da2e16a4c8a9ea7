"""Changes the settings of topics, brokers, loggers and groups for AlterConfigs and IncrementalAlterConfigs. Executed in the
store thread.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from odradek.api.coordinator_call import CoordinatorCall
from odradek.config import features
from odradek.config.dynamic import GROUP_KEYS
from odradek.config.key import LIST, ConfigKey, Value, show
from odradek.config.loggers import LEVELS, LOGGERS, ROOT
from odradek.config.table import TOPIC_KEYS, broker_key
from odradek.controller.store_errors import NotController, code_of
from odradek.controller.topic_names import why_illegal
from odradek.controller.topics import Refusal
from odradek.metadata.store import StoreError
from odradek.protocol.errors import ErrorCode
from odradek.stepwise import Steps

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
OPERATIONS = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

Change = Callable[[Mapping[str, str]], dict[str, str]]
KeyOf = Callable[[str], ConfigKey | None]
MakeChange = Callable[[Sequence[Any], KeyOf, Callable[[str], Value]], Change]
Outcome = tuple[ErrorCode, str | None]


def replaced(configs: Sequence[Any], key_of: KeyOf, value_of: Callable[[str], Value]) -> Change:
    """A change that replaces all settings (AlterConfigs)."""

    def change(_: Mapping[str, str]) -> dict[str, str]:
        _refuse_duplicates(configs)
        _refuse_nulls(setting.name for setting in configs if setting.value is None)
        return {setting.name: setting.value for setting in configs}

    return change


def edited(configs: Sequence[Any], key_of: KeyOf, value_of: Callable[[str], Value]) -> Change:
    """A change that sets or deletes settings, or adds or removes elements of lists (IncrementalAlterConfigs, KIP-339).

    :param key_of: returns the row of a key, or None if the key is unknown.
    :param value_of: returns the value from which a list starts if it is not set.
    """

    def change(present: Mapping[str, str]) -> dict[str, str]:
        _refuse_duplicates(configs)
        _refuse_nulls(edit.name for edit in configs if edit.config_operation != DELETE and edit.value is None)
        settings = dict(present)
        for edit in configs:
            _edit(settings, edit, key_of, value_of)
        return settings

    return change


def _refuse_duplicates(configs: Sequence[Any]) -> None:
    for name, count in Counter(setting.name for setting in configs).items():
        if count > 1:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {name}")


def _refuse_nulls(names: Any) -> None:
    nulls = ", ".join(names)
    if nulls:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {nulls}")


def _edit(settings: dict[str, str], edit: Any, key_of: KeyOf, value_of: Callable[[str], Value]) -> None:
    if edit.config_operation == DELETE:
        settings.pop(edit.name, None)
        return
    if edit.config_operation == SET:
        settings[edit.name] = edit.value
        return
    if edit.config_operation not in OPERATIONS:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Unknown operation {edit.config_operation} for {edit.name}: use 0 (set), 1 (delete), 2 (append), 3 (subtract)",
        )
    key = key_of(edit.name)
    if key is None or key.type != LIST:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"Can't {OPERATIONS[edit.config_operation]} to key {edit.name} because its type is not LIST.",
        )
    before = settings[edit.name] if edit.name in settings else show(value_of(edit.name)) or ""
    elements = [element for element in before.split(",") if element]
    operands = [element.strip() for element in edit.value.split(",") if element.strip()]
    if edit.config_operation == APPEND:
        elements += [element for element in operands if element not in elements]
    else:
        elements = [element for element in elements if element not in operands]
    settings[edit.name] = ",".join(elements)


def check_broker_name(name: str, call: CoordinatorCall, otherwise: str = "") -> None:
    """Refuse the id of another broker. :param otherwise: the part of the message that names an alternative to the id."""
    node_id = call.view.config.node_id
    if not name.removeprefix("-").isdecimal():
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise Refusal(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id}{otherwise}, but received {name}"
        )


def alter_resource(resource: Any, make: MakeChange, validate_only: bool, call: CoordinatorCall) -> Outcome:
    """Change one resource. Returns the error code and its message."""
    alter = _ALTER.get(resource.resource_type)
    try:
        if alter is None:
            raise Refusal(ErrorCode.INVALID_REQUEST, _refusal_of_type(resource.resource_type))
        return alter(resource, make, validate_only, call)
    except Refusal as refusal:
        return refusal.code, refusal.message
    except (StoreError, NotController) as error:
        return code_of(error), str(error)


def _refusal_of_type(kind: int) -> str:
    known = f"use topics ({TOPIC}), brokers ({BROKER}), loggers ({BROKER_LOGGER}) or groups ({GROUP})"
    if kind == CLIENT_METRICS:
        return f"This broker does not support client metrics subscriptions: {known}."
    return f"Unknown resource type {kind}"


def _checked_by_policy(kind: str, resource: Any, change: Change, call: CoordinatorCall) -> Change:
    names = [setting.name for setting in resource.configs]
    return call.view.controller.policies.checked(kind, resource.resource_name, names, change)


def _alter_topic(resource: Any, make: MakeChange, validate_only: bool, call: CoordinatorCall) -> Outcome:
    name = resource.resource_name
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    reason = why_illegal(name)
    if reason is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    defaults = call.view.config.topic_defaults
    change = make(resource.configs, TOPIC_KEYS.get, defaults.__getitem__)
    outcome = call.view.controller.alter_topic(name, _checked_by_policy("TOPIC", resource, change, call), validate_only)
    return outcome.code, outcome.message


def _alter_broker(resource: Any, make: MakeChange, validate_only: bool, call: CoordinatorCall) -> Outcome:
    name = resource.resource_name
    if name:
        check_broker_name(name, call)
    change = _without_features(make(resource.configs, broker_key, call.view.config.get), resource)
    named = {setting.name for setting in resource.configs}
    call.view.settings.alter_broker(
        bool(name), _checked_by_policy("BROKER", resource, change, call), validate_only, named
    )
    return ErrorCode.NONE, None


def _without_features(change: Change, resource: Any) -> Change:
    """Like `change`, but it keeps the levels of features and their epoch, which only UpdateFeatures changes: clients ignore a
    level whose epoch they know already."""
    named = {setting.name for setting in resource.configs}

    def keep(present: Mapping[str, str]) -> dict[str, str]:
        after = change(present)
        for key in (features.LEVEL_KEY, features.EPOCH_KEY):
            if after.get(key) == present.get(key):
                continue
            if key in named:
                raise Refusal(
                    ErrorCode.INVALID_CONFIG,
                    f"{key} cannot be set as a setting, because clients would not notice the change: change the level with"
                    " UpdateFeatures, for example with Kafka's `kafka-features.sh --bootstrap-server HOST:PORT upgrade"
                    f" --feature {features.TRANSACTION_VERSION}={features.NEWEST_TRANSACTION_VERSION}`",
                )
            after[key] = present[key]  # AlterConfigs removes the settings that it does not name
        return after

    return keep


def _alter_group(resource: Any, make: MakeChange, validate_only: bool, call: CoordinatorCall) -> Outcome:
    name = resource.resource_name
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    change = make(resource.configs, GROUP_KEYS.get, call.view.config.get)
    call.view.settings.alter_group(name, _checked_by_policy("GROUP", resource, change, call), validate_only)
    return ErrorCode.NONE, None


def _alter_loggers(resource: Any, make: MakeChange, validate_only: bool, call: CoordinatorCall) -> Outcome:
    """Change the levels of this broker's loggers until it stops (KIP-412). The checks are Kafka's."""
    if make is not edited:
        raise Refusal(
            ErrorCode.INVALID_REQUEST, "AlterConfigs cannot change the levels of loggers: use IncrementalAlterConfigs"
        )
    check_broker_name(resource.resource_name, call)
    for edit in resource.configs:
        if edit.config_operation in OPERATIONS:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"{OPERATIONS[edit.config_operation]} operation is not allowed for the BROKER_LOGGER resource",
            )
        if edit.name not in LOGGERS:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"Logger {edit.name} does not exist!")
        if edit.config_operation == DELETE and edit.name == ROOT:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        if edit.config_operation == SET and edit.value is not None and edit.value not in LEVELS:
            raise Refusal(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {edit.name} to {edit.value} as it is not a supported log level. "
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
    """The response to an AlterConfigs or IncrementalAlterConfigs request; works one resource per step. A resource that is named
    more than once is refused."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    resources = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    results = []
    for resource in resources.values():
        outcome: Outcome
        if counts[resource.resource_type, resource.resource_name] > 1:
            outcome = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
        else:
            outcome = alter_resource(resource, make, bool(request.validate_only), call)
        results.append(
            response.AlterConfigsResourceResponse(
                error_code=outcome[0],
                error_message=outcome[1],
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
        yield
    return response(responses=results)
