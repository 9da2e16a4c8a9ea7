"""DescribeGroups (15): state and members of classic groups.

1: throttle time. 3: authorised operations, on request. 4: group instance ids. 6: error messages, and
GROUP_ID_NOT_FOUND instead of the state Dead.
"""

from odradek.protocol.schema import api

API_KEY = 15

SCHEMA = api(
    API_KEY,
    "DescribeGroups",
    "0-6",
    flexible="5+",
    request="""
    Groups                       []string  0+
    IncludeAuthorizedOperations  bool      3+
    """,
    response="""
    ThrottleTimeMs          int32                   1+  ignorable
    Groups                  []DescribedGroup        0+
      ErrorCode             int16                   0+
      ErrorMessage          string                  6+  null default=null
      GroupId               string                  0+
      GroupState            string                  0+
      ProtocolType          string                  0+
      ProtocolData          string                  0+
      Members               []DescribedGroupMember  0+
        MemberId            string                  0+
        GroupInstanceId     string                  4+  null default=null ignorable
        ClientId            string                  0+
        ClientHost          string                  0+
        MemberMetadata      bytes                   0+
        MemberAssignment    bytes                   0+
      AuthorizedOperations  int32                   3+  default=-2147483648
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
