# Made by `make tables` from the schema; do not edit.
from typing import Any, Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 78
SCHEMA: Final[ApiSchema]

class Request(Message):
    class AcknowledgementBatch(Message):
        first_offset: int
        last_offset: int
        acknowledge_types: list[int]
        def __init__(self, *, first_offset: int = ..., last_offset: int = ..., acknowledge_types: list[int] = ...) -> None: ...
    class FetchPartition(Message):
        partition_index: int
        partition_max_bytes: int
        acknowledgement_batches: list[Request.AcknowledgementBatch]
        def __init__(self, *, partition_index: int = ..., partition_max_bytes: int = ..., acknowledgement_batches: list[Request.AcknowledgementBatch] = ...) -> None: ...
    class FetchTopic(Message):
        topic_id: bytes
        partitions: list[Request.FetchPartition]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[Request.FetchPartition] = ...) -> None: ...
    class ForgottenTopic(Message):
        topic_id: bytes
        partitions: list[int]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[int] = ...) -> None: ...
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    share_acquire_mode: int
    is_renew_ack: bool
    topics: list[Request.FetchTopic]
    forgotten_topics_data: list[Request.ForgottenTopic]
    def __init__(self, *, group_id: str | None = ..., member_id: str | None = ..., share_session_epoch: int = ..., max_wait_ms: int = ..., min_bytes: int = ..., max_bytes: int = ..., max_records: int = ..., batch_size: int = ..., share_acquire_mode: int = ..., is_renew_ack: bool = ..., topics: list[Request.FetchTopic] = ..., forgotten_topics_data: list[Request.ForgottenTopic] = ...) -> None: ...
class Response(Message):
    class LeaderIdAndEpoch(Message):
        leader_id: int
        leader_epoch: int
        def __init__(self, *, leader_id: int = ..., leader_epoch: int = ...) -> None: ...
    class AcquiredRecords(Message):
        first_offset: int
        last_offset: int
        delivery_count: int
        def __init__(self, *, first_offset: int = ..., last_offset: int = ..., delivery_count: int = ...) -> None: ...
    class PartitionData(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        acknowledge_error_code: int
        acknowledge_error_message: str | None
        current_leader: Response.LeaderIdAndEpoch
        records: Any
        acquired_records: list[Response.AcquiredRecords]
        def __init__(self, *, partition_index: int = ..., error_code: int = ..., error_message: str | None = ..., acknowledge_error_code: int = ..., acknowledge_error_message: str | None = ..., current_leader: Response.LeaderIdAndEpoch = ..., records: Any = ..., acquired_records: list[Response.AcquiredRecords] = ...) -> None: ...
    class ShareFetchableTopicResponse(Message):
        topic_id: bytes
        partitions: list[Response.PartitionData]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[Response.PartitionData] = ...) -> None: ...
    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(self, *, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: list[Response.ShareFetchableTopicResponse]
    node_endpoints: list[Response.NodeEndpoint]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., acquisition_lock_timeout_ms: int = ..., responses: list[Response.ShareFetchableTopicResponse] = ..., node_endpoints: list[Response.NodeEndpoint] = ...) -> None: ...
