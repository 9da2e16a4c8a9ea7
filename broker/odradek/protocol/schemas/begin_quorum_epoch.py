"""BeginQuorumEpoch (53): a new leader of the metadata quorum announces itself. Between controllers.

1: endpoints of the leader, and the voter key.
"""

from odradek.protocol.schema import api

API_KEY = 53

SCHEMA = api(
    API_KEY,
    "BeginQuorumEpoch",
    "0-1",
    flexible="1+",
    request="""
    ClusterId             string            0+  null default=null
    VoterId               int32             1+  default=-1 ignorable
    Topics                []TopicData       0+
      TopicName           string            0+
      Partitions          []PartitionData   0+
        PartitionIndex    int32             0+
        VoterDirectoryId  uuid              1+  ignorable
        LeaderId          int32             0+
        LeaderEpoch       int32             0+
    LeaderEndpoints       []LeaderEndpoint  1+  ignorable
      Name                string            1+
      Host                string            1+
      Port                uint16            1+
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
