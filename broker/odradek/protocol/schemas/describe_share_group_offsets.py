"""DescribeShareGroupOffsets (90): the start offsets of share groups.

1: the lag.
"""

from odradek.protocol.schema import api

API_KEY = 90

SCHEMA = api(
    API_KEY,
    "DescribeShareGroupOffsets",
    "0-1",
    flexible="0+",
    request="""
    Groups          []DescribeShareGroupOffsetsRequestGroup  0+
      GroupId       string                                   0+
      Topics        []DescribeShareGroupOffsetsRequestTopic  0+  null
        TopicName   string                                   0+
        Partitions  []int32                                  0+
    """,
    response="""
    ThrottleTimeMs        int32                                         0+
    Groups                []DescribeShareGroupOffsetsResponseGroup      0+
      GroupId             string                                        0+
      Topics              []DescribeShareGroupOffsetsResponseTopic      0+
        TopicName         string                                        0+
        TopicId           uuid                                          0+
        Partitions        []DescribeShareGroupOffsetsResponsePartition  0+
          PartitionIndex  int32                                         0+
          StartOffset     int64                                         0+
          LeaderEpoch     int32                                         0+
          Lag             int64                                         1+  default=-1 ignorable
          ErrorCode       int16                                         0+
          ErrorMessage    string                                        0+  null default=null
      ErrorCode           int16                                         0+
      ErrorMessage        string                                        0+  null default=null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
