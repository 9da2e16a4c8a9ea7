"""CreateTopics (19): creates topics; the broker or the request assigns the replicas.

1: validate_only, and error messages. 2: throttle time. 4: number of partitions and replication factor can be -1 for the
defaults of the broker. 5: the response describes the created topics with their configuration (KIP-525). 6:
THROTTLING_QUOTA_EXCEEDED is possible. 7: topic ids.
"""

from odradek.protocol.schema import api

API_KEY = 19

SCHEMA = api(
    API_KEY,
    "CreateTopics",
    "0-7",
    flexible="5+",
    request="""
    Topics               []CreatableTopic              0+
      Name               string                        0+
      NumPartitions      int32                         0+
      ReplicationFactor  int16                         0+
      Assignments        []CreatableReplicaAssignment  0+
        PartitionIndex   int32                         0+
        BrokerIds        []int32                       0+
      Configs            []CreatableTopicConfig        0+
        Name             string                        0+
        Value            string                        0+  null
    timeoutMs            int32                         0+  default=60000
    validateOnly         bool                          1+
    """,
    response="""
    ThrottleTimeMs          int32                    2+  ignorable
    Topics                  []CreatableTopicResult   0+
      Name                  string                   0+
      TopicId               uuid                     7+  ignorable
      ErrorCode             int16                    0+
      ErrorMessage          string                   1+  null ignorable
      TopicConfigErrorCode  int16                    5+  tag=0 ignorable
      NumPartitions         int32                    5+  default=-1 ignorable
      ReplicationFactor     int16                    5+  default=-1 ignorable
      Configs               []CreatableTopicConfigs  5+  null ignorable
        Name                string                   5+
        Value               string                   5+  null
        ReadOnly            bool                     5+
        ConfigSource        int8                     5+  default=-1 ignorable
        IsSensitive         bool                     5+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
