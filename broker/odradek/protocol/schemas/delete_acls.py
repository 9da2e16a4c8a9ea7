"""DeleteAcls (31): deletes the ACLs that match filters.

1: pattern types (literal, prefixed). 3: resources of type USER.
"""

from odradek.protocol.schema import api

API_KEY = 31

SCHEMA = api(
    API_KEY,
    "DeleteAcls",
    "0-3",
    flexible="2+",
    request="""
    Filters               []DeleteAclsFilter  0+
      ResourceTypeFilter  int8                0+
      ResourceNameFilter  string              0+  null
      PatternTypeFilter   int8                1+  default=3
      PrincipalFilter     string              0+  null
      HostFilter          string              0+  null
      Operation           int8                0+
      PermissionType      int8                0+
    """,
    response="""
    ThrottleTimeMs      int32                     0+
    FilterResults       []DeleteAclsFilterResult  0+
      ErrorCode         int16                     0+
      ErrorMessage      string                    0+  null
      MatchingAcls      []DeleteAclsMatchingAcl   0+
        ErrorCode       int16                     0+
        ErrorMessage    string                    0+  null
        ResourceType    int8                      0+
        ResourceName    string                    0+
        PatternType     int8                      1+  default=3
        Principal       string                    0+
        Host            string                    0+
        Operation       int8                      0+
        PermissionType  int8                      0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
