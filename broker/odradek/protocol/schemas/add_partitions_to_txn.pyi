# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 24
SCHEMA: Final[ApiSchema]

class Request(Message):
    class AddPartitionsToTxnTopic(Message):
        name: str
        partitions: list[int]
        def __init__(self, *, name: str = ..., partitions: list[int] = ...) -> None: ...
    class AddPartitionsToTxnTransaction(Message):
        transactional_id: str
        producer_id: int
        producer_epoch: int
        verify_only: bool
        topics: list[Request.AddPartitionsToTxnTopic]
        def __init__(self, *, transactional_id: str = ..., producer_id: int = ..., producer_epoch: int = ..., verify_only: bool = ..., topics: list[Request.AddPartitionsToTxnTopic] = ...) -> None: ...
    transactions: list[Request.AddPartitionsToTxnTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: list[Request.AddPartitionsToTxnTopic]
    def __init__(self, *, transactions: list[Request.AddPartitionsToTxnTransaction] = ..., v3_and_below_transactional_id: str = ..., v3_and_below_producer_id: int = ..., v3_and_below_producer_epoch: int = ..., v3_and_below_topics: list[Request.AddPartitionsToTxnTopic] = ...) -> None: ...
class Response(Message):
    class AddPartitionsToTxnPartitionResult(Message):
        partition_index: int
        partition_error_code: int
        def __init__(self, *, partition_index: int = ..., partition_error_code: int = ...) -> None: ...
    class AddPartitionsToTxnTopicResult(Message):
        name: str
        results_by_partition: list[Response.AddPartitionsToTxnPartitionResult]
        def __init__(self, *, name: str = ..., results_by_partition: list[Response.AddPartitionsToTxnPartitionResult] = ...) -> None: ...
    class AddPartitionsToTxnResult(Message):
        transactional_id: str
        topic_results: list[Response.AddPartitionsToTxnTopicResult]
        def __init__(self, *, transactional_id: str = ..., topic_results: list[Response.AddPartitionsToTxnTopicResult] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    results_by_transaction: list[Response.AddPartitionsToTxnResult]
    results_by_topic_v3_and_below: list[Response.AddPartitionsToTxnTopicResult]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., results_by_transaction: list[Response.AddPartitionsToTxnResult] = ..., results_by_topic_v3_and_below: list[Response.AddPartitionsToTxnTopicResult] = ...) -> None: ...
