# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 20103
SCHEMA: Final[ApiSchema]

class Request(Message):
    topic_name: str
    partition_index: int
    def __init__(self, *, topic_name: str = ..., partition_index: int = ...) -> None: ...
class Response(Message):
    class FailingTask(Message):
        task: str
        reason: str
        since_ms: int
        def __init__(self, *, task: str = ..., reason: str = ..., since_ms: int = ...) -> None: ...
    class Follower(Message):
        broker_id: int
        alive: bool
        broker_epoch: int
        log_end_offset: int
        log_start_offset: int
        fetched_ms_ago: int
        caught_up_ms_ago: int
        def __init__(self, *, broker_id: int = ..., alive: bool = ..., broker_epoch: int = ..., log_end_offset: int = ..., log_start_offset: int = ..., fetched_ms_ago: int = ..., caught_up_ms_ago: int = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    broker_id: int
    state: str
    role: str
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    controller_epoch: int
    leader_epoch_start: int
    recovering: bool
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    min_in_sync_replicas: int
    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    in_sync_replicas: list[int]
    maximal_in_sync: list[int]
    in_sync_state: str
    in_sync_ms: int
    fetch_error: int
    lost_tail: str
    lost_tail_bytes: int
    lost_tail_end: int
    failing_tasks: list[Response.FailingTask]
    published_leader: int
    published_epoch: int
    published_in_sync: list[int]
    followers: list[Response.Follower]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., broker_id: int = ..., state: str = ..., role: str = ..., leader_id: int = ..., leader_epoch: int = ..., partition_epoch: int = ..., controller_epoch: int = ..., leader_epoch_start: int = ..., recovering: bool = ..., log_start_offset: int = ..., log_end_offset: int = ..., high_watermark: int = ..., min_in_sync_replicas: int = ..., replicas: list[int] = ..., adding_replicas: list[int] = ..., removing_replicas: list[int] = ..., in_sync_replicas: list[int] = ..., maximal_in_sync: list[int] = ..., in_sync_state: str = ..., in_sync_ms: int = ..., fetch_error: int = ..., lost_tail: str = ..., lost_tail_bytes: int = ..., lost_tail_end: int = ..., failing_tasks: list[Response.FailingTask] = ..., published_leader: int = ..., published_epoch: int = ..., published_in_sync: list[int] = ..., followers: list[Response.Follower] = ...) -> None: ...
