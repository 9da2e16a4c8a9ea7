"""BrokerRegistration (62): a broker registers with the KRaft controller.

1: whether the broker migrates from ZooKeeper. 2: log directories. 3: previous broker epoch. 4: the minimum version of a
feature can be 0.
"""

from odradek.protocol.schema import api

API_KEY = 62

SCHEMA = api(
    API_KEY,
    "BrokerRegistration",
    "0-4",
    flexible="0+",
    request="""
    BrokerId               int32       0+
    ClusterId              string      0+
    IncarnationId          uuid        0+
    Listeners              []Listener  0+
      Name                 string      0+
      Host                 string      0+
      Port                 uint16      0+
      SecurityProtocol     int16       0+
    Features               []Feature   0+
      Name                 string      0+
      MinSupportedVersion  int16       0+
      MaxSupportedVersion  int16       0+
    Rack                   string      0+  null
    IsMigratingZkBroker    bool        1+
    LogDirs                []uuid      2+  ignorable
    PreviousBrokerEpoch    int64       3+  default=-1 ignorable
    """,
    response="""
    ThrottleTimeMs  int32   0+
    ErrorCode       int16   0+
    BrokerEpoch     int64   0+  default=-1
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
