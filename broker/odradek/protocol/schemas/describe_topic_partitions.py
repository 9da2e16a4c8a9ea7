"""DescribeTopicPartitions (75): topics in pages, with the eligible and last known leader replicas (KIP-966)."""

from odradek.protocol.schema import api

API_KEY = 75

SCHEMA = api(
    API_KEY,
    "DescribeTopicPartitions",
    "0",
    flexible="0+",
    request="""
    Topics                  []TopicRequest  0+
      Name                  string          0+
    ResponsePartitionLimit  int32           0+  default=2000
    Cursor                  Cursor          0+  null default=null
      TopicName             string          0+
      PartitionIndex        int32           0+
    """,
    response="""
    ThrottleTimeMs               int32                                       0+  ignorable
    Topics                       []DescribeTopicPartitionsResponseTopic      0+
      ErrorCode                  int16                                       0+
      Name                       string                                      0+  null
      TopicId                    uuid                                        0+  ignorable
      IsInternal                 bool                                        0+  ignorable
      Partitions                 []DescribeTopicPartitionsResponsePartition  0+
        ErrorCode                int16                                       0+
        PartitionIndex           int32                                       0+
        LeaderId                 int32                                       0+
        LeaderEpoch              int32                                       0+  default=-1 ignorable
        ReplicaNodes             []int32                                     0+
        IsrNodes                 []int32                                     0+
        EligibleLeaderReplicas   []int32                                     0+  null default=null
        LastKnownElr             []int32                                     0+  null default=null
        OfflineReplicas          []int32                                     0+  ignorable
      TopicAuthorizedOperations  int32                                       0+  default=-2147483648
    NextCursor                   Cursor                                      0+  null default=null
      TopicName                  string                                      0+
      PartitionIndex             int32                                       0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
