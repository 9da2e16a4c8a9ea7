"""ACLs over the wire: describe, create, delete. Runs in the process of the command."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odradek.clients.errors import RefusedError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import create_acls, delete_acls, describe_acls
from odradek.security.acl import Acl, AclFilter

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster

PREFIXES_FROM = 1
"""The first version of these APIs with prefixes."""


def describe(cluster: "Cluster", wanted: AclFilter) -> list[Acl]:
    """The ACLs that a filter selects, sorted. Raises ClientError."""
    request = describe_acls.Request(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    response = cluster.ask(describe_acls.SCHEMA, request, oldest=PREFIXES_FROM)
    _check("cannot read the ACLs", response)
    return sorted(
        Acl(
            resource.resource_type,
            resource.pattern_type,
            resource.resource_name,
            entry.principal,
            entry.host,
            entry.operation,
            entry.permission_type,
        )
        for resource in response.resources
        for entry in resource.acls
    )


def create(cluster: "Cluster", acls: Sequence[Acl]) -> None:
    """Create ACLs. Raises ClientError for the first one that was refused; the others may exist then."""
    make = create_acls.Request
    request = make(
        creations=[
            make.AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )
    response = cluster.ask(create_acls.SCHEMA, request, oldest=PREFIXES_FROM)
    for acl, result in zip(acls, response.results, strict=True):
        _check(f"cannot create the ACL for {acl.principal} on {acl.name}", result)


def delete(cluster: "Cluster", acls: Sequence[Acl]) -> int:
    """Delete exactly these ACLs; returns the number of those that existed. Raises ClientError."""
    make = delete_acls.Request
    request = make(
        filters=[
            make.DeleteAclsFilter(
                resource_type_filter=acl.resource_type,
                resource_name_filter=acl.name,
                pattern_type_filter=acl.pattern_type,
                principal_filter=acl.principal,
                host_filter=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )
    response = cluster.ask(delete_acls.SCHEMA, request, oldest=PREFIXES_FROM)
    for acl, result in zip(acls, response.filter_results, strict=True):
        _check(f"cannot delete the ACL for {acl.principal} on {acl.name}", result)
    return sum(len(result.matching_acls) for result in response.filter_results)


def _check(what: str, result: Any) -> None:
    if result.error_code != ErrorCode.NONE:
        raise RefusedError(result.error_code, result.error_message, what)
