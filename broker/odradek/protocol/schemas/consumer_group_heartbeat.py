"""ConsumerGroupHeartbeat (68): a member of a new group (KIP-848) joins, stays and learns its assignment.

1: subscription by a regular expression, and member ids made by the client.
"""

from odradek.protocol.schema import api

API_KEY = 68

SCHEMA = api(
    API_KEY,
    "ConsumerGroupHeartbeat",
    "0-1",
    flexible="0+",
    request="""
    GroupId               string             0+
    MemberId              string             0+
    MemberEpoch           int32              0+
    InstanceId            string             0+  null default=null
    RackId                string             0+  null default=null
    RebalanceTimeoutMs    int32              0+  default=-1
    SubscribedTopicNames  []string           0+  null default=null
    SubscribedTopicRegex  string             1+  null default=null
    ServerAssignor        string             0+  null default=null
    TopicPartitions       []TopicPartitions  0+  null default=null
      TopicId             uuid               0+
      Partitions          []int32            0+
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
