"""EndTxn (26): commits or aborts a transaction.

2: PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH. 4: TRANSACTION_ABORTABLE is possible. 5: every transaction
increments the producer epoch, and the response contains it (KIP-890).
"""

from odradek.protocol.schema import api

API_KEY = 26

SCHEMA = api(
    API_KEY,
    "EndTxn",
    "0-5",
    flexible="3+",
    request="""
    TransactionalId  string  0+
    ProducerId       int64   0+
    ProducerEpoch    int16   0+
    Committed        bool    0+
    """,
    response="""
    ThrottleTimeMs  int32   0+
    ErrorCode       int16   0+
    ProducerId      int64   5+  default=-1 ignorable
    ProducerEpoch   int16   5+  default=-1 ignorable
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
