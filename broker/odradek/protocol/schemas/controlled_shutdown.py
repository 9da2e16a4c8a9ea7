"""ControlledShutdown (7): a broker that stops requests that its leaderships are moved (ZooKeeper mode, up to Kafka 3.9).

0: the only request whose header has no client id. 2: broker epoch.
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
