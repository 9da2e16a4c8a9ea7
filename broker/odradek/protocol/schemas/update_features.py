"""UpdateFeatures (57): changes the finalised versions of features.

1: an upgrade type instead of a flag that allows downgrades, validate_only, and error messages. 2: no results for single
features.
"""

from odradek.protocol.schema import api

API_KEY = 57

SCHEMA = api(
    API_KEY,
    "UpdateFeatures",
    "0-2",
    flexible="0+",
    request="""
    timeoutMs          int32               0+  default=60000
    FeatureUpdates     []FeatureUpdateKey  0+
      Feature          string              0+
      MaxVersionLevel  int16               0+
      AllowDowngrade   bool                0
      UpgradeType      int8                1+  default=1
    ValidateOnly       bool                1+
    """,
    response="""
    ThrottleTimeMs  int32                     0+
    ErrorCode       int16                     0+
    ErrorMessage    string                    0+   null
    Results         []UpdatableFeatureResult  0-1  ignorable
      Feature       string                    0+
      ErrorCode     int16                     0+
      ErrorMessage  string                    0+   null
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
