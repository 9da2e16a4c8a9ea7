# Made by `make tables` from the schema; do not edit.
from typing import Any, Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 1
SCHEMA: Final[ApiSchema]

class Request(Message):
    class ReplicaState(Message):
        replica_id: int
        replica_epoch: int
        def __init__(self, *, replica_id: int = ..., replica_epoch: int = ...) -> None: ...
    class FetchPartition(Message):
        partition: int
        current_leader_epoch: int
        fetch_offset: int
        last_fetched_epoch: int
        log_start_offset: int
        partition_max_bytes: int
        replica_directory_id: bytes
        high_watermark: int
        def __init__(self, *, partition: int = ..., current_leader_epoch: int = ..., fetch_offset: int = ..., last_fetched_epoch: int = ..., log_start_offset: int = ..., partition_max_bytes: int = ..., replica_directory_id: bytes = ..., high_watermark: int = ...) -> None: ...
    class FetchTopic(Message):
        topic: str
        topic_id: bytes
        partitions: list[Request.FetchPartition]
        def __init__(self, *, topic: str = ..., topic_id: bytes = ..., partitions: list[Request.FetchPartition] = ...) -> None: ...
    class ForgottenTopic(Message):
        topic: str
        topic_id: bytes
        partitions: list[int]
        def __init__(self, *, topic: str = ..., topic_id: bytes = ..., partitions: list[int] = ...) -> None: ...
    cluster_id: str | None
    replica_id: int
    replica_state: Request.ReplicaState
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[Request.FetchTopic]
    forgotten_topics_data: list[Request.ForgottenTopic]
    rack_id: str
    def __init__(self, *, cluster_id: str | None = ..., replica_id: int = ..., replica_state: Request.ReplicaState = ..., max_wait_ms: int = ..., min_bytes: int = ..., max_bytes: int = ..., isolation_level: int = ..., session_id: int = ..., session_epoch: int = ..., topics: list[Request.FetchTopic] = ..., forgotten_topics_data: list[Request.ForgottenTopic] = ..., rack_id: str = ...) -> None: ...
class Response(Message):
    class EpochEndOffset(Message):
        epoch: int
        end_offset: int
        def __init__(self, *, epoch: int = ..., end_offset: int = ...) -> None: ...
    class LeaderIdAndEpoch(Message):
        leader_id: int
        leader_epoch: int
        def __init__(self, *, leader_id: int = ..., leader_epoch: int = ...) -> None: ...
    class SnapshotId(Message):
        end_offset: int
        epoch: int
        def __init__(self, *, end_offset: int = ..., epoch: int = ...) -> None: ...
    class AbortedTransaction(Message):
        producer_id: int
        first_offset: int
        def __init__(self, *, producer_id: int = ..., first_offset: int = ...) -> None: ...
    class PartitionData(Message):
        partition_index: int
        error_code: int
        high_watermark: int
        last_stable_offset: int
        log_start_offset: int
        diverging_epoch: Response.EpochEndOffset
        current_leader: Response.LeaderIdAndEpoch
        snapshot_id: Response.SnapshotId
        aborted_transactions: list[Response.AbortedTransaction] | None
        preferred_read_replica: int
        records: Any
        def __init__(self, *, partition_index: int = ..., error_code: int = ..., high_watermark: int = ..., last_stable_offset: int = ..., log_start_offset: int = ..., diverging_epoch: Response.EpochEndOffset = ..., current_leader: Response.LeaderIdAndEpoch = ..., snapshot_id: Response.SnapshotId = ..., aborted_transactions: list[Response.AbortedTransaction] | None = ..., preferred_read_replica: int = ..., records: Any = ...) -> None: ...
    class FetchableTopicResponse(Message):
        topic: str
        topic_id: bytes
        partitions: list[Response.PartitionData]
        def __init__(self, *, topic: str = ..., topic_id: bytes = ..., partitions: list[Response.PartitionData] = ...) -> None: ...
    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        def __init__(self, *, node_id: int = ..., host: str = ..., port: int = ..., rack: str | None = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: list[Response.FetchableTopicResponse]
    node_endpoints: list[Response.NodeEndpoint]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., session_id: int = ..., responses: list[Response.FetchableTopicResponse] = ..., node_endpoints: list[Response.NodeEndpoint] = ...) -> None: ...
