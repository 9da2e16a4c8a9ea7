"""ApiVersions (18): what a broker can speak; the first request of most clients.

The response has the old header in every version, so that it can be read before anything is agreed. A request of a
version that is not known gets a response v0 with UNSUPPORTED_VERSION. 3: the client's software, and the cluster's
features in tagged fields. 4: a feature's least version may be 0 (before, such features were left out).
"""

from odradek.protocol.schema import api

API_KEY = 18

SCHEMA = api(
    API_KEY,
    "ApiVersions",
    "0-4",
    flexible="3+",
    request="""
    ClientSoftwareName     string  3+  ignorable
    ClientSoftwareVersion  string  3+  ignorable
    """,
    response="""
    ErrorCode               int16                  0+
    ApiKeys                 []ApiVersion           0+
      ApiKey                int16                  0+
      MinVersion            int16                  0+
      MaxVersion            int16                  0+
    ThrottleTimeMs          int32                  1+  ignorable
    SupportedFeatures       []SupportedFeatureKey  3+  tag=0 ignorable
      Name                  string                 3+
      MinVersion            int16                  3+
      MaxVersion            int16                  3+
    FinalizedFeaturesEpoch  int64                  3+  default=-1 tag=1 ignorable
    FinalizedFeatures       []FinalizedFeatureKey  3+  tag=2 ignorable
      Name                  string                 3+
      MaxVersionLevel       int16                  3+
      MinVersionLevel       int16                  3+
    ZkMigrationReady        bool                   3+  tag=3 ignorable
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
