"""Fetch (1): reads batches of records, waiting for some if there are none yet; consumers and followers alike.

Of the request: 3 bounds the whole response and makes the order of partitions count, 4 has the isolation level, 5 the
follower's log start offset, 7 fetch sessions (KIP-227), 9 the leader epoch the reader believes in, 11 its rack, 12
the epoch of its last record (divergence is then told), 13 topic ids, 15 the replica and its epoch in a tagged field,
17 the follower's directory, 18 the high watermark that the follower knows. Of the response: 1 the throttle time, 4
the last stable offset and the aborted transactions, 5 the log start offset, 7 session and error of the whole, 11 the
preferred read replica, 16 the addresses of new leaders.

2: format v1 may be answered; 4: format v2; 10: zstd, below it UNSUPPORTED_COMPRESSION_TYPE.
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
