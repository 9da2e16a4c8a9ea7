"""AlterUserScramCredentials (51): sets and deletes SCRAM credentials. Executed in the coordinator's store thread.

The client sends the salted password, never the password. When the response is sent, no worker keeps an older credential.
"""

from typing import Any

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.guarding import (
    of_whole,
)
from odradek.controller import scram
from odradek.controller.store_errors import NotController, code_of
from odradek.metadata.store import StoreError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_user_scram_credentials
from odradek.security.acl import Operation
from odradek.security.needs import (
    CLUSTER,
    CLUSTER_DENIED,
    need,
)
from odradek.stepwise import Steps

Response = alter_user_scram_credentials.Response
API = Api(
    alter_user_scram_credentials.SCHEMA,
    versions=(0, 0),
    place=Place.CONTROLLER,
    rights=need(Operation.ALTER, CLUSTER, f"{CLUSTER_DENIED} for each user"),
)
guard = of_whole(API)


def refuse(request: alter_user_scram_credentials.Request, _version: int, code: ErrorCode, message: str | None) -> Any:
    """See `odradek.api.api`."""
    users = dict.fromkeys([*(entry.name for entry in request.deletions), *(entry.name for entry in request.upsertions)])
    make = Response.AlterUserScramCredentialsResult
    return Response(results=[make(user=user, error_code=code, error_message=message) for user in users])


def handle(request: alter_user_scram_credentials.Request, call: CoordinatorCall) -> Steps:
    """Change the credentials of each user independently."""
    view = call.view
    try:
        results = yield from scram.alter(
            view.store,
            view.controller.write_settings,
            [scram.Deletion(entry.name, entry.mechanism) for entry in request.deletions],
            [
                scram.Upsertion(
                    entry.name, entry.mechanism, entry.iterations, bytes(entry.salt), bytes(entry.salted_password)
                )
                for entry in request.upsertions
            ],
            _failed,
        )
    finally:  # also after a failure in the middle: some users may be changed
        view.credentials_changed()
    return Response(
        results=[
            Response.AlterUserScramCredentialsResult(
                user=user,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
            )
            for user, error in results
        ]
    )


def _failed(error: StoreError | NotController) -> scram.AlterationError:
    return scram.AlterationError(code_of(error), str(error))
