"""ReadShareGroupStateSummary (87): reads the start offsets of share partitions. Between brokers.

0: contains the leader epoch since Kafka 4, unlike the unreleased form in Kafka 3.9. 1: number of completed deliveries.
"""

from odradek.protocol.schema import api

API_KEY = 87

SCHEMA = api(
    API_KEY,
    "ReadShareGroupStateSummary",
    "0-1",
    flexible="0+",
    request="""
    GroupId          string                  0+
    Topics           []ReadStateSummaryData  0+
      TopicId        uuid                    0+
      Partitions     []PartitionData         0+
        Partition    int32                   0+
        LeaderEpoch  int32                   0+
    """,
    response="""
    Results                    []ReadStateSummaryResult  0+
      TopicId                  uuid                      0+
      Partitions               []PartitionResult         0+
        Partition              int32                     0+
        ErrorCode              int16                     0+
        ErrorMessage           string                    0+  null default=null
        StateEpoch             int32                     0+
        LeaderEpoch            int32                     0+
        StartOffset            int64                     0+
        DeliveryCompleteCount  int32                     1+  default=-1 ignorable
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
