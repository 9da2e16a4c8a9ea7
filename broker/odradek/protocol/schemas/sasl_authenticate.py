"""SaslAuthenticate (36): carries SASL tokens.

1: lifetime of the session, after which the client must authenticate again (KIP-368).
"""

from odradek.protocol.schema import api

API_KEY = 36

SCHEMA = api(
    API_KEY,
    "SaslAuthenticate",
    "0-2",
    flexible="2+",
    request="""
    AuthBytes  bytes   0+
    """,
    response="""
    ErrorCode          int16   0+
    ErrorMessage       string  0+  null
    AuthBytes          bytes   0+
    SessionLifetimeMs  int64   1+  ignorable
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
