"""DeleteTopics (20): deletes topics.

1: throttle time. 3: TOPIC_DELETION_DISABLED instead of INVALID_REQUEST. 5: error messages, and
THROTTLING_QUOTA_EXCEEDED is possible. 6: structures with a topic name or a topic id instead of a list of names.
"""

from odradek.protocol.schema import api

API_KEY = 20

SCHEMA = api(
    API_KEY,
    "DeleteTopics",
    "0-6",
    flexible="4+",
    request="""
    Topics      []DeleteTopicState  6+
      Name      string              6+   null default=null
      TopicId   uuid                6+
    TopicNames  []string            0-5  ignorable
    TimeoutMs   int32               0+
    """,
    response="""
    ThrottleTimeMs  int32                   1+  ignorable
    Responses       []DeletableTopicResult  0+
      Name          string                  0+  null=6+
      TopicId       uuid                    6+  ignorable
      ErrorCode     int16                   0+
      ErrorMessage  string                  5+  null default=null ignorable
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
