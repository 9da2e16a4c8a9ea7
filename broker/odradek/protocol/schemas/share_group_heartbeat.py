"""ShareGroupHeartbeat (76): a member of a share group (KIP-932) joins, stays and gets its assignment.

0: early access, with the fields of 1.
"""

from odradek.protocol.schema import api

API_KEY = 76

SCHEMA = api(
    API_KEY,
    "ShareGroupHeartbeat",
    "0-1",
    flexible="0+",
    request="""
    GroupId               string    0+
    MemberId              string    0+
    MemberEpoch           int32     0+
    RackId                string    0+  null default=null
    SubscribedTopicNames  []string  0+  null default=null
    """,
    response="""
    ThrottleTimeMs          int32              0+
    ErrorCode               int16              0+
    ErrorMessage            string             0+  null default=null
    MemberId                string             0+  null default=null
    MemberEpoch             int32              0+
    HeartbeatIntervalMs     int32              0+
    Assignment              Assignment         0+  null default=null
      TopicPartitions       []TopicPartitions  0+
    struct TopicPartitions 0+
      TopicId               uuid               0+
      Partitions            []int32            0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
