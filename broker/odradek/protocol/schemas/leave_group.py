"""LeaveGroup (13): members leave a classic group.

0 to 2: one member leaves. 1: throttle time. 3: several members, also by instance id. 5: reason for leaving.
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
