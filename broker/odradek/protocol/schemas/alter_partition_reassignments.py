"""AlterPartitionReassignments (45): moves partitions to other replicas, or cancels a reassignment.

1: whether the number of replicas may change.
"""

from odradek.protocol.schema import api

API_KEY = 45

SCHEMA = api(
    API_KEY,
    "AlterPartitionReassignments",
    "0-1",
    flexible="0+",
    request="""
    TimeoutMs                     int32                    0+  default=60000
    AllowReplicationFactorChange  bool                     1+  default=true
    Topics                        []ReassignableTopic      0+
      Name                        string                   0+
      Partitions                  []ReassignablePartition  0+
        PartitionIndex            int32                    0+
        Replicas                  []int32                  0+  null default=null
    """,
    response="""
    ThrottleTimeMs                int32                            0+
    AllowReplicationFactorChange  bool                             1+  default=true ignorable
    ErrorCode                     int16                            0+
    ErrorMessage                  string                           0+  null
    Responses                     []ReassignableTopicResponse      0+
      Name                        string                           0+
      Partitions                  []ReassignablePartitionResponse  0+
        PartitionIndex            int32                            0+
        ErrorCode                 int16                            0+
        ErrorMessage              string                           0+  null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
