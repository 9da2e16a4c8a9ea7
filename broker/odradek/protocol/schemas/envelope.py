"""Envelope (58): forwards the request of a client to the controller, with the principal and address of the client."""

from odradek.protocol.schema import api

API_KEY = 58

SCHEMA = api(
    API_KEY,
    "Envelope",
    "0",
    flexible="0+",
    request="""
    RequestData        bytes   0+
    RequestPrincipal   bytes   0+  null
    ClientHostAddress  bytes   0+
    """,
    response="""
    ResponseData  bytes   0+  null default=null
    ErrorCode     int16   0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
