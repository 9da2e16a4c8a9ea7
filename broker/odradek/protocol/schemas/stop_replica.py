"""StopReplica (5): the controller makes brokers stop or delete replicas (ZooKeeper mode, up to Kafka 3.9).

0: a list of partitions. 1 and 2: partitions grouped by topic, and the broker epoch. 0 to 2: one flag to delete all. 3: a leader
epoch and a deletion flag for each partition. 4: whether the controller is a KRaft controller.
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
