"""ConsumerGroupDescribe (69): state and members of groups of the consumer protocol (KIP-848).

1: whether a member uses the classic or the consumer protocol.
"""

from odradek.protocol.schema import api

API_KEY = 69

SCHEMA = api(
    API_KEY,
    "ConsumerGroupDescribe",
    "0-1",
    flexible="0+",
    request="""
    GroupIds                     []string  0+
    IncludeAuthorizedOperations  bool      0+
    """,
    response="""
    ThrottleTimeMs            int32              0+
    Groups                    []DescribedGroup   0+
      ErrorCode               int16              0+
      ErrorMessage            string             0+  null default=null
      GroupId                 string             0+
      GroupState              string             0+
      GroupEpoch              int32              0+
      AssignmentEpoch         int32              0+
      AssignorName            string             0+
      Members                 []Member           0+
        MemberId              string             0+
        InstanceId            string             0+  null default=null
        RackId                string             0+  null default=null
        MemberEpoch           int32              0+
        ClientId              string             0+
        ClientHost            string             0+
        SubscribedTopicNames  []string           0+
        SubscribedTopicRegex  string             0+  null default=null
        Assignment            Assignment         0+
        TargetAssignment      Assignment         0+
        MemberType            int8               1+  default=-1 ignorable
      AuthorizedOperations    int32              0+  default=-2147483648
    struct TopicPartitions 0+
      TopicId                 uuid               0+
      TopicName               string             0+
      Partitions              []int32            0+
    struct Assignment 0+
      TopicPartitions         []TopicPartitions  0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
