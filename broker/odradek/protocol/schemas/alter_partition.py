"""AlterPartition (56): a leader requests a change of the in-sync replicas from the controller.

1: recovery state of the leader. 2: topic ids instead of names. 3: in-sync replicas with the epochs of their brokers.
"""

from odradek.protocol.schema import api

API_KEY = 56

SCHEMA = api(
    API_KEY,
    "AlterPartition",
    "0-3",
    flexible="0+",
    request="""
    BrokerId                 int32            0+
    BrokerEpoch              int64            0+   default=-1
    Topics                   []TopicData      0+
      TopicName              string           0-1  ignorable
      TopicId                uuid             2+   ignorable
      Partitions             []PartitionData  0+
        PartitionIndex       int32            0+
        LeaderEpoch          int32            0+
        NewIsr               []int32          0-2
        NewIsrWithEpochs     []BrokerState    3+
          BrokerId           int32            3+
          BrokerEpoch        int64            3+   default=-1
        LeaderRecoveryState  int8             1+
        PartitionEpoch       int32            0+
    """,
    response="""
    ThrottleTimeMs           int32            0+
    ErrorCode                int16            0+
    Topics                   []TopicData      0+
      TopicName              string           0-1  ignorable
      TopicId                uuid             2+   ignorable
      Partitions             []PartitionData  0+
        PartitionIndex       int32            0+
        ErrorCode            int16            0+
        LeaderId             int32            0+
        LeaderEpoch          int32            0+
        Isr                  []int32          0+
        LeaderRecoveryState  int8             1+   ignorable
        PartitionEpoch       int32            0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
