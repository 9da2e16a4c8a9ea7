"""Heartbeat (12): a member of a classic group keeps its session alive and detects rebalances.

1: throttle time. 3: group instance id.
"""

from odradek.protocol.schema import api

API_KEY = 12

SCHEMA = api(
    API_KEY,
    "Heartbeat",
    "0-4",
    flexible="4+",
    request="""
    GroupId          string  0+
    GenerationId     int32   0+
    MemberId         string  0+
    GroupInstanceId  string  3+  null default=null
    """,
    response="""
    ThrottleTimeMs  int32   1+  ignorable
    ErrorCode       int16   0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
