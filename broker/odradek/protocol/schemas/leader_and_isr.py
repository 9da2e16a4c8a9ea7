"""LeaderAndIsr (4): the controller makes brokers leaders and followers of partitions (ZooKeeper mode, up to Kafka 3.9).

1: whether a partition is new. 2: broker epoch, and partitions grouped by topic. 3: replicas that are being added and
removed. 5: topic ids, and whether the list is complete; the response is grouped by topic. 6: recovery state of the
leader. 7: whether the controller is a KRaft controller.
"""

from odradek.protocol.schema import api

API_KEY = 4

SCHEMA = api(
    API_KEY,
    "LeaderAndIsr",
    "0-7",
    flexible="4+",
    request="""
    ControllerId                       int32                         0+
    isKRaftController                  bool                          7+
    ControllerEpoch                    int32                         0+
    BrokerEpoch                        int64                         2+   default=-1 ignorable
    Type                               int8                          5+
    UngroupedPartitionStates           []LeaderAndIsrPartitionState  0-1
    TopicStates                        []LeaderAndIsrTopicState      2+
      TopicName                        string                        2+
      TopicId                          uuid                          5+   ignorable
      PartitionStates                  []LeaderAndIsrPartitionState  2+
    LiveLeaders                        []LeaderAndIsrLiveLeader      0+
      BrokerId                         int32                         0+
      HostName                         string                        0+
      Port                             int32                         0+
    struct LeaderAndIsrPartitionState 0+
      TopicName                        string                        0-1  ignorable
      PartitionIndex                   int32                         0+
      ControllerEpoch                  int32                         0+
      Leader                           int32                         0+
      LeaderEpoch                      int32                         0+
      Isr                              []int32                       0+
      PartitionEpoch                   int32                         0+
      Replicas                         []int32                       0+
      AddingReplicas                   []int32                       3+   ignorable
      RemovingReplicas                 []int32                       3+   ignorable
      IsNew                            bool                          1+   ignorable
      LeaderRecoveryState              int8                          6+
    """,
    response="""
    ErrorCode                          int16                         0+
    PartitionErrors                    []LeaderAndIsrPartitionError  0-4
    Topics                             []LeaderAndIsrTopicError      5+
      TopicId                          uuid                          5+
      PartitionErrors                  []LeaderAndIsrPartitionError  5+
    struct LeaderAndIsrPartitionError 0+
      TopicName                        string                        0-4  ignorable
      PartitionIndex                   int32                         0+
      ErrorCode                        int16                         0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
