"""DescribeLogDirs (35): the replicas in a broker's log directories, and their sizes.

3: an error of the whole. 4: size of the directory's volume, and what is free. 5: whether a directory is cordoned off.
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
