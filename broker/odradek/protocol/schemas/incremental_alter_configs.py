"""IncrementalAlterConfigs (44): sets, deletes, appends to or subtracts from single values of configurations."""

from odradek.protocol.schema import api

API_KEY = 44

SCHEMA = api(
    API_KEY,
    "IncrementalAlterConfigs",
    "0-1",
    flexible="1+",
    request="""
    Resources            []AlterConfigsResource  0+
      ResourceType       int8                    0+
      ResourceName       string                  0+
      Configs            []AlterableConfig       0+
        Name             string                  0+
        ConfigOperation  int8                    0+
        Value            string                  0+  null
    ValidateOnly         bool                    0+
    """,
    response="""
    ThrottleTimeMs  int32                           0+
    Responses       []AlterConfigsResourceResponse  0+
      ErrorCode     int16                           0+
      ErrorMessage  string                          0+  null
      ResourceType  int8                            0+
      ResourceName  string                          0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
