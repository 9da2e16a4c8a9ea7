"""ReadShareGroupState (84): reads the state of share partitions. Between brokers."""

from odradek.protocol.schema import api

API_KEY = 84

SCHEMA = api(
    API_KEY,
    "ReadShareGroupState",
    "0",
    flexible="0+",
    request="""
    GroupId          string           0+
    Topics           []ReadStateData  0+
      TopicId        uuid             0+
      Partitions     []PartitionData  0+
        Partition    int32            0+
        LeaderEpoch  int32            0+
    """,
    response="""
    Results              []ReadStateResult  0+
      TopicId            uuid               0+
      Partitions         []PartitionResult  0+
        Partition        int32              0+
        ErrorCode        int16              0+
        ErrorMessage     string             0+  null default=null
        StateEpoch       int32              0+
        StartOffset      int64              0+
        StateBatches     []StateBatch       0+
          FirstOffset    int64              0+
          LastOffset     int64              0+
          DeliveryState  int8               0+
          DeliveryCount  int16              0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
