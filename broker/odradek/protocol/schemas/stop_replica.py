"""StopReplica (5): the controller has brokers stop, or delete, replicas (ZooKeeper era, up to Kafka 3.9).

0 names partitions one by one, 1 and 2 group them by topic and have the broker's epoch; in all three one flag deletes
all. 3: a leader epoch and a flag for each partition. 4: whether the controller is KRaft.
"""

from odradek.protocol.schema import api

API_KEY = 5

SCHEMA = api(
    API_KEY,
    "StopReplica",
    "0-4",
    flexible="2+",
    request="""
    ControllerId         int32                        0+
    isKRaftController    bool                         4+
    ControllerEpoch      int32                        0+
    BrokerEpoch          int64                        1+   default=-1 ignorable
    DeletePartitions     bool                         0-2
    UngroupedPartitions  []StopReplicaPartitionV0     0
      TopicName          string                       0
      PartitionIndex     int32                        0
    Topics               []StopReplicaTopicV1         1-2
      Name               string                       1-2
      PartitionIndexes   []int32                      1-2
    TopicStates          []StopReplicaTopicState      3+
      TopicName          string                       3+
      PartitionStates    []StopReplicaPartitionState  3+
        PartitionIndex   int32                        3+
        LeaderEpoch      int32                        3+   default=-1
        DeletePartition  bool                         3+
    """,
    response="""
    ErrorCode         int16                        0+
    PartitionErrors   []StopReplicaPartitionError  0+
      TopicName       string                       0+
      PartitionIndex  int32                        0+
      ErrorCode       int16                        0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
