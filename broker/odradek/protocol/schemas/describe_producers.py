"""DescribeProducers (61): the active producers of partitions, with epochs, sequences and transactions."""

from odradek.protocol.schema import api

API_KEY = 61

SCHEMA = api(
    API_KEY,
    "DescribeProducers",
    "0",
    flexible="0+",
    request="""
    Topics              []TopicRequest  0+
      Name              string          0+
      PartitionIndexes  []int32         0+
    """,
    response="""
    ThrottleTimeMs               int32                0+
    Topics                       []TopicResponse      0+
      Name                       string               0+
      Partitions                 []PartitionResponse  0+
        PartitionIndex           int32                0+
        ErrorCode                int16                0+
        ErrorMessage             string               0+  null default=null
        ActiveProducers          []ProducerState      0+
          ProducerId             int64                0+
          ProducerEpoch          int32                0+
          LastSequence           int32                0+  default=-1
          LastTimestamp          int64                0+  default=-1
          CoordinatorEpoch       int32                0+
          CurrentTxnStartOffset  int64                0+  default=-1
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
