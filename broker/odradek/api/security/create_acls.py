"""CreateAcls (30): creates access control lists. Executed by the coordinator, in its store thread.

Any broker of a cluster serves it, as in Kafka with ZooKeeper. When the response to a change is sent, the change is in force in
all processes of this broker. Without an authorizer, the response is SECURITY_DISABLED for every ACL or filter.
"""

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.elements import Elements
from odradek.api.guarding import (
    of_whole,
)
from odradek.api.security.acls import NO_AUTHORIZER
from odradek.controller.acls import Acls
from odradek.controller.store_errors import code_of
from odradek.controller.topics import Refusal
from odradek.metadata.store import StoreError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import create_acls
from odradek.security.acl import Acl
from odradek.security.needs import (
    ALTERS,
)
from odradek.stepwise import Steps

ELEMENTS = Elements(create_acls.SCHEMA, "creations", "results")
API = Api(
    create_acls.SCHEMA,
    versions=(0, 3),
    place=Place.COORDINATOR,
    rights=ALTERS,
    refused=ELEMENTS,
)
guard = of_whole(API)


def handle(request: create_acls.Request, call: CoordinatorCall) -> Steps:
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
