"""OffsetDelete (47): deletes committed offsets of a group. It has no flexible versions."""

from odradek.protocol.schema import api

API_KEY = 47

SCHEMA = api(
    API_KEY,
    "OffsetDelete",
    "0",
    flexible="none",
    request="""
    GroupId             string                          0+
    Topics              []OffsetDeleteRequestTopic      0+
      Name              string                          0+
      Partitions        []OffsetDeleteRequestPartition  0+
        PartitionIndex  int32                           0+
    """,
    response="""
    ErrorCode           int16                            0+
    ThrottleTimeMs      int32                            0+  ignorable
    Topics              []OffsetDeleteResponseTopic      0+
      Name              string                           0+
      Partitions        []OffsetDeleteResponsePartition  0+
        PartitionIndex  int32                            0+
        ErrorCode       int16                            0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
