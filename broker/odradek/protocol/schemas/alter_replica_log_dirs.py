"""AlterReplicaLogDirs (34): moves replicas between the log directories of a broker."""

from odradek.protocol.schema import api

API_KEY = 34

SCHEMA = api(
    API_KEY,
    "AlterReplicaLogDirs",
    "0-2",
    flexible="2+",
    request="""
    Dirs            []AlterReplicaLogDir       0+
      Path          string                     0+
      Topics        []AlterReplicaLogDirTopic  0+
        Name        string                     0+
        Partitions  []int32                    0+
    """,
    response="""
    ThrottleTimeMs      int32                                0+
    Results             []AlterReplicaLogDirTopicResult      0+
      TopicName         string                               0+
      Partitions        []AlterReplicaLogDirPartitionResult  0+
        PartitionIndex  int32                                0+
        ErrorCode       int16                                0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
