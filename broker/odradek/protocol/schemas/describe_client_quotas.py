"""DescribeClientQuotas (48): the client quotas that match a filter."""

from odradek.protocol.schema import api

API_KEY = 48

SCHEMA = api(
    API_KEY,
    "DescribeClientQuotas",
    "0-1",
    flexible="1+",
    request="""
    Components    []ComponentData  0+
      EntityType  string           0+
      MatchType   int8             0+
      Match       string           0+  null
    Strict        bool             0+
    """,
    response="""
    ThrottleTimeMs  int32         0+
    ErrorCode       int16         0+
    ErrorMessage    string        0+  null
    Entries         []EntryData   0+  null
      Entity        []EntityData  0+
        EntityType  string        0+
        EntityName  string        0+  null
      Values        []ValueData   0+
        Key         string        0+
        Value       float64       0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
