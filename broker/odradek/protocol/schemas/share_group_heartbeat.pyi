# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 76
SCHEMA: Final[ApiSchema]

class Request(Message):
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: list[str] | None
    def __init__(self, *, group_id: str = ..., member_id: str = ..., member_epoch: int = ..., rack_id: str | None = ..., subscribed_topic_names: list[str] | None = ...) -> None: ...
class Response(Message):
    class TopicPartitions(Message):
        topic_id: bytes
        partitions: list[int]
        def __init__(self, *, topic_id: bytes = ..., partitions: list[int] = ...) -> None: ...
    class Assignment(Message):
        topic_partitions: list[Response.TopicPartitions]
        def __init__(self, *, topic_partitions: list[Response.TopicPartitions] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Response.Assignment | None
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., member_id: str | None = ..., member_epoch: int = ..., heartbeat_interval_ms: int = ..., assignment: Response.Assignment | None = ...) -> None: ...
