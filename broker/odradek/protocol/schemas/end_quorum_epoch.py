"""EndQuorumEpoch (54): a leader of the metadata quorum resigns. Between controllers.

1: directory ids of the successors, and endpoints of the leader.
"""

from odradek.protocol.schema import api

API_KEY = 54

SCHEMA = api(
    API_KEY,
    "EndQuorumEpoch",
    "0-1",
    flexible="1+",
    request="""
    ClusterId                   string            0+  null default=null
    Topics                      []TopicData       0+
      TopicName                 string            0+
      Partitions                []PartitionData   0+
        PartitionIndex          int32             0+
        LeaderId                int32             0+
        LeaderEpoch             int32             0+
        PreferredSuccessors     []int32           0   ignorable
        PreferredCandidates     []ReplicaInfo     1+  ignorable
          CandidateId           int32             1+
          CandidateDirectoryId  uuid              1+
    LeaderEndpoints             []LeaderEndpoint  1+  ignorable
      Name                      string            1+
      Host                      string            1+
      Port                      uint16            1+
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
    NodeEndpoints       []NodeEndpoint   1+  tag=0
      NodeId            int32            1+
      Host              string           1+
      Port              uint16           1+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
