"""OffsetForLeaderEpoch (23): the end offset of an epoch in the log of the leader, with which a reader detects a divergence.

1: the epoch in the response. 2: the current leader epoch that the client knows, and throttle time. 3: replica id of the client.
"""

from odradek.protocol.schema import api

API_KEY = 23

SCHEMA = api(
    API_KEY,
    "OffsetForLeaderEpoch",
    "0-4",
    flexible="4+",
    request="""
    ReplicaId               int32                       3+  default=-2 ignorable
    Topics                  []OffsetForLeaderTopic      0+
      Topic                 string                      0+
      Partitions            []OffsetForLeaderPartition  0+
        Partition           int32                       0+
        CurrentLeaderEpoch  int32                       2+  default=-1 ignorable
        LeaderEpoch         int32                       0+
    """,
    response="""
    ThrottleTimeMs   int32                         2+  ignorable
    Topics           []OffsetForLeaderTopicResult  0+
      Topic          string                        0+
      Partitions     []EpochEndOffset              0+
        ErrorCode    int16                         0+
        Partition    int32                         0+
        LeaderEpoch  int32                         1+  default=-1 ignorable
        EndOffset    int64                         0+  default=-1
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
