"""ExplainPartition (20103): what one broker knows about a partition. Odradek's own, see docs/decisions/0014-explain.md.

Version 1 adds the background tasks of the broker that fail at the partition.
"""

from odradek.protocol.schema import api

API_KEY = 20103

SCHEMA = api(
    API_KEY,
    "ExplainPartition",
    "0-1",
    flexible="0+",
    request="""
    TopicName       string  0+
    PartitionIndex  int32   0+
    """,
    response="""
    ThrottleTimeMs      int32       0+
    ErrorCode           int16       0+
    ErrorMessage        string      0+  null default=null
    BrokerId            int32       0+
    State               string      0+
    Role                string      0+
    LeaderId            int32       0+  default=-1
    LeaderEpoch         int32       0+  default=-1
    PartitionEpoch      int32       0+  default=-1
    ControllerEpoch     int32       0+  default=-1
    LeaderEpochStart    int64       0+  default=-1
    Recovering          bool        0+
    LogStartOffset      int64       0+  default=-1
    LogEndOffset        int64       0+  default=-1
    HighWatermark       int64       0+  default=-1
    MinInSyncReplicas   int32       0+
    Replicas            []int32     0+
    AddingReplicas      []int32     0+
    RemovingReplicas    []int32     0+
    InSyncReplicas      []int32     0+
    MaximalInSync       []int32     0+
    InSyncState         string      0+
    InSyncMs            int64       0+  default=-1
    FetchError          int64       0+
    LostTail            string      0+
    LostTailBytes       int64       0+
    LostTailEnd         int64       0+  default=-1
    FailingTasks        []FailingTask  1+
      Task              string      1+
      Reason            string      1+
      SinceMs           int64       1+
    PublishedLeader     int32       0+  default=-1
    PublishedEpoch      int32       0+  default=-1
    PublishedInSync     []int32     0+
    Followers           []Follower  0+
      BrokerId          int32       0+
      Alive             bool        0+
      BrokerEpoch       int64       0+  default=-1
      LogEndOffset      int64       0+  default=-1
      LogStartOffset    int64       0+  default=-1
      FetchedMsAgo      int64       0+  default=-1
      CaughtUpMsAgo     int64       0+  default=-1
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
