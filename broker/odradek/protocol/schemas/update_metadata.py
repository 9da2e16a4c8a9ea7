"""UpdateMetadata (6): the controller sends all partitions and live brokers to a broker (ZooKeeper mode, up to Kafka 3.9).

0: one host and port per broker. 1: endpoints by security protocol. 2: racks. 3: listener names. 4: offline replicas. 5: broker
epoch, and partitions grouped by topic. 7: topic ids. 8: whether the controller is a KRaft controller, and whether the list is
complete.
"""

from odradek.protocol.schema import api

API_KEY = 6

SCHEMA = api(
    API_KEY,
    "UpdateMetadata",
    "0-8",
    flexible="6+",
    request="""
    ControllerId                         int32                           0+
    isKRaftController                    bool                            8+
    Type                                 int8                            8+   tag=0
    ControllerEpoch                      int32                           0+
    BrokerEpoch                          int64                           5+   default=-1 ignorable
    UngroupedPartitionStates             []UpdateMetadataPartitionState  0-4
    TopicStates                          []UpdateMetadataTopicState      5+
      TopicName                          string                          5+
      TopicId                            uuid                            7+   ignorable
      PartitionStates                    []UpdateMetadataPartitionState  5+
    LiveBrokers                          []UpdateMetadataBroker          0+
      Id                                 int32                           0+
      V0Host                             string                          0    ignorable
      V0Port                             int32                           0    ignorable
      Endpoints                          []UpdateMetadataEndpoint        1+   ignorable
        Port                             int32                           1+
        Host                             string                          1+
        Listener                         string                          3+   ignorable
        SecurityProtocol                 int16                           1+
      Rack                               string                          2+   null ignorable
    struct UpdateMetadataPartitionState 0+
      TopicName                          string                          0-4  ignorable
      PartitionIndex                     int32                           0+
      ControllerEpoch                    int32                           0+
      Leader                             int32                           0+
      LeaderEpoch                        int32                           0+
      Isr                                []int32                         0+
      ZkVersion                          int32                           0+
      Replicas                           []int32                         0+
      OfflineReplicas                    []int32                         4+   ignorable
    """,
    response="""
    ErrorCode  int16   0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
