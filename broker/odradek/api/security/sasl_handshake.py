"""SaslHandshake (17) on a connection whose client has logged in, or that needs no login. Executed by workers.

Before the login, the gate of the connection answers it (`odradek.processes.worker.logins`). After it, it renews the login
(KIP-368).
"""

from typing import Any

from odradek.api.api import Api, Guarded, Place
from odradek.api.call import Call
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import sasl_handshake
from odradek.security.needs import (
    NOTHING,
)

API = Api(
    sasl_handshake.SCHEMA,
    versions=(0, 1),
    place=Place.WORKER,
    rights=NOTHING,
    guarded=Guarded.FREE,
)


def handle(request: sasl_handshake.Request, call: Call) -> Any:
    """Begin to renew the login, or refuse the request."""
    logins = call.view.logins
    outcome = None if logins is None else logins.renew(call.connection, request.mechanism, call.version)
    code, mechanisms = (ErrorCode.ILLEGAL_SASL_STATE, ()) if outcome is None else outcome
    return sasl_handshake.Response(error_code=code, mechanisms=list(mechanisms))
