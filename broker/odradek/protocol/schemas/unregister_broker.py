"""UnregisterBroker (64): removes a broker from the KRaft cluster's metadata."""

from odradek.protocol.schema import api

API_KEY = 64

SCHEMA = api(
    API_KEY,
    "UnregisterBroker",
    "0",
    flexible="0+",
    request="""
    BrokerId  int32   0+
    """,
    response="""
    ThrottleTimeMs  int32   0+
    ErrorCode       int16   0+
    ErrorMessage    string  0+  null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
