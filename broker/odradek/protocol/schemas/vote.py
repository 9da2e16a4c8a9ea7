"""Vote (52): a candidate of the metadata quorum requests a vote. Between controllers.

1: directory ids and the voter key. 2: pre-votes (KIP-996); the fields of the candidate are renamed to those of a replica, with
the same encoding.
"""

from odradek.protocol.schema import api

API_KEY = 52

SCHEMA = api(
    API_KEY,
    "Vote",
    "0-2",
    flexible="0+",
    request="""
    ClusterId               string           0+  null default=null
    VoterId                 int32            1+  default=-1 ignorable
    Topics                  []TopicData      0+
      TopicName             string           0+
      Partitions            []PartitionData  0+
        PartitionIndex      int32            0+
        ReplicaEpoch        int32            0+
        ReplicaId           int32            0+
        ReplicaDirectoryId  uuid             1+  ignorable
        VoterDirectoryId    uuid             1+  ignorable
        LastOffsetEpoch     int32            0+
        LastOffset          int64            0+
        PreVote             bool             2+
    """,
    response="""
    ErrorCode           int16            0+
    Topics              []TopicData      0+
      TopicName         string           0+
      Partitions        []PartitionData  0+
        PartitionIndex  int32            0+
        ErrorCode       int16            0+
        LeaderId        int32            0+
        LeaderEpoch     int32            0+
        VoteGranted     bool             0+
    NodeEndpoints       []NodeEndpoint   1+  tag=0
      NodeId            int32            1+
      Host              string           1+
      Port              uint16           1+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
