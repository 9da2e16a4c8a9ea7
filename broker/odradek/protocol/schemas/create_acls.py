"""CreateAcls (30): creates ACLs.

1: pattern types (literal, prefixed). 3: resources of type USER.
"""

from odradek.protocol.schema import api

API_KEY = 30

SCHEMA = api(
    API_KEY,
    "CreateAcls",
    "0-3",
    flexible="2+",
    request="""
    Creations              []AclCreation  0+
      ResourceType         int8           0+
      ResourceName         string         0+
      ResourcePatternType  int8           1+  default=3
      Principal            string         0+
      Host                 string         0+
      Operation            int8           0+
      PermissionType       int8           0+
    """,
    response="""
    ThrottleTimeMs  int32                0+
    Results         []AclCreationResult  0+
      ErrorCode     int16                0+
      ErrorMessage  string               0+  null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
