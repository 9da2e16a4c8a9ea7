"""SaslAuthenticate (36) outside of a login: refused. Executed by workers.

During a login, the gate of the connection answers it (`odradek.processes.worker.logins`).
"""

from typing import Any

from odradek.api.api import Api, Guarded, Place
from odradek.api.call import Call
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import sasl_authenticate
from odradek.security.needs import (
    NOTHING,
)

AFTER_LOGIN = "SaslAuthenticate request received after successful authentication"
API = Api(
    sasl_authenticate.SCHEMA,
    versions=(0, 2),
    place=Place.WORKER,
    rights=NOTHING,
    guarded=Guarded.FREE,
)


def handle(request: sasl_authenticate.Request, call: Call) -> Any:
    """Refuse the request."""
    return sasl_authenticate.Response(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=AFTER_LOGIN, auth_bytes=b""
    )
