"""FindCoordinator (10): finds the broker that coordinates a group, a transactional id or a share partition.

1: key type (0 group, 1 transaction), and error messages. 4: several keys. 5: TRANSACTION_ABORTABLE is possible. 6: share
groups (key type 2, key "group:topicId:partition").
"""

from odradek.protocol.schema import api

API_KEY = 10

SCHEMA = api(
    API_KEY,
    "FindCoordinator",
    "0-6",
    flexible="3+",
    request="""
    Key              string    0-3
    KeyType          int8      1+
    CoordinatorKeys  []string  4+
    """,
    response="""
    ThrottleTimeMs  int32          1+   ignorable
    ErrorCode       int16          0-3
    ErrorMessage    string         1-3  null ignorable
    NodeId          int32          0-3
    Host            string         0-3
    Port            int32          0-3
    Coordinators    []Coordinator  4+
      Key           string         4+
      NodeId        int32          4+
      Host          string         4+
      Port          int32          4+
      ErrorCode     int16          4+
      ErrorMessage  string         4+   null ignorable
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
