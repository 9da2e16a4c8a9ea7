"""RenewDelegationToken (39): extends the lifetime of a delegation token."""

from odradek.protocol.schema import api

API_KEY = 39

SCHEMA = api(
    API_KEY,
    "RenewDelegationToken",
    "0-2",
    flexible="2+",
    request="""
    Hmac           bytes   0+
    RenewPeriodMs  int64   0+
    """,
    response="""
    ErrorCode          int16   0+
    ExpiryTimestampMs  int64   0+
    ThrottleTimeMs     int32   0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
