"""UpdateRaftVoter (82): a voter sends its endpoints and versions to the leader of the quorum."""

from odradek.protocol.schema import api

API_KEY = 82

SCHEMA = api(
    API_KEY,
    "UpdateRaftVoter",
    "0",
    flexible="0+",
    request="""
    ClusterId              string               0+  null
    CurrentLeaderEpoch     int32                0+
    VoterId                int32                0+
    VoterDirectoryId       uuid                 0+
    Listeners              []Listener           0+
      Name                 string               0+
      Host                 string               0+
      Port                 uint16               0+
    KRaftVersionFeature    KRaftVersionFeature  0+
      MinSupportedVersion  int16                0+
      MaxSupportedVersion  int16                0+
    """,
    response="""
    ThrottleTimeMs  int32          0+
    ErrorCode       int16          0+
    CurrentLeader   CurrentLeader  0+  tag=0
      LeaderId      int32          0+  default=-1
      LeaderEpoch   int32          0+  default=-1
      Host          string         0+
      Port          int32          0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
