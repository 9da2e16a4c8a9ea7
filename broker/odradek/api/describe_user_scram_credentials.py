"""DescribeUserScramCredentials (50): users' SCRAM credentials. In the coordinator's controller thread. There are none yet."""

from collections import Counter
from typing import Any

from odradek.api.coordinator_call import CoordinatorCall
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_user_scram_credentials

Response = describe_user_scram_credentials.Response


def handle(request: Any, call: CoordinatorCall) -> Any:
    """Every user for itself: none has any."""
    names = Counter(user.name for user in request.users or ())
    results = []
    for name, count in names.items():
        twice = count > 1
        code = ErrorCode.DUPLICATE_RESOURCE if twice else ErrorCode.RESOURCE_NOT_FOUND
        message = (
            f"The request names user {name} more than once." if twice else f"User {name} has no SCRAM credentials."
        )
        results.append(Response.DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message))
    return Response(error_message=None, results=results)
