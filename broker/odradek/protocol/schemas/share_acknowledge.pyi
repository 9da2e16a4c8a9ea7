# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 79
SCHEMA: Final[ApiSchema]

class Request(Message):
    class AcknowledgementBatch(Message):
        first_offset: int
        last_offset: int
        acknowledge_types: list[int]
        def __init__(self, *, first_offset: int = ..., last_offset: int = ..., acknowledge_types: list[int] = ...) -> None: ...
    class AcknowledgePartition(Message):
        partition_index: int
        acknowledgement_batches: list[Request.AcknowledgementBatch]
        def __init__(self, *, partition_index: int = ..., acknowledgement_batches: list[Request.AcknowledgementBatch] = ...) -> None: ...
    class AcknowledgeTopic(Message):
        topic_id: bytes
        partitions: list[Request.AcknowledgePartition]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[Request.AcknowledgePartition] = ...) -> None: ...
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool
    topics: list[Request.AcknowledgeTopic]
    def __init__(self, *, group_id: str | None = ..., member_id: str | None = ..., share_session_epoch: int = ..., is_renew_ack: bool = ..., topics: list[Request.AcknowledgeTopic] = ...) -> None: ...
class Response(Message):
    class LeaderIdAndEpoch(Message):
        leader_id: int
        leader_epoch: int
        def __init__(self, *, leader_id: int = ..., leader_epoch: int = ...) -> None: ...
    class PartitionData(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        current_leader: Response.LeaderIdAndEpoch
        def __init__(self, *, partition_index: int = ..., error_code: int = ..., error_message: str | None = ..., current_leader: Response.LeaderIdAndEpoch = ...) -> None: ...
    class ShareAcknowledgeTopicResponse(Message):
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
    responses: list[Response.ShareAcknowledgeTopicResponse]
    node_endpoints: list[Response.NodeEndpoint]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., acquisition_lock_timeout_ms: int = ..., responses: list[Response.ShareAcknowledgeTopicResponse] = ..., node_endpoints: list[Response.NodeEndpoint] = ...) -> None: ...
