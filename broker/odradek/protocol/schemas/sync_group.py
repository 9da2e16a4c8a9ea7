"""SyncGroup (14): the leader of a classic group sends the assignments, and every member gets its assignment.

1: throttle time. 3: group instance id. 5: protocol type and name, which must match those of the group.
"""

from odradek.protocol.schema import api

API_KEY = 14

SCHEMA = api(
    API_KEY,
    "SyncGroup",
    "0-5",
    flexible="4+",
    request="""
    GroupId          string                        0+
    GenerationId     int32                         0+
    MemberId         string                        0+
    GroupInstanceId  string                        3+  null default=null
    ProtocolType     string                        5+  null default=null ignorable
    ProtocolName     string                        5+  null default=null ignorable
    Assignments      []SyncGroupRequestAssignment  0+
      MemberId       string                        0+
      Assignment     bytes                         0+
    """,
    response="""
    ThrottleTimeMs  int32   1+  ignorable
    ErrorCode       int16   0+
    ProtocolType    string  5+  null default=null ignorable
    ProtocolName    string  5+  null default=null ignorable
    Assignment      bytes   0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
