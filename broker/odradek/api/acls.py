"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31): access rules. Executed by workers.

There is no authorizer yet, so the response is that of a Kafka broker without one: SECURITY_DISABLED for every rule or filter.
"""

from typing import Any

from odradek.api.call import Call
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import create_acls, delete_acls, describe_acls

NO_AUTHORIZER = {"error_code": ErrorCode.SECURITY_DISABLED, "error_message": "No Authorizer is configured."}


def describe(request: Any, call: Call) -> Any:
    """Refuse with SECURITY_DISABLED."""
    return describe_acls.Response(**NO_AUTHORIZER)


def create(request: Any, call: Call) -> Any:
    """Refuse each creation with SECURITY_DISABLED."""
    make = create_acls.Response
    return make(results=[make.AclCreationResult(**NO_AUTHORIZER)] * len(request.creations))


def delete(request: Any, call: Call) -> Any:
    """Refuse each filter with SECURITY_DISABLED."""
    make = delete_acls.Response
    return make(filter_results=[make.DeleteAclsFilterResult(**NO_AUTHORIZER)] * len(request.filters))
