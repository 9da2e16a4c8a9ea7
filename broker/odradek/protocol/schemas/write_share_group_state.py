"""WriteShareGroupState (85): writes the state of share partitions. Between brokers.

1: number of completed deliveries.
"""

from odradek.protocol.schema import api

API_KEY = 85

SCHEMA = api(
    API_KEY,
    "WriteShareGroupState",
    "0-1",
    flexible="0+",
    request="""
    GroupId                    string            0+
    Topics                     []WriteStateData  0+
      TopicId                  uuid              0+
      Partitions               []PartitionData   0+
        Partition              int32             0+
        StateEpoch             int32             0+
        LeaderEpoch            int32             0+
        StartOffset            int64             0+
        DeliveryCompleteCount  int32             1+  default=-1 ignorable
        StateBatches           []StateBatch      0+
          FirstOffset          int64             0+
          LastOffset           int64             0+
          DeliveryState        int8              0+
          DeliveryCount        int16             0+
    """,
    response="""
    Results           []WriteStateResult  0+
      TopicId         uuid                0+
      Partitions      []PartitionResult   0+
        Partition     int32               0+
        ErrorCode     int16               0+
        ErrorMessage  string              0+  null default=null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
