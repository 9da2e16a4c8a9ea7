"""AlterShareGroupOffsets (91): sets the start offsets of a share group without members."""

from odradek.protocol.schema import api

API_KEY = 91

SCHEMA = api(
    API_KEY,
    "AlterShareGroupOffsets",
    "0",
    flexible="0+",
    request="""
    GroupId             string                                    0+
    Topics              []AlterShareGroupOffsetsRequestTopic      0+
      TopicName         string                                    0+
      Partitions        []AlterShareGroupOffsetsRequestPartition  0+
        PartitionIndex  int32                                     0+
        StartOffset     int64                                     0+
    """,
    response="""
    ThrottleTimeMs      int32                                      0+
    ErrorCode           int16                                      0+
    ErrorMessage        string                                     0+  null default=null
    Responses           []AlterShareGroupOffsetsResponseTopic      0+
      TopicName         string                                     0+
      TopicId           uuid                                       0+
      Partitions        []AlterShareGroupOffsetsResponsePartition  0+
        PartitionIndex  int32                                      0+
        ErrorCode       int16                                      0+
        ErrorMessage    string                                     0+  null default=null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
