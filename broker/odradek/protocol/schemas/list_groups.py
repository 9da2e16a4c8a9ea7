"""ListGroups (16): the groups that a broker coordinates.

1: throttle time. 4: group states, and a filter by state. 5: group types, and a filter by type.
"""

from odradek.protocol.schema import api

API_KEY = 16

SCHEMA = api(
    API_KEY,
    "ListGroups",
    "0-5",
    flexible="3+",
    request="""
    StatesFilter  []string  4+
    TypesFilter   []string  5+
    """,
    response="""
    ThrottleTimeMs  int32          1+  ignorable
    ErrorCode       int16          0+
    Groups          []ListedGroup  0+
      GroupId       string         0+
      ProtocolType  string         0+
      GroupState    string         4+  ignorable
      GroupType     string         5+  ignorable
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
