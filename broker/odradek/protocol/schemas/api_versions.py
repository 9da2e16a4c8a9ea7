"""ApiVersions (18): the APIs and versions that a broker serves; the first request of most clients.

The response has header version 0 in every version, so that clients can decode it before they know the broker's versions.
A request with an unknown version gets a response v0 with UNSUPPORTED_VERSION. 3: the name and version of the client
software, and the features of the cluster in tagged fields. 4: the minimum version of a feature can be 0 (earlier versions
omit such features).
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
