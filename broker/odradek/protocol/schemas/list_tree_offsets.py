"""ListTreeOffsets (20102): groups with offsets in the metadata tree. Odradek's own, see docs/decisions/0014-explain.md.

Kafka has no API for the groups under `/consumers`: its old tools read ZooKeeper. Private to this project, like ExplainGroup.
"""

from odradek.protocol.schema import api

API_KEY = 20102

SCHEMA = api(
    API_KEY,
    "ListTreeOffsets",
    "0",
    flexible="0+",
    request="""
    GroupIds            []string     0+  null default=null
    """,
    response="""
    ThrottleTimeMs      int32        0+
    ErrorCode           int16        0+
    ErrorMessage        string       0+  null default=null
    Groups              []Group      0+
      GroupId           string       0+
      Topics            []Topic      0+
        Name            string       0+
        Partitions      []Partition  0+
          PartitionIndex   int32     0+
          CommittedOffset  int64     0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
