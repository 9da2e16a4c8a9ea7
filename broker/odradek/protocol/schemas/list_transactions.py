"""ListTransactions (66): the transactions that a broker coordinates.

1: filter by duration. 2: filter by a pattern of transactional ids.
"""

from odradek.protocol.schema import api

API_KEY = 66

SCHEMA = api(
    API_KEY,
    "ListTransactions",
    "0-2",
    flexible="0+",
    request="""
    StateFilters            []string  0+
    ProducerIdFilters       []int64   0+
    DurationFilter          int64     1+  default=-1
    TransactionalIdPattern  string    2+  null default=null
    """,
    response="""
    ThrottleTimeMs       int32               0+
    ErrorCode            int16               0+
    UnknownStateFilters  []string            0+
    TransactionStates    []TransactionState  0+
      TransactionalId    string              0+
      ProducerId         int64               0+
      TransactionState   string              0+
    """,
)
Request, Response = SCHEMA.request, SCHEMA.response
