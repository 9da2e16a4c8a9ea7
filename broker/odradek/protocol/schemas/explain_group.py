"""ExplainGroup (20101): the last events of a group; 1: also its offsets in open transactions. Odradek's own, see
docs/decisions/0014-explain.md.

Kafka numbers its APIs from 0; keys from 20000 on are private to this project. ApiVersions lists them only for clients whose
software name is "odradek".
"""

from odradek.protocol.schema import api

API_KEY = 20101

SCHEMA = api(
    API_KEY,
    "ExplainGroup",
    "0-1",
    flexible="0+",
    request="""
    GroupId  string  0+
    """,
    response="""
    ThrottleTimeMs  int32    0+
    ErrorCode       int16    0+
    ErrorMessage    string   0+  null default=null
    GroupId         string   0+
    Events          []Event  0+
      AtMs          int64    0+
      Kind          string   0+
      MemberId      string   0+
      Client        string   0+
      Why           string   0+
      TookMs        int64    0+  default=-1
    PendingOffsets  []PendingOffset  1+  ignorable
      Topic         string   1+
      Partition     int32    1+
      Offset        int64    1+
      ProducerId    int64    1+
      Overtaken     bool     1+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
