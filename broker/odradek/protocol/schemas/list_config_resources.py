"""ListConfigResources (74): the resources that have a configuration.

0: client metrics only (then named ListClientMetricsResources). 1: the requested types.
"""

from odradek.protocol.schema import api

API_KEY = 74

SCHEMA = api(
    API_KEY,
    "ListConfigResources",
    "0-1",
    flexible="0+",
    request="""
    ResourceTypes  []int8  1+
    """,
    response="""
    ThrottleTimeMs   int32             0+
    ErrorCode        int16             0+
    ConfigResources  []ConfigResource  0+
      ResourceName   string            0+
      ResourceType   int8              1+  default=16 ignorable
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
