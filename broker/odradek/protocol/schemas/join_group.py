"""JoinGroup (11): a member joins a classic group, or joins again for a rebalance.

1: separate rebalance timeout; 0 uses the session timeout. 2: throttle time. 4: a member without an id gets one and must join
again with it (MEMBER_ID_REQUIRED). 5: group instance id. 7: protocol type in the response. 8: reason for joining. 9: the
response can make a static leader skip the assignment.
"""

from odradek.protocol.schema import api

API_KEY = 11

SCHEMA = api(
    API_KEY,
    "JoinGroup",
    "0-9",
    flexible="6+",
    request="""
    GroupId             string                      0+
    SessionTimeoutMs    int32                       0+
    RebalanceTimeoutMs  int32                       1+  default=-1 ignorable
    MemberId            string                      0+
    GroupInstanceId     string                      5+  null default=null
    ProtocolType        string                      0+
    Protocols           []JoinGroupRequestProtocol  0+
      Name              string                      0+
      Metadata          bytes                       0+
    Reason              string                      8+  null default=null ignorable
    """,
    response="""
    ThrottleTimeMs     int32                      2+  ignorable
    ErrorCode          int16                      0+
    GenerationId       int32                      0+  default=-1
    ProtocolType       string                     7+  null default=null ignorable
    ProtocolName       string                     0+  null=7+
    Leader             string                     0+
    SkipAssignment     bool                       9+
    MemberId           string                     0+
    Members            []JoinGroupResponseMember  0+
      MemberId         string                     0+
      GroupInstanceId  string                     5+  null default=null ignorable
      Metadata         bytes                      0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
