"""LeaveGroup (13): members leave a classic group.

Up to 2 one member leaves, from 3 on several, also by instance id. 1: throttle time. 5: the reason.
"""

from odradek.protocol.schema import api

API_KEY = 13

SCHEMA = api(
    API_KEY,
    "LeaveGroup",
    "0-5",
    flexible="4+",
    request="""
    GroupId            string            0+
    MemberId           string            0-2
    Members            []MemberIdentity  3+
      MemberId         string            3+
      GroupInstanceId  string            3+   null default=null
      Reason           string            5+   null default=null ignorable
    """,
    response="""
    ThrottleTimeMs     int32             1+  ignorable
    ErrorCode          int16             0+
    Members            []MemberResponse  3+
      MemberId         string            3+
      GroupInstanceId  string            3+  null
      ErrorCode        int16             3+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
