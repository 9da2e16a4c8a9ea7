"""DescribeUserScramCredentials (50): mechanisms and iterations of the SCRAM credentials of users."""

from odradek.protocol.schema import api

API_KEY = 50

SCHEMA = api(
    API_KEY,
    "DescribeUserScramCredentials",
    "0",
    flexible="0+",
    request="""
    Users   []UserName  0+  null
      Name  string      0+
    """,
    response="""
    ThrottleTimeMs     int32                                 0+
    ErrorCode          int16                                 0+
    ErrorMessage       string                                0+  null
    Results            []DescribeUserScramCredentialsResult  0+
      User             string                                0+
      ErrorCode        int16                                 0+
      ErrorMessage     string                                0+  null
      CredentialInfos  []CredentialInfo                      0+
        Mechanism      int8                                  0+
        Iterations     int32                                 0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
