"""DeleteGroups (42): deletes groups that have no members."""

from odradek.protocol.schema import api

API_KEY = 42

SCHEMA = api(
    API_KEY,
    "DeleteGroups",
    "0-2",
    flexible="2+",
    request="""
    GroupsNames  []string  0+
    """,
    response="""
    ThrottleTimeMs  int32                   0+
    Results         []DeletableGroupResult  0+
      GroupId       string                  0+
      ErrorCode     int16                   0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
