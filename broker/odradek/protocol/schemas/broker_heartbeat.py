"""BrokerHeartbeat (63): a broker sends a heartbeat to the KRaft controller.

1: failed log directories. 2: cordoned log directories.
"""

from odradek.protocol.schema import api

API_KEY = 63

SCHEMA = api(
    API_KEY,
    "BrokerHeartbeat",
    "0-2",
    flexible="0+",
    request="""
    BrokerId               int32   0+
    BrokerEpoch            int64   0+  default=-1
    CurrentMetadataOffset  int64   0+
    WantFence              bool    0+
    WantShutDown           bool    0+
    OfflineLogDirs         []uuid  1+  tag=0
    CordonedLogDirs        []uuid  2+  null default=null tag=1
    """,
    response="""
    ThrottleTimeMs  int32   0+
    ErrorCode       int16   0+
    IsCaughtUp      bool    0+
    IsFenced        bool    0+  default=true
    ShouldShutDown  bool    0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
