"""ExpireDelegationToken (40): sets the expiry of a delegation token: now, or a time."""

from odradek.protocol.schema import api

API_KEY = 40

SCHEMA = api(
    API_KEY,
    "ExpireDelegationToken",
    "0-2",
    flexible="2+",
    request="""
    Hmac                bytes   0+
    ExpiryTimePeriodMs  int64   0+
    """,
    response="""
    ErrorCode          int16   0+
    ExpiryTimestampMs  int64   0+
    ThrottleTimeMs     int32   0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
