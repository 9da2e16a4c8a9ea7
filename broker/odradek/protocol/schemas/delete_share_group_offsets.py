"""DeleteShareGroupOffsets (92): deletes the start offsets of a share group."""

from odradek.protocol.schema import api

API_KEY = 92

SCHEMA = api(
    API_KEY,
    "DeleteShareGroupOffsets",
    "0",
    flexible="0+",
    request="""
    GroupId      string                                 0+
    Topics       []DeleteShareGroupOffsetsRequestTopic  0+
      TopicName  string                                 0+
    """,
    response="""
    ThrottleTimeMs  int32                                   0+
    ErrorCode       int16                                   0+
    ErrorMessage    string                                  0+  null default=null
    Responses       []DeleteShareGroupOffsetsResponseTopic  0+
      TopicName     string                                  0+
      TopicId       uuid                                    0+
      ErrorCode     int16                                   0+
      ErrorMessage  string                                  0+  null default=null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
