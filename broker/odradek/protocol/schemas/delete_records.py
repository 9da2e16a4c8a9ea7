"""DeleteRecords (21): moves the log start offset of partitions forward."""

from odradek.protocol.schema import api

API_KEY = 21

SCHEMA = api(
    API_KEY,
    "DeleteRecords",
    "0-2",
    flexible="2+",
    request="""
    Topics              []DeleteRecordsTopic      0+
      Name              string                    0+
      Partitions        []DeleteRecordsPartition  0+
        PartitionIndex  int32                     0+
        Offset          int64                     0+
    TimeoutMs           int32                     0+
    """,
    response="""
    ThrottleTimeMs      int32                           0+
    Topics              []DeleteRecordsTopicResult      0+
      Name              string                          0+
      Partitions        []DeleteRecordsPartitionResult  0+
        PartitionIndex  int32                           0+
        LowWatermark    int64                           0+
        ErrorCode       int16                           0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
