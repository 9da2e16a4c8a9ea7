"""CreateDelegationToken (38): creates a delegation token.

3: the owner can be another principal than the requester.
"""

from odradek.protocol.schema import api

API_KEY = 38

SCHEMA = api(
    API_KEY,
    "CreateDelegationToken",
    "0-3",
    flexible="2+",
    request="""
    OwnerPrincipalType  string               3+  null
    OwnerPrincipalName  string               3+  null
    Renewers            []CreatableRenewers  0+
      PrincipalType     string               0+
      PrincipalName     string               0+
    MaxLifetimeMs       int64                0+
    """,
    response="""
    ErrorCode                    int16   0+
    PrincipalType                string  0+
    PrincipalName                string  0+
    TokenRequesterPrincipalType  string  3+
    TokenRequesterPrincipalName  string  3+
    IssueTimestampMs             int64   0+
    ExpiryTimestampMs            int64   0+
    MaxTimestampMs               int64   0+
    TokenId                      string  0+
    Hmac                         bytes   0+
    ThrottleTimeMs               int32   0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
