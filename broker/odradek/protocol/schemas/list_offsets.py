"""ListOffsets (2): finds the offset for a timestamp, or the start or end of a partition.

0: the response is a list of segment offsets. 1: it is one offset and its timestamp. 2: isolation level. 4: leader epoch. The
timestamp -1 means the end, -2 the start; 7: -3 (the record with the greatest timestamp); 8: -4 (the start on the local disk);
9: -5 (the end in tiered storage); 11: -6 (the earliest offset that is not uploaded yet). 10: timeout for reading remote
storage.
"""

from odradek.protocol.schema import api

API_KEY = 2

SCHEMA = api(
    API_KEY,
    "ListOffsets",
    "0-11",
    flexible="6+",
    request="""
    ReplicaId               int32                   0+
    IsolationLevel          int8                    2+
    Topics                  []ListOffsetsTopic      0+
      Name                  string                  0+
      Partitions            []ListOffsetsPartition  0+
        PartitionIndex      int32                   0+
        CurrentLeaderEpoch  int32                   4+   default=-1 ignorable
        Timestamp           int64                   0+
        MaxNumOffsets       int32                   0    default=1
    TimeoutMs               int32                   10+  ignorable
    """,
    response="""
    ThrottleTimeMs       int32                           2+  ignorable
    Topics               []ListOffsetsTopicResponse      0+
      Name               string                          0+
      Partitions         []ListOffsetsPartitionResponse  0+
        PartitionIndex   int32                           0+
        ErrorCode        int16                           0+
        OldStyleOffsets  []int64                         0
        Timestamp        int64                           1+  default=-1
        Offset           int64                           1+  default=-1
        LeaderEpoch      int32                           4+  default=-1
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
