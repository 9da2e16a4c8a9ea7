# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 27
SCHEMA: Final[ApiSchema]

class Request(Message):
    class WritableTxnMarkerTopic(Message):
        name: str
        partition_indexes: list[int]
        def __init__(self, *, name: str = ..., partition_indexes: list[int] = ...) -> None: ...
    class WritableTxnMarker(Message):
        producer_id: int
        producer_epoch: int
        transaction_result: bool
        topics: list[Request.WritableTxnMarkerTopic]
        coordinator_epoch: int
        transaction_version: int
        def __init__(self, *, producer_id: int = ..., producer_epoch: int = ..., transaction_result: bool = ..., topics: list[Request.WritableTxnMarkerTopic] = ..., coordinator_epoch: int = ..., transaction_version: int = ...) -> None: ...
    markers: list[Request.WritableTxnMarker]
    def __init__(self, *, markers: list[Request.WritableTxnMarker] = ...) -> None: ...
class Response(Message):
    class WritableTxnMarkerPartitionResult(Message):
        partition_index: int
        error_code: int
        def __init__(self, *, partition_index: int = ..., error_code: int = ...) -> None: ...
    class WritableTxnMarkerTopicResult(Message):
        name: str
        partitions: list[Response.WritableTxnMarkerPartitionResult]
        def __init__(self, *, name: str = ..., partitions: list[Response.WritableTxnMarkerPartitionResult] = ...) -> None: ...
    class WritableTxnMarkerResult(Message):
        producer_id: int
        topics: list[Response.WritableTxnMarkerTopicResult]
        def __init__(self, *, producer_id: int = ..., topics: list[Response.WritableTxnMarkerTopicResult] = ...) -> None: ...
    markers: list[Response.WritableTxnMarkerResult]
    def __init__(self, *, markers: list[Response.WritableTxnMarkerResult] = ...) -> None: ...
