"""Fetch (1): reads record batches, for consumers and followers; waits if there are no records yet.

The request. 3: maximum size of the response, which makes the order of partitions significant. 4: isolation level. 5: log start
offset of the follower. 7: fetch sessions (KIP-227). 9: leader epoch that the reader knows. 11: rack of the reader. 12: epoch
of its last record, so that the response reports a divergence. 13: topic ids. 15: replica id and epoch in a tagged field. 17:
directory of the follower. 18: high watermark that the follower knows.

The response. 1: throttle time. 2: records can have format v1. 4: records can have format v2; last stable offset and aborted
transactions. 5: log start offset. 7: session id and top-level error code. 10: records can be compressed with zstd; earlier
versions get UNSUPPORTED_COMPRESSION_TYPE. 11: preferred read replica. 16: addresses of new leaders.
"""

from odradek.protocol.schema import api

API_KEY = 1

SCHEMA = api(
    API_KEY,
    "Fetch",
    "0-18",
    flexible="12+",
    request="""
    ClusterId               string            12+   null default=null tag=0 ignorable
    ReplicaId               int32             0-14  default=-1
    ReplicaState            ReplicaState      15+   tag=1
      ReplicaId             int32             15+   default=-1
      ReplicaEpoch          int64             15+   default=-1
    MaxWaitMs               int32             0+
    MinBytes                int32             0+
    MaxBytes                int32             3+    default=0x7fffffff ignorable
    IsolationLevel          int8              4+    ignorable
    SessionId               int32             7+    ignorable
    SessionEpoch            int32             7+    default=-1 ignorable
    Topics                  []FetchTopic      0+
      Topic                 string            0-12  ignorable
      TopicId               uuid              13+   ignorable
      Partitions            []FetchPartition  0+
        Partition           int32             0+
        CurrentLeaderEpoch  int32             9+    default=-1 ignorable
        FetchOffset         int64             0+
        LastFetchedEpoch    int32             12+   default=-1
        LogStartOffset      int64             5+    default=-1 ignorable
        PartitionMaxBytes   int32             0+
        ReplicaDirectoryId  uuid              17+   tag=0 ignorable
        HighWatermark       int64             18+   default=9223372036854775807 tag=1 ignorable
    ForgottenTopicsData     []ForgottenTopic  7+
      Topic                 string            7-12  ignorable
      TopicId               uuid              13+   ignorable
      Partitions            []int32           7+
    RackId                  string            11+   ignorable
    """,
    response="""
    ThrottleTimeMs            int32                     1+    ignorable
    ErrorCode                 int16                     7+    ignorable
    SessionId                 int32                     7+
    Responses                 []FetchableTopicResponse  0+
      Topic                   string                    0-12  ignorable
      TopicId                 uuid                      13+   ignorable
      Partitions              []PartitionData           0+
        PartitionIndex        int32                     0+
        ErrorCode             int16                     0+
        HighWatermark         int64                     0+
        LastStableOffset      int64                     4+    default=-1 ignorable
        LogStartOffset        int64                     5+    default=-1 ignorable
        DivergingEpoch        EpochEndOffset            12+   tag=0
          Epoch               int32                     12+   default=-1
          EndOffset           int64                     12+   default=-1
        CurrentLeader         LeaderIdAndEpoch          12+   tag=1
          LeaderId            int32                     12+   default=-1
          LeaderEpoch         int32                     12+   default=-1
        SnapshotId            SnapshotId                12+   tag=2
          EndOffset           int64                     0+    default=-1
          Epoch               int32                     0+    default=-1
        AbortedTransactions   []AbortedTransaction      4+    null ignorable
          ProducerId          int64                     4+
          FirstOffset         int64                     4+
        PreferredReadReplica  int32                     11+   default=-1
        Records               records                   0+    null
    NodeEndpoints             []NodeEndpoint            16+   tag=0
      NodeId                  int32                     16+
      Host                    string                    16+
      Port                    int32                     16+
      Rack                    string                    16+   null default=null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
