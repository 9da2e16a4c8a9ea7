"""AlterConfigs (33): replaces the whole configuration of resources; IncrementalAlterConfigs changes single keys."""

from odradek.protocol.schema import api

API_KEY = 33

SCHEMA = api(
    API_KEY,
    "AlterConfigs",
    "0-2",
    flexible="2+",
    request="""
    Resources       []AlterConfigsResource  0+
      ResourceType  int8                    0+
      ResourceName  string                  0+
      Configs       []AlterableConfig       0+
        Name        string                  0+
        Value       string                  0+  null
    ValidateOnly    bool                    0+
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
