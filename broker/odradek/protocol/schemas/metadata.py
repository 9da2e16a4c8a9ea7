"""Metadata (3): the brokers, and the partitions of topics with leaders, replicas and in-sync replicas.

Topics in the request: in 0 an empty list means all topics; from 1 on null means all, and an empty list none. 1: racks,
controller, internal topics. 2: cluster id. 4: whether missing topics are created. 5: offline replicas. 7: leader epochs. 8:
authorised operations; removed for the cluster in 11. 10: topic ids in the response. 12: requests by topic id, with a null
name. 13: top-level error code.
"""

from odradek.protocol.schema import api

API_KEY = 3

SCHEMA = api(
    API_KEY,
    "Metadata",
    "0-13",
    flexible="9+",
    request="""
    Topics                              []MetadataRequestTopic  0+    null=1+
      TopicId                           uuid                    10+   ignorable
      Name                              string                  0+    null=10+
    AllowAutoTopicCreation              bool                    4+    default=true
    IncludeClusterAuthorizedOperations  bool                    8-10
    IncludeTopicAuthorizedOperations    bool                    8+
    """,
    response="""
    ThrottleTimeMs               int32                        3+    ignorable
    Brokers                      []MetadataResponseBroker     0+
      NodeId                     int32                        0+
      Host                       string                       0+
      Port                       int32                        0+
      Rack                       string                       1+    null default=null ignorable
    ClusterId                    string                       2+    null default=null ignorable
    ControllerId                 int32                        1+    default=-1 ignorable
    Topics                       []MetadataResponseTopic      0+
      ErrorCode                  int16                        0+
      Name                       string                       0+    null=12+
      TopicId                    uuid                         10+   ignorable
      IsInternal                 bool                         1+    ignorable
      Partitions                 []MetadataResponsePartition  0+
        ErrorCode                int16                        0+
        PartitionIndex           int32                        0+
        LeaderId                 int32                        0+
        LeaderEpoch              int32                        7+    default=-1 ignorable
        ReplicaNodes             []int32                      0+
        IsrNodes                 []int32                      0+
        OfflineReplicas          []int32                      5+    ignorable
      TopicAuthorizedOperations  int32                        8+    default=-2147483648
    ClusterAuthorizedOperations  int32                        8-10  default=-2147483648
    ErrorCode                    int16                        13+   ignorable
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
