"""Guards of APIs that need one right for the whole request: an operation on the cluster, on a group, or on a transactional
id."""

from odradek.api.guards.guarded import Asked, Guard, Verdict, VerdictInSteps
from odradek.api.guards.refusals import refused_whole
from odradek.api.permits import DENIED_AS
from odradek.protocol.errors import ErrorCode
from odradek.security.acl import Operation, ResourceType


def of_cluster(api_key: int, operation: Operation) -> Guard:
    """The guard of an API that needs an operation on the cluster."""

    def guard(asked: Asked) -> Verdict | VerdictInSteps:
        if asked.permits.cluster(operation):
            return None
        return refused_whole(api_key, asked, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    return guard


def of_name(api_key: int, operation: Operation, resource_type: ResourceType, field: str) -> Guard:
    """The guard of an API that needs an operation on the resource that a field of the request names."""

    def guard(asked: Asked) -> Verdict | VerdictInSteps:
        if asked.permits.allows(operation, resource_type, getattr(asked.request, field)):
            return None
        return refused_whole(api_key, asked, DENIED_AS[resource_type])

    return guard


def of_write_txn_markers(asked: Asked) -> Verdict | VerdictInSteps:
    """ALTER on the cluster is enough, else CLUSTER_ACTION is needed."""
    if asked.permits.cluster(Operation.ALTER, quiet=True) or asked.permits.cluster(Operation.CLUSTER_ACTION):
        return None
    return refused_whole(27, asked, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
