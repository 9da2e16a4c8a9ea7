"""DescribeAcls (29): returns access control lists. Executed by the coordinator, in its store thread.

Any broker of a cluster serves it, as in Kafka with ZooKeeper. Without an authorizer, the response is SECURITY_DISABLED.
"""

from itertools import groupby
from typing import Any

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.guarding import (
    of_whole,
)
from odradek.api.security.acls import NO_AUTHORIZER, filter_of
from odradek.controller.topics import Refusal
from odradek.protocol.schemas import describe_acls
from odradek.security.needs import (
    DESCRIBES,
)

API = Api(
    describe_acls.SCHEMA,
    versions=(0, 3),
    place=Place.COORDINATOR,
    rights=DESCRIBES,
)
guard = of_whole(API)


def handle(request: describe_acls.Request, call: CoordinatorCall) -> Any:
    """Return the ACLs that the filter selects, by resource."""
    make = describe_acls.Response
    if call.view.acls is None:
        return make(**NO_AUTHORIZER)
    try:
        found = call.view.acls.describe(filter_of(request))
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
