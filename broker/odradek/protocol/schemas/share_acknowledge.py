"""ShareAcknowledge (79): acknowledges records of a share group.

0: early access, with the fields of 1. 2: renewal of acquired records.
"""

from odradek.protocol.schema import api

API_KEY = 79

SCHEMA = api(
    API_KEY,
    "ShareAcknowledge",
    "0-2",
    flexible="0+",
    request="""
    GroupId                     string                  0+  null default=null
    MemberId                    string                  0+  null
    ShareSessionEpoch           int32                   0+
    IsRenewAck                  bool                    2+
    Topics                      []AcknowledgeTopic      0+
      TopicId                   uuid                    0+
      Partitions                []AcknowledgePartition  0+
        PartitionIndex          int32                   0+
        AcknowledgementBatches  []AcknowledgementBatch  0+
          FirstOffset           int64                   0+
          LastOffset            int64                   0+
          AcknowledgeTypes      []int8                  0+
    """,
    response="""
    ThrottleTimeMs            int32                            0+
    ErrorCode                 int16                            0+
    ErrorMessage              string                           0+  null default=null
    AcquisitionLockTimeoutMs  int32                            2+  ignorable
    Responses                 []ShareAcknowledgeTopicResponse  0+
      TopicId                 uuid                             0+
      Partitions              []PartitionData                  0+
        PartitionIndex        int32                            0+
        ErrorCode             int16                            0+
        ErrorMessage          string                           0+  null default=null
        CurrentLeader         LeaderIdAndEpoch                 0+
          LeaderId            int32                            0+
          LeaderEpoch         int32                            0+
    NodeEndpoints             []NodeEndpoint                   0+
      NodeId                  int32                            0+
      Host                    string                           0+
      Port                    int32                            0+
      Rack                    string                           0+  null default=null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
