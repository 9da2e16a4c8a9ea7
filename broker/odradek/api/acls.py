"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31): access control lists. Executed by the coordinator, in its store thread.

Any broker of a cluster serves them, as in Kafka with ZooKeeper. When the response to a change is sent, the change is in force
in all processes of this broker. Without an authorizer, the response is SECURITY_DISABLED for every ACL or filter.
"""

from itertools import groupby
from typing import Any

from odradek.api.coordinator_call import CoordinatorCall
from odradek.controller.acls import Acls
from odradek.controller.store_errors import code_of
from odradek.controller.topics import Refusal
from odradek.metadata.store import StoreError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import create_acls, delete_acls, describe_acls
from odradek.security.acl import Acl, AclFilter
from odradek.stepwise import Steps

NO_AUTHORIZER = {"error_code": ErrorCode.SECURITY_DISABLED, "error_message": "No Authorizer is configured."}


def describe(request: Any, call: CoordinatorCall) -> Any:
    """Return the ACLs that the filter selects, by resource."""
    make = describe_acls.Response
    if call.view.acls is None:
        return make(**NO_AUTHORIZER)
    try:
        found = call.view.acls.describe(_filter(request))
    except Refusal as refusal:
        return make(error_code=refusal.code, error_message=refusal.message)
    return make(
        resources=[
            make.DescribeAclsResource(
                resource_type=resource_type,
                pattern_type=pattern_type,
                resource_name=name,
                acls=[
                    make.AclDescription(
                        principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
                    )
                    for acl in same
                ],
            )
            for (resource_type, pattern_type, name), same in groupby(found, lambda acl: acl[:3])
        ]
    )


def create(request: Any, call: CoordinatorCall) -> Steps:
    """Create each valid ACL."""
    make = create_acls.Response
    if call.view.acls is None:
        return make(results=[make.AclCreationResult(**NO_AUTHORIZER)] * len(request.creations))
    wanted = [
        Acl(
            creation.resource_type,
            creation.resource_pattern_type,
            creation.resource_name,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
        for creation in request.creations
    ]
    return (yield from _create(wanted, call.view.acls))


def _create(wanted: list[Acl], acls: Acls) -> Steps:
    make = create_acls.Response
    try:
        problems = yield from acls.create(wanted)
    except Refusal as refusal:
        result = make.AclCreationResult(error_code=refusal.code, error_message=refusal.message)
        return make(results=[result] * len(wanted))
    except StoreError as error:
        result = make.AclCreationResult(error_code=code_of(error), error_message=str(error))
        return make(results=[result] * len(wanted))
    return make(
        results=[
            make.AclCreationResult()
            if problem is None
            else make.AclCreationResult(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
            for problem in problems
        ]
    )


def delete(request: Any, call: CoordinatorCall) -> Steps:
    """Delete the ACLs that each filter selects."""
    make = delete_acls.Response
    acls = call.view.acls
    if acls is None:
        return make(filter_results=[make.DeleteAclsFilterResult(**NO_AUTHORIZER)] * len(request.filters))
    try:
        results = yield from acls.delete([_filter(wanted) for wanted in request.filters])
    except StoreError as error:
        result = make.DeleteAclsFilterResult(error_code=code_of(error), error_message=str(error))
        return make(filter_results=[result] * len(request.filters))
    return make(
        filter_results=[
            make.DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=result)
            if isinstance(result, str)
            else make.DeleteAclsFilterResult(matching_acls=[_matching(acl) for acl in result])
            for result in results
        ]
    )


def _matching(acl: Acl) -> Any:
    return delete_acls.Response.DeleteAclsMatchingAcl(
        resource_type=acl.resource_type,
        pattern_type=acl.pattern_type,
        resource_name=acl.name,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _filter(wanted: Any) -> AclFilter:
    return AclFilter(
        wanted.resource_type_filter,
        wanted.pattern_type_filter,
        wanted.resource_name_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )
