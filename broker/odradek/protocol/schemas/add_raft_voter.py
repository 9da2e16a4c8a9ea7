"""AddRaftVoter (80): adds a voter to the metadata quorum.

1: whether the response waits until the change is committed.
"""

from odradek.protocol.schema import api

API_KEY = 80

SCHEMA = api(
    API_KEY,
    "AddRaftVoter",
    "0-1",
    flexible="0+",
    request="""
    ClusterId         string      0+  null
    TimeoutMs         int32       0+
    VoterId           int32       0+
    VoterDirectoryId  uuid        0+
    Listeners         []Listener  0+
      Name            string      0+
      Host            string      0+
      Port            uint16      0+
    AckWhenCommitted  bool        1+  default=true
    """,
    response="""
    ThrottleTimeMs  int32   0+
    ErrorCode       int16   0+
    ErrorMessage    string  0+  null ignorable
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
