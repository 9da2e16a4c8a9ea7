"""AssignReplicasToDirs (73): a broker reports the log directories of its replicas to the controller."""

from odradek.protocol.schema import api

API_KEY = 73

SCHEMA = api(
    API_KEY,
    "AssignReplicasToDirs",
    "0",
    flexible="0+",
    request="""
    BrokerId              int32            0+
    BrokerEpoch           int64            0+  default=-1
    Directories           []DirectoryData  0+
      Id                  uuid             0+
      Topics              []TopicData      0+
        TopicId           uuid             0+
        Partitions        []PartitionData  0+
          PartitionIndex  int32            0+
    """,
    response="""
    ThrottleTimeMs        int32            0+
    ErrorCode             int16            0+
    Directories           []DirectoryData  0+
      Id                  uuid             0+
      Topics              []TopicData      0+
        TopicId           uuid             0+
        Partitions        []PartitionData  0+
          PartitionIndex  int32            0+
          ErrorCode       int16            0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
