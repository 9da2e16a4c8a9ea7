"""DescribeCluster (60): the brokers or the controllers of the cluster, and its id.

1: the requested endpoint type (1 brokers, 2 controllers; KIP-919). 2: fenced brokers on request.
"""

from odradek.protocol.schema import api

API_KEY = 60

SCHEMA = api(
    API_KEY,
    "DescribeCluster",
    "0-2",
    flexible="0+",
    request="""
    IncludeClusterAuthorizedOperations  bool    0+
    EndpointType                        int8    1+  default=1
    IncludeFencedBrokers                bool    2+
    """,
    response="""
    ThrottleTimeMs               int32                    0+
    ErrorCode                    int16                    0+
    ErrorMessage                 string                   0+  null default=null
    EndpointType                 int8                     1+  default=1
    ClusterId                    string                   0+
    ControllerId                 int32                    0+  default=-1
    Brokers                      []DescribeClusterBroker  0+
      BrokerId                   int32                    0+
      Host                       string                   0+
      Port                       int32                    0+
      Rack                       string                   0+  null default=null
      IsFenced                   bool                     2+
    ClusterAuthorizedOperations  int32                    0+  default=-2147483648
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
