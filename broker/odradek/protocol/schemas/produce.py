"""Produce (0): appends record batches to partitions.

0 to 2: message sets of format v0 or v1. 3: record batches (format v2), and transactional id. With acks=0 there is no response.
The response: 1: throttle time. 2: append time. 5: log start offset. 8: errors of single records. 10: current leader in a tagged
field (KIP-951). Behaviour: 4: KAFKA_STORAGE_ERROR is possible. 7: zstd is allowed. 11: TRANSACTION_ABORTABLE is possible. 12:
the broker adds partitions to the transaction (KIP-890). 13: topic ids instead of names.

librdkafka chooses its message format by the advertised versions: without version 0, it sends no v2 batches.
"""

from odradek.protocol.schema import api

API_KEY = 0

SCHEMA = api(
    API_KEY,
    "Produce",
    "0-13",
    flexible="9+",
    request="""
    TransactionalId  string                  3+    null default=null
    Acks             int16                   0+
    TimeoutMs        int32                   0+
    TopicData        []TopicProduceData      0+
      Name           string                  0-12  ignorable
      TopicId        uuid                    13+   ignorable
      PartitionData  []PartitionProduceData  0+
        Index        int32                   0+
        Records      records                 0+    null
    """,
    response="""
    Responses                     []TopicProduceResponse       0+
      Name                        string                       0-12  ignorable
      TopicId                     uuid                         13+   ignorable
      PartitionResponses          []PartitionProduceResponse   0+
        Index                     int32                        0+
        ErrorCode                 int16                        0+
        BaseOffset                int64                        0+
        LogAppendTimeMs           int64                        2+    default=-1 ignorable
        LogStartOffset            int64                        5+    default=-1 ignorable
        RecordErrors              []BatchIndexAndErrorMessage  8+    ignorable
          BatchIndex              int32                        8+
          BatchIndexErrorMessage  string                       8+    null default=null
        ErrorMessage              string                       8+    null default=null ignorable
        CurrentLeader             LeaderIdAndEpoch             10+   tag=0
          LeaderId                int32                        10+   default=-1
          LeaderEpoch             int32                        10+   default=-1
    ThrottleTimeMs                int32                        1+    ignorable
    NodeEndpoints                 []NodeEndpoint               10+   tag=0
      NodeId                      int32                        10+
      Host                        string                       10+
      Port                        int32                        10+
      Rack                        string                       10+   null default=null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
