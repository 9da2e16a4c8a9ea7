"""AlterUserScramCredentials (51): sets and deletes SCRAM credentials of users."""

from odradek.protocol.schema import api

API_KEY = 51

SCHEMA = api(
    API_KEY,
    "AlterUserScramCredentials",
    "0",
    flexible="0+",
    request="""
    Deletions         []ScramCredentialDeletion   0+
      Name            string                      0+
      Mechanism       int8                        0+
    Upsertions        []ScramCredentialUpsertion  0+
      Name            string                      0+
      Mechanism       int8                        0+
      Iterations      int32                       0+
      Salt            bytes                       0+
      SaltedPassword  bytes                       0+
    """,
    response="""
    ThrottleTimeMs  int32                              0+
    Results         []AlterUserScramCredentialsResult  0+
      User          string                             0+
      ErrorCode     int16                              0+
      ErrorMessage  string                             0+  null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
