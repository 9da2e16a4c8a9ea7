"""WriteTxnMarkers (27): the transaction coordinator makes leaders write commit or abort markers.

2: the version of the transaction protocol.
"""

from odradek.protocol.schema import api

API_KEY = 27

SCHEMA = api(
    API_KEY,
    "WriteTxnMarkers",
    "0-2",
    flexible="1+",
    request="""
    Markers               []WritableTxnMarker       0+
      ProducerId          int64                     0+
      ProducerEpoch       int16                     0+
      TransactionResult   bool                      0+
      Topics              []WritableTxnMarkerTopic  0+
        Name              string                    0+
        PartitionIndexes  []int32                   0+
      CoordinatorEpoch    int32                     0+
      TransactionVersion  int8                      2+  ignorable
    """,
    response="""
    Markers               []WritableTxnMarkerResult           0+
      ProducerId          int64                               0+
      Topics              []WritableTxnMarkerTopicResult      0+
        Name              string                              0+
        Partitions        []WritableTxnMarkerPartitionResult  0+
          PartitionIndex  int32                               0+
          ErrorCode       int16                               0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
