"""DescribeAcls (29): the ACLs that match a filter.

1: pattern types (literal, prefixed). 3: resources of type USER.
"""

from odradek.protocol.schema import api

API_KEY = 29

SCHEMA = api(
    API_KEY,
    "DescribeAcls",
    "0-3",
    flexible="2+",
    request="""
    ResourceTypeFilter  int8    0+
    ResourceNameFilter  string  0+  null
    PatternTypeFilter   int8    1+  default=3
    PrincipalFilter     string  0+  null
    HostFilter          string  0+  null
    Operation           int8    0+
    PermissionType      int8    0+
    """,
    response="""
    ThrottleTimeMs      int32                   0+
    ErrorCode           int16                   0+
    ErrorMessage        string                  0+  null
    Resources           []DescribeAclsResource  0+
      ResourceType      int8                    0+
      ResourceName      string                  0+
      PatternType       int8                    1+  default=3
      Acls              []AclDescription        0+
        Principal       string                  0+
        Host            string                  0+
        Operation       int8                    0+
        PermissionType  int8                    0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
