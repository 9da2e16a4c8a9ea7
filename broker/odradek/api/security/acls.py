"""What the APIs of access control lists share."""

from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.security.acl import AclFilter

NO_AUTHORIZER: dict[str, Any] = {
    "error_code": ErrorCode.SECURITY_DISABLED,
    "error_message": "No Authorizer is configured.",
}


def filter_of(wanted: Any) -> AclFilter:
    """The filter in a request."""
    return AclFilter(
        wanted.resource_type_filter,
        wanted.pattern_type_filter,
        wanted.resource_name_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )
