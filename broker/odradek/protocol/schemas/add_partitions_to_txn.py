"""AddPartitionsToTxn (24): adds partitions to a transaction before they are written.

0 to 3: sent by clients, for one transaction. 4 and 5: sent by brokers, to check or add the partitions of several
transactions. 4: verification only. 5: TRANSACTION_ABORTABLE is possible.
"""

from odradek.protocol.schema import api

API_KEY = 24

SCHEMA = api(
    API_KEY,
    "AddPartitionsToTxn",
    "0-5",
    flexible="3+",
    request="""
    Transactions                    []AddPartitionsToTxnTransaction  4+
      TransactionalId               string                           4+
      ProducerId                    int64                            4+
      ProducerEpoch                 int16                            4+
      VerifyOnly                    bool                             4+
      Topics                        []AddPartitionsToTxnTopic        4+
    V3AndBelowTransactionalId       string                           0-3
    V3AndBelowProducerId            int64                            0-3
    V3AndBelowProducerEpoch         int16                            0-3
    V3AndBelowTopics                []AddPartitionsToTxnTopic        0-3
    struct AddPartitionsToTxnTopic 0+
      Name                          string                           0+
      Partitions                    []int32                          0+
    """,
    response="""
    ThrottleTimeMs                            int32                                0+
    ErrorCode                                 int16                                4+   ignorable
    ResultsByTransaction                      []AddPartitionsToTxnResult           4+
      TransactionalId                         string                               4+
      TopicResults                            []AddPartitionsToTxnTopicResult      4+
    ResultsByTopicV3AndBelow                  []AddPartitionsToTxnTopicResult      0-3
    struct AddPartitionsToTxnTopicResult 0+
      Name                                    string                               0+
      ResultsByPartition                      []AddPartitionsToTxnPartitionResult  0+
    struct AddPartitionsToTxnPartitionResult 0+
      PartitionIndex                          int32                                0+
      PartitionErrorCode                      int16                                0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
