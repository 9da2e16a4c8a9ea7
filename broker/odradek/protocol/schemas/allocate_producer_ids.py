"""AllocateProducerIds (67): a broker requests a block of producer ids from the controller."""

from odradek.protocol.schema import api

API_KEY = 67

SCHEMA = api(
    API_KEY,
    "AllocateProducerIds",
    "0",
    flexible="0+",
    request="""
    BrokerId     int32   0+
    BrokerEpoch  int64   0+  default=-1
    """,
    response="""
    ThrottleTimeMs   int32   0+
    ErrorCode        int16   0+
    ProducerIdStart  int64   0+
    ProducerIdLen    int32   0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
