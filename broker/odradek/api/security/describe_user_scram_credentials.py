"""DescribeUserScramCredentials (50): the mechanisms and iterations of users' SCRAM credentials. Executed in the coordinator's
store thread.
"""

from collections import Counter

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.guarding import (
    of_whole,
)
from odradek.controller import scram
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import describe_user_scram_credentials
from odradek.security.needs import (
    DESCRIBES,
)
from odradek.stepwise import Pace, Steps

Response = describe_user_scram_credentials.Response
RESULTS_A_STEP = 500
NO_CREDENTIAL = "Attempt to describe a user credential that does not exist: "
TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "
API = Api(
    describe_user_scram_credentials.SCHEMA,
    versions=(0, 0),
    place=Place.COORDINATOR,
    rights=DESCRIBES,
)
guard = of_whole(API)


def handle(request: describe_user_scram_credentials.Request, call: CoordinatorCall) -> Steps:
    """Describe the users of the request, or all users with credentials if it names none."""
    names = Counter(user.name for user in request.users or ())
    found = yield from scram.described(call.view.store, names or None)
    results = []
    pace = Pace(RESULTS_A_STEP)
    for name in names or found:
        result = Response.DescribeUserScramCredentialsResult(user=name, error_message="")
        if names[name] > 1:
            result.error_code, result.error_message = ErrorCode.DUPLICATE_RESOURCE, TWICE + name
        elif name not in found:
            result.error_code, result.error_message = ErrorCode.RESOURCE_NOT_FOUND, NO_CREDENTIAL + name
        else:
            result.credential_infos = [
                Response.CredentialInfo(mechanism=mechanism.number, iterations=iterations)
                for mechanism, iterations in found[name].items()
            ]
        results.append(result)
        if pace.over():
            yield
    return Response(error_message="", results=results)
