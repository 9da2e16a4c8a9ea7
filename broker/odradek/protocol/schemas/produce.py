"""Produce (0): appends batches of records to partitions.

0-2 carry message sets of formats v0 and v1; 3 and later record batches (format v2) and the transactional id. Acks of
0 gets no response at all. Of the response: 1 adds the throttle time, 2 the append time, 5 the log start offset, 8 the
errors of single records, 10 the current leader as a tagged field (KIP-951). 4: the error KAFKA_STORAGE_ERROR may
come. 7: zstd may be used. 11: TRANSACTION_ABORTABLE may come. 12: the broker adds partitions to the transaction by
itself (KIP-890). 13: topic ids instead of names.

librdkafka picks its message format from the advertised range: a broker that leaves out 0 makes it send no v2 batches.
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
