"""DescribeQuorum (55): state of the metadata quorum and its replicas.

1: times of the last fetch and of the last time that a replica was caught up. 2: directory ids, endpoints and error messages.
"""

from odradek.protocol.schema import api

API_KEY = 55

SCHEMA = api(
    API_KEY,
    "DescribeQuorum",
    "0-2",
    flexible="0+",
    request="""
    Topics              []TopicData      0+
      TopicName         string           0+
      Partitions        []PartitionData  0+
        PartitionIndex  int32            0+
    """,
    response="""
    ErrorCode                int16            0+
    ErrorMessage             string           2+  null ignorable
    Topics                   []TopicData      0+
      TopicName              string           0+
      Partitions             []PartitionData  0+
        PartitionIndex       int32            0+
        ErrorCode            int16            0+
        ErrorMessage         string           2+  null ignorable
        LeaderId             int32            0+
        LeaderEpoch          int32            0+
        HighWatermark        int64            0+
        CurrentVoters        []ReplicaState   0+
        Observers            []ReplicaState   0+
    Nodes                    []Node           2+
      NodeId                 int32            2+
      Listeners              []Listener       2+
        Name                 string           2+
        Host                 string           2+
        Port                 uint16           2+
    struct ReplicaState 0+
      ReplicaId              int32            0+
      ReplicaDirectoryId     uuid             2+
      LogEndOffset           int64            0+
      LastFetchTimestamp     int64            1+  default=-1 ignorable
      LastCaughtUpTimestamp  int64            1+  default=-1 ignorable
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
