"""InitProducerId (22): assigns an id and epoch to a producer, and fences older producers with the same transactional id.

3: a producer sends its id and epoch to increment the epoch (KIP-360). 4: PRODUCER_FENCED instead of
INVALID_PRODUCER_EPOCH. 5: TRANSACTION_ABORTABLE is possible. 6, not yet released by Kafka: two-phase commit (KIP-939).
"""

from odradek.protocol.schema import api

API_KEY = 22

SCHEMA = api(
    API_KEY,
    "InitProducerId",
    "0-6",
    flexible="2+",
    request="""
    TransactionalId       string  0+  null
    TransactionTimeoutMs  int32   0+
    ProducerId            int64   3+  default=-1
    ProducerEpoch         int16   3+  default=-1
    Enable2Pc             bool    6+
    KeepPreparedTxn       bool    6+
    """,
    response="""
    ThrottleTimeMs           int32   0+  ignorable
    ErrorCode                int16   0+
    ProducerId               int64   0+  default=-1
    ProducerEpoch            int16   0+
    OngoingTxnProducerId     int64   6+  default=-1
    OngoingTxnProducerEpoch  int16   6+  default=-1
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
