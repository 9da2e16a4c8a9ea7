"""ShareFetch (78): a member of a share group acquires records and acknowledges earlier ones.

0: early access, with a limit of bytes per partition. 1: limits of the number of records and the batch size, and the time that
records stay acquired. 2: renewal of acquired records, and a strict limit of the number of records.
"""

from odradek.protocol.schema import api

API_KEY = 78

SCHEMA = api(
    API_KEY,
    "ShareFetch",
    "0-2",
    flexible="0+",
    request="""
    GroupId                     string                  0+  null default=null
    MemberId                    string                  0+  null
    ShareSessionEpoch           int32                   0+
    MaxWaitMs                   int32                   0+
    MinBytes                    int32                   0+
    MaxBytes                    int32                   0+  default=0x7fffffff
    MaxRecords                  int32                   1+
    BatchSize                   int32                   1+
    ShareAcquireMode            int8                    2+  ignorable
    IsRenewAck                  bool                    2+
    Topics                      []FetchTopic            0+
      TopicId                   uuid                    0+
      Partitions                []FetchPartition        0+
        PartitionIndex          int32                   0+
        PartitionMaxBytes       int32                   0
        AcknowledgementBatches  []AcknowledgementBatch  0+
          FirstOffset           int64                   0+
          LastOffset            int64                   0+
          AcknowledgeTypes      []int8                  0+
    ForgottenTopicsData         []ForgottenTopic        0+
      TopicId                   uuid                    0+
      Partitions                []int32                 0+
    """,
    response="""
    ThrottleTimeMs               int32                          0+
    ErrorCode                    int16                          0+
    ErrorMessage                 string                         0+  null default=null
    AcquisitionLockTimeoutMs     int32                          1+
    Responses                    []ShareFetchableTopicResponse  0+
      TopicId                    uuid                           0+
      Partitions                 []PartitionData                0+
        PartitionIndex           int32                          0+
        ErrorCode                int16                          0+
        ErrorMessage             string                         0+  null default=null
        AcknowledgeErrorCode     int16                          0+
        AcknowledgeErrorMessage  string                         0+  null default=null
        CurrentLeader            LeaderIdAndEpoch               0+
          LeaderId               int32                          0+
          LeaderEpoch            int32                          0+
        Records                  records                        0+  null=0
        AcquiredRecords          []AcquiredRecords              0+
          FirstOffset            int64                          0+
          LastOffset             int64                          0+
          DeliveryCount          int16                          0+
    NodeEndpoints                []NodeEndpoint                 0+
      NodeId                     int32                          0+
      Host                       string                         0+
      Port                       int32                          0+
      Rack                       string                         0+  null default=null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
