"""ControlledShutdown (7): a broker that will stop has its leaders moved away (ZooKeeper era, up to Kafka 3.9).

0 alone among all requests has a header without client id. 2: the broker's epoch.
"""

from odradek.protocol.schema import api

API_KEY = 7

SCHEMA = api(
    API_KEY,
    "ControlledShutdown",
    "0-3",
    flexible="3+",
    request="""
    BrokerId     int32   0+
    BrokerEpoch  int64   2+  default=-1 ignorable
    """,
    response="""
    ErrorCode            int16                 0+
    RemainingPartitions  []RemainingPartition  0+
      TopicName          string                0+
      PartitionIndex     int32                 0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
