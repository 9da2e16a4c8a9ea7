"""DeleteAcls (31): deletes access control lists. Executed by the coordinator, in its store thread.

Any broker of a cluster serves it, as in Kafka with ZooKeeper. When the response to a change is sent, the change is in force in
all processes of this broker. Without an authorizer, the response is SECURITY_DISABLED for every ACL or filter.
"""

from typing import Any

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.elements import Elements
from odradek.api.guarding import (
    of_whole,
)
from odradek.api.security.acls import NO_AUTHORIZER, filter_of
from odradek.controller.store_errors import code_of
from odradek.metadata.store import StoreError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import delete_acls
from odradek.security.acl import Acl
from odradek.security.needs import (
    ALTERS,
)
from odradek.stepwise import Steps

ELEMENTS = Elements(delete_acls.SCHEMA, "filters", "filter_results")
API = Api(
    delete_acls.SCHEMA,
    versions=(0, 3),
    place=Place.COORDINATOR,
    rights=ALTERS,
    refused=ELEMENTS,
)
guard = of_whole(API)


def handle(request: delete_acls.Request, call: CoordinatorCall) -> Steps:
    """Delete the ACLs that each filter selects."""
    make = delete_acls.Response
    acls = call.view.acls
    if acls is None:
        return make(filter_results=[make.DeleteAclsFilterResult(**NO_AUTHORIZER)] * len(request.filters))
    try:
        results = yield from acls.delete([filter_of(wanted) for wanted in request.filters])
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
