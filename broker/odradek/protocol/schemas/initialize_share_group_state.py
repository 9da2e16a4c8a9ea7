"""InitializeShareGroupState (83): initialises the state of share partitions. Between brokers."""

from odradek.protocol.schema import api

API_KEY = 83

SCHEMA = api(
    API_KEY,
    "InitializeShareGroupState",
    "0",
    flexible="0+",
    request="""
    GroupId          string                 0+
    Topics           []InitializeStateData  0+
      TopicId        uuid                   0+
      Partitions     []PartitionData        0+
        Partition    int32                  0+
        StateEpoch   int32                  0+
        StartOffset  int64                  0+
    """,
    response="""
    Results           []InitializeStateResult  0+
      TopicId         uuid                     0+
      Partitions      []PartitionResult        0+
        Partition     int32                    0+
        ErrorCode     int16                    0+
        ErrorMessage  string                   0+  null default=null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
