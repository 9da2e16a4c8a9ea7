"""DescribeLogDirs (35): the replicas in the log directories of a broker, and their sizes.

3: top-level error code. 4: total and free bytes of the volume. 5: whether a directory is cordoned.
"""

from odradek.protocol.schema import api

API_KEY = 35

SCHEMA = api(
    API_KEY,
    "DescribeLogDirs",
    "0-5",
    flexible="2+",
    request="""
    Topics        []DescribableLogDirTopic  0+  null
      Topic       string                    0+
      Partitions  []int32                   0+
    """,
    response="""
    ThrottleTimeMs        int32                       0+
    ErrorCode             int16                       3+  ignorable
    Results               []DescribeLogDirsResult     0+
      ErrorCode           int16                       0+
      LogDir              string                      0+
      Topics              []DescribeLogDirsTopic      0+
        Name              string                      0+
        Partitions        []DescribeLogDirsPartition  0+
          PartitionIndex  int32                       0+
          PartitionSize   int64                       0+
          OffsetLag       int64                       0+
          IsFutureKey     bool                        0+
      TotalBytes          int64                       4+  default=-1 ignorable
      UsableBytes         int64                       4+  default=-1 ignorable
      IsCordoned          bool                        5+  ignorable
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
