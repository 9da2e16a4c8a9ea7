"""DescribeDelegationToken (41): the delegation tokens of owners.

3: the requester of each token.
"""

from odradek.protocol.schema import api

API_KEY = 41

SCHEMA = api(
    API_KEY,
    "DescribeDelegationToken",
    "0-3",
    flexible="2+",
    request="""
    Owners           []DescribeDelegationTokenOwner  0+  null
      PrincipalType  string                          0+
      PrincipalName  string                          0+
    """,
    response="""
    ErrorCode                      int16                              0+
    Tokens                         []DescribedDelegationToken         0+
      PrincipalType                string                             0+
      PrincipalName                string                             0+
      TokenRequesterPrincipalType  string                             3+
      TokenRequesterPrincipalName  string                             3+
      IssueTimestamp               int64                              0+
      ExpiryTimestamp              int64                              0+
      MaxTimestamp                 int64                              0+
      TokenId                      string                             0+
      Hmac                         bytes                              0+
      Renewers                     []DescribedDelegationTokenRenewer  0+
        PrincipalType              string                             0+
        PrincipalName              string                             0+
    ThrottleTimeMs                 int32                              0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
