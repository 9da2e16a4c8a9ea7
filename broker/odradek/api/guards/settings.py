"""Guards of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: each resource needs its own right."""

from collections import Counter
from typing import Any

from odradek.api.config_changes import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from odradek.api.guards.guarded import Asked, Merged, VerdictInSteps, appended
from odradek.api.permits import DENIED_AS, MESSAGES, NAMES_A_STEP, Permits
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_configs, describe_configs, incremental_alter_configs
from odradek.security.acl import CLUSTER_NAME, Operation, ResourceType
from odradek.stepwise import Pace

CLUSTER_KINDS = (BROKER, BROKER_LOGGER, CLIENT_METRICS)


def _code(kind: int, name: str, operation: Operation, permits: Permits) -> ErrorCode | None:
    """The error of a denied resource; None if it is allowed, or of an unknown type, which the handler refuses."""
    if kind in CLUSTER_KINDS:
        resource_type, name = ResourceType.CLUSTER, CLUSTER_NAME
    elif kind == TOPIC:
        resource_type = ResourceType.TOPIC
    elif kind == GROUP:
        resource_type = ResourceType.GROUP
    else:
        return None
    return None if permits.allows(operation, resource_type, name) else DENIED_AS[resource_type]


def of_describe_configs(asked: Asked) -> VerdictInSteps:
    """DESCRIBE_CONFIGS on the topic, the group, or the cluster (brokers and their loggers)."""
    make = describe_configs.Response.DescribeConfigsResult
    kept, refused = [], []
    pace = Pace(NAMES_A_STEP)
    for resource in asked.request.resources:
        if pace.over():
            yield
        code = _code(resource.resource_type, resource.resource_name, Operation.DESCRIBE_CONFIGS, asked.permits)
        if code is None:
            kept.append(resource)
        else:
            refused.append(_refused(make, resource, code))
    if not refused:
        return None
    asked.request.resources = kept
    return Merged(appended("results", refused))


def of_alter_configs(asked: Asked) -> VerdictInSteps:
    """ALTER_CONFIGS on the topic, the group, or the cluster."""
    return _of_changes(asked, alter_configs.Response.AlterConfigsResourceResponse)


def of_incremental_alter_configs(asked: Asked) -> VerdictInSteps:
    """ALTER_CONFIGS on the topic, the group, or the cluster."""
    return _of_changes(asked, incremental_alter_configs.Response.AlterConfigsResourceResponse)


def _of_changes(asked: Asked, make: Any) -> VerdictInSteps:
    counts = Counter((resource.resource_type, resource.resource_name) for resource in asked.request.resources)
    kept, refused = [], []
    pace = Pace(NAMES_A_STEP)
    for resource in asked.request.resources:
        if pace.over():
            yield
        code = None
        if counts[resource.resource_type, resource.resource_name] == 1:  # a repeated resource is refused by the handler
            code = _code(resource.resource_type, resource.resource_name, Operation.ALTER_CONFIGS, asked.permits)
        if code is None:
            kept.append(resource)
        else:
            refused.append(_refused(make, resource, code))
    if not refused:
        return None
    asked.request.resources = kept
    return Merged(appended("responses", refused))


def _refused(make: Any, resource: Any, code: ErrorCode) -> Any:
    return make(
        error_code=code,
        error_message=MESSAGES[code],
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
