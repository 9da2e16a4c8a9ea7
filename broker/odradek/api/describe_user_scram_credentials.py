"""DescribeUserScramCredentials (50): returns the SCRAM credentials of users. Executed in the coordinator's controller thread.
No user has credentials yet.
"""

from collections import Counter
from typing import Any

from odradek.api.coordinator_call import CoordinatorCall
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_user_scram_credentials

Response = describe_user_scram_credentials.Response


def handle(request: Any, call: CoordinatorCall) -> Any:
    """Refuse each user: no user has credentials."""
    names = Counter(user.name for user in request.users or ())
    results = []
    for name, count in names.items():
        repeated = count > 1
        code = ErrorCode.DUPLICATE_RESOURCE if repeated else ErrorCode.RESOURCE_NOT_FOUND
        message = (
            f"The request names user {name} more than once." if repeated else f"User {name} has no SCRAM credentials."
        )
        results.append(Response.DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message))
    return Response(error_message=None, results=results)
