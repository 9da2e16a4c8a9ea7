"""ControllerRegistration (70): a controller registers with the leader of the KRaft quorum."""

from odradek.protocol.schema import api

API_KEY = 70

SCHEMA = api(
    API_KEY,
    "ControllerRegistration",
    "0",
    flexible="0+",
    request="""
    ControllerId           int32       0+
    IncarnationId          uuid        0+
    ZkMigrationReady       bool        0+
    Listeners              []Listener  0+
      Name                 string      0+
      Host                 string      0+
      Port                 uint16      0+
      SecurityProtocol     int16       0+
    Features               []Feature   0+
      Name                 string      0+
      MinSupportedVersion  int16       0+
      MaxSupportedVersion  int16       0+
    """,
    response="""
    ThrottleTimeMs  int32   0+
    ErrorCode       int16   0+
    ErrorMessage    string  0+  null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
