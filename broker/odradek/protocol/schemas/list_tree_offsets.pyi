# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 20102
SCHEMA: Final[ApiSchema]

class Request(Message):
    group_ids: list[str] | None
    def __init__(self, *, group_ids: list[str] | None = ...) -> None: ...
class Response(Message):
    class Partition(Message):
        partition_index: int
        committed_offset: int
        def __init__(self, *, partition_index: int = ..., committed_offset: int = ...) -> None: ...
    class Topic(Message):
        name: str
        partitions: list[Response.Partition]
        def __init__(self, *, name: str = ..., partitions: list[Response.Partition] = ...) -> None: ...
    class Group(Message):
        group_id: str
        topics: list[Response.Topic]
        def __init__(self, *, group_id: str = ..., topics: list[Response.Topic] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    groups: list[Response.Group]
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., groups: list[Response.Group] = ...) -> None: ...
