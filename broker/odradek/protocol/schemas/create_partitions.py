"""CreatePartitions (37): adds partitions to topics.

3: THROTTLING_QUOTA_EXCEEDED is possible.
"""

from odradek.protocol.schema import api

API_KEY = 37

SCHEMA = api(
    API_KEY,
    "CreatePartitions",
    "0-3",
    flexible="2+",
    request="""
    Topics         []CreatePartitionsTopic       0+
      Name         string                        0+
      Count        int32                         0+
      Assignments  []CreatePartitionsAssignment  0+  null
        BrokerIds  []int32                       0+
    TimeoutMs      int32                         0+
    ValidateOnly   bool                          0+
    """,
    response="""
    ThrottleTimeMs  int32                          0+
    Results         []CreatePartitionsTopicResult  0+
      Name          string                         0+
      ErrorCode     int16                          0+
      ErrorMessage  string                         0+  null default=null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
