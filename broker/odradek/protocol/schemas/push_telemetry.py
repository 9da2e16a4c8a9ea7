"""PushTelemetry (72): a client pushes its metrics (KIP-714)."""

from odradek.protocol.schema import api

API_KEY = 72

SCHEMA = api(
    API_KEY,
    "PushTelemetry",
    "0",
    flexible="0+",
    request="""
    ClientInstanceId  uuid    0+
    SubscriptionId    int32   0+
    Terminating       bool    0+
    CompressionType   int8    0+
    Metrics           bytes   0+
    """,
    response="""
    ThrottleTimeMs  int32   0+
    ErrorCode       int16   0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
