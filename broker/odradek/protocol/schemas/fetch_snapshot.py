"""FetchSnapshot (59): reads a snapshot of the metadata log. Between controllers and brokers.

1: directory of the replica, and endpoints of new leaders.
"""

from odradek.protocol.schema import api

API_KEY = 59

SCHEMA = api(
    API_KEY,
    "FetchSnapshot",
    "0-1",
    flexible="0+",
    request="""
    ClusterId               string               0+  null default=null tag=0
    ReplicaId               int32                0+  default=-1
    MaxBytes                int32                0+  default=0x7fffffff
    Topics                  []TopicSnapshot      0+
      Name                  string               0+
      Partitions            []PartitionSnapshot  0+
        Partition           int32                0+
        CurrentLeaderEpoch  int32                0+
        SnapshotId          SnapshotId           0+
          EndOffset         int64                0+
          Epoch             int32                0+
        Position            int64                0+
        ReplicaDirectoryId  uuid                 1+  tag=0 ignorable
    """,
    response="""
    ThrottleTimeMs        int32                0+  ignorable
    ErrorCode             int16                0+
    Topics                []TopicSnapshot      0+
      Name                string               0+
      Partitions          []PartitionSnapshot  0+
        Index             int32                0+
        ErrorCode         int16                0+
        SnapshotId        SnapshotId           0+
          EndOffset       int64                0+
          Epoch           int32                0+
        CurrentLeader     LeaderIdAndEpoch     0+  tag=0
          LeaderId        int32                0+
          LeaderEpoch     int32                0+
        Size              int64                0+
        Position          int64                0+
        UnalignedRecords  records              0+
    NodeEndpoints         []NodeEndpoint       1+  tag=0
      NodeId              int32                1+
      Host                string               1+
      Port                uint16               1+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
