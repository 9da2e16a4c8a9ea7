"""TxnOffsetCommit (28): stores the offsets of a group as part of a transaction.

2: leader epochs. 3: member id, generation and instance id, for fencing. 4: TRANSACTION_ABORTABLE is possible. 5: the broker
adds the partition of the group to the transaction (KIP-890).
"""

from odradek.protocol.schema import api

API_KEY = 28

SCHEMA = api(
    API_KEY,
    "TxnOffsetCommit",
    "0-5",
    flexible="3+",
    request="""
    TransactionalId           string                             0+
    GroupId                   string                             0+
    ProducerId                int64                              0+
    ProducerEpoch             int16                              0+
    GenerationId              int32                              3+  default=-1
    MemberId                  string                             3+
    GroupInstanceId           string                             3+  null default=null
    Topics                    []TxnOffsetCommitRequestTopic      0+
      Name                    string                             0+
      Partitions              []TxnOffsetCommitRequestPartition  0+
        PartitionIndex        int32                              0+
        CommittedOffset       int64                              0+
        CommittedLeaderEpoch  int32                              2+  default=-1 ignorable
        CommittedMetadata     string                             0+  null
    """,
    response="""
    ThrottleTimeMs      int32                               0+
    Topics              []TxnOffsetCommitResponseTopic      0+
      Name              string                              0+
      Partitions        []TxnOffsetCommitResponsePartition  0+
        PartitionIndex  int32                               0+
        ErrorCode       int16                               0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
