"""Changes of topics' settings, as AlterConfigs and IncrementalAlterConfigs ask for them. In the controller thread."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from broker.api.coordinator_call import CoordinatorCall
from broker.config.key import LIST, show
from broker.config.table import TOPIC_KEYS
from broker.controller.topic_names import why_illegal
from broker.controller.topics import Refusal
from broker.protocol.errors import ErrorCode

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)

Change = Callable[[Mapping[str, str]], dict[str, str]]
Outcome = tuple[ErrorCode, str | None]


def replaced(configs: Sequence[Any]) -> Change:
    """All settings are those given (AlterConfigs)."""

    def change(_: Mapping[str, str]) -> dict[str, str]:
        _refuse_twice(configs)
        nulls = [one.name for one in configs if one.value is None]
        if nulls:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {', '.join(nulls)}")
        return {one.name: one.value for one in configs}

    return change


def edited(configs: Sequence[Any]) -> Change:
    """Each setting given is set, deleted, or a list's elements are added or taken away (IncrementalAlterConfigs, KIP-339)."""

    def change(present: Mapping[str, str]) -> dict[str, str]:
        _refuse_twice(configs)
        settings = dict(present)
        for one in configs:
            _edit(settings, one)
        return settings

    return change


def _refuse_twice(configs: Sequence[Any]) -> None:
    for name, count in Counter(one.name for one in configs).items():
        if count > 1:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {name}")


def _edit(settings: dict[str, str], one: Any) -> None:
    key = TOPIC_KEYS.get(one.name)
    if key is None:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {one.name}")
    if one.config_operation == DELETE:
        settings.pop(one.name, None)
        return
    if one.value is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {one.name}")
    if one.config_operation == SET:
        settings[one.name] = one.value
        return
    if one.config_operation not in (APPEND, SUBTRACT):
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Operation {one.config_operation} of {one.name}: 0 (set), 1 (delete), 2 (append), 3 (subtract) are known",
        )
    if key.type != LIST:
        raise Refusal(
            ErrorCode.INVALID_CONFIG, f"Config value append is not allowed for config key: {one.name}: it is no list"
        )
    before = settings[one.name] if one.name in settings else show(key.default) or ""
    elements = [element for element in before.split(",") if element]
    given = [element.strip() for element in one.value.split(",") if element.strip()]
    if one.config_operation == APPEND:
        elements += [element for element in given if element not in elements]
    else:
        elements = [element for element in elements if element not in given]
    settings[one.name] = ",".join(elements)


def carry_out(resource: Any, change: Change, validate_only: bool, call: CoordinatorCall) -> Outcome:
    """Change one resource; the error and its message."""
    name = resource.resource_name
    if resource.resource_type != TOPIC:
        what = "a broker's settings change with its restart" if resource.resource_type == BROKER else "there are none"
        return (
            ErrorCode.INVALID_REQUEST,
            f"Resources of type {resource.resource_type} ('{name}') have no settings that change while the broker runs: {what};"
            f" only topics ({TOPIC}) have.",
        )
    reason = why_illegal(name)
    if reason is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, reason
    outcome = call.view.controller.alter_topic(name, change, validate_only)
    return outcome.code, outcome.message


def answered(request: Any, change: Callable[[Sequence[Any]], Change], response: Any, call: CoordinatorCall) -> Any:
    """The response to a request of either kind; a resource that is named twice is refused."""
    counts = Counter((one.resource_type, one.resource_name) for one in request.resources)
    told = []
    for one in {(one.resource_type, one.resource_name): one for one in request.resources}.values():
        outcome: Outcome
        if counts[one.resource_type, one.resource_name] > 1:
            outcome = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
        else:
            outcome = carry_out(one, change(one.configs), bool(request.validate_only), call)
        told.append(
            response.AlterConfigsResourceResponse(
                error_code=outcome[0],
                error_message=outcome[1],
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
        )
    return response(responses=told)
