"""The rights for resources with settings: topics, groups, and the cluster for brokers, their loggers and client metrics."""

from collections import Counter
from typing import Any

from odradek.api.guarding import Asked, Merged, VerdictInSteps, appended
from odradek.api.permits import DENIED_AS, NAMES_A_STEP, Permits
from odradek.api.refusing import MESSAGES
from odradek.api.settings.config_changes import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from odradek.protocol.errors import ErrorCode
from odradek.security.acl import CLUSTER_NAME, Operation, ResourceType
from odradek.security.needs import CLUSTER_DENIED, GROUP_DENIED, TOPIC_DENIED, Rights, either
from odradek.stepwise import Pace


def rights_of(operation: Operation) -> Rights:
    """The rights of an API that does something with resources."""
    return either(
        (operation, ResourceType.TOPIC),
        (operation, ResourceType.GROUP),
        (operation, ResourceType.CLUSTER),
        refused=f"{TOPIC_DENIED}, {GROUP_DENIED}, {CLUSTER_DENIED} for the resource",
        note="by the type of the resource; brokers: cluster",
    )


CLUSTER_KINDS = (BROKER, BROKER_LOGGER, CLIENT_METRICS)


def code_of_denied(kind: int, name: str, operation: Operation, permits: Permits) -> ErrorCode | None:
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


def guard_of_changes(asked: Asked, make: Any) -> VerdictInSteps:
    """ALTER_CONFIGS on each resource. :param make: the class of a result."""
    counts = Counter((resource.resource_type, resource.resource_name) for resource in asked.request.resources)
    kept, refused = [], []
    pace = Pace(NAMES_A_STEP)
    for resource in asked.request.resources:
        if pace.over():
            yield
        code = None
        if counts[resource.resource_type, resource.resource_name] == 1:  # a repeated resource is refused by the handler
            code = code_of_denied(
                resource.resource_type, resource.resource_name, Operation.ALTER_CONFIGS, asked.permits
            )
        if code is None:
            kept.append(resource)
        else:
            refused.append(refused_resource(make, resource, code))
    if not refused:
        return None
    asked.request.resources = kept
    return Merged(appended("responses", refused))


def refused_resource(make: Any, resource: Any, code: ErrorCode) -> Any:
    """The result of a denied resource."""
    return make(
        error_code=code,
        error_message=MESSAGES[code],
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
