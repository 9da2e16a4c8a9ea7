"""AlterClientQuotas (49): changes client quotas."""

from odradek.protocol.schema import api

API_KEY = 49

SCHEMA = api(
    API_KEY,
    "AlterClientQuotas",
    "0-1",
    flexible="1+",
    request="""
    Entries         []EntryData   0+
      Entity        []EntityData  0+
        EntityType  string        0+
        EntityName  string        0+  null
      Ops           []OpData      0+
        Key         string        0+
        Value       float64       0+
        Remove      bool          0+
    ValidateOnly    bool          0+
    """,
    response="""
    ThrottleTimeMs  int32         0+
    Entries         []EntryData   0+
      ErrorCode     int16         0+
      ErrorMessage  string        0+  null
      Entity        []EntityData  0+
        EntityType  string        0+
        EntityName  string        0+  null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
