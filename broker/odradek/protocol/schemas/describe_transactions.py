"""DescribeTransactions (65): state, producer and partitions of transactions."""

from odradek.protocol.schema import api

API_KEY = 65

SCHEMA = api(
    API_KEY,
    "DescribeTransactions",
    "0",
    flexible="0+",
    request="""
    TransactionalIds  []string  0+
    """,
    response="""
    ThrottleTimeMs            int32               0+
    TransactionStates         []TransactionState  0+
      ErrorCode               int16               0+
      TransactionalId         string              0+
      TransactionState        string              0+
      TransactionTimeoutMs    int32               0+
      TransactionStartTimeMs  int64               0+
      ProducerId              int64               0+
      ProducerEpoch           int16               0+
      Topics                  []TopicData         0+
        Topic                 string              0+
        Partitions            []int32             0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
