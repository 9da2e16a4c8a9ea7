"""RemoveRaftVoter (81): removes a voter from the metadata quorum."""

from odradek.protocol.schema import api

API_KEY = 81

SCHEMA = api(
    API_KEY,
    "RemoveRaftVoter",
    "0",
    flexible="0+",
    request="""
    ClusterId         string  0+  null
    VoterId           int32   0+
    VoterDirectoryId  uuid    0+
    """,
    response="""
    ThrottleTimeMs  int32   0+
    ErrorCode       int16   0+
    ErrorMessage    string  0+  null ignorable
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
