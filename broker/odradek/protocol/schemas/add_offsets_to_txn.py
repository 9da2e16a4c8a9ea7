"""AddOffsetsToTxn (25): adds the offsets of a group to a transaction.

2: PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH. 4: TRANSACTION_ABORTABLE is possible.
"""

from odradek.protocol.schema import api

API_KEY = 25

SCHEMA = api(
    API_KEY,
    "AddOffsetsToTxn",
    "0-4",
    flexible="3+",
    request="""
    TransactionalId  string  0+
    ProducerId       int64   0+
    ProducerEpoch    int16   0+
    GroupId          string  0+
    """,
    response="""
    ThrottleTimeMs  int32   0+
    ErrorCode       int16   0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
