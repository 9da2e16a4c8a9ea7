"""ElectLeaders (43): elects leaders of partitions.

0: preferred leaders. 1: also unclean elections, and a top-level error code.
"""

from odradek.protocol.schema import api

API_KEY = 43

SCHEMA = api(
    API_KEY,
    "ElectLeaders",
    "0-2",
    flexible="2+",
    request="""
    ElectionType     int8               1+
    TopicPartitions  []TopicPartitions  0+  null
      Topic          string             0+
      Partitions     []int32            0+
    TimeoutMs        int32              0+  default=60000
    """,
    response="""
    ThrottleTimeMs          int32                    0+
    ErrorCode               int16                    1+
    ReplicaElectionResults  []ReplicaElectionResult  0+
      Topic                 string                   0+
      PartitionResult       []PartitionResult        0+
        PartitionId         int32                    0+
        ErrorCode           int16                    0+
        ErrorMessage        string                   0+  null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
