"""GetTelemetrySubscriptions (71): the metrics that a client should push (KIP-714)."""

from odradek.protocol.schema import api

API_KEY = 71

SCHEMA = api(
    API_KEY,
    "GetTelemetrySubscriptions",
    "0",
    flexible="0+",
    request="""
    ClientInstanceId  uuid    0+
    """,
    response="""
    ThrottleTimeMs            int32     0+
    ErrorCode                 int16     0+
    ClientInstanceId          uuid      0+
    SubscriptionId            int32     0+
    AcceptedCompressionTypes  []int8    0+
    PushIntervalMs            int32     0+
    TelemetryMaxBytes         int32     0+
    DeltaTemporality          bool      0+
    RequestedMetrics          []string  0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
