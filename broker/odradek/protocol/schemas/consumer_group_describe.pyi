# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 69
SCHEMA: Final[ApiSchema]

class Request(Message):
    group_ids: list[str]
    include_authorized_operations: bool
    def __init__(self, *, group_ids: list[str] = ..., include_authorized_operations: bool = ...) -> None: ...
class Response(Message):
    class TopicPartitions(Message):
        topic_id: bytes
        topic_name: str
        partitions: list[int]
        def __init__(self, *, topic_id: bytes = ..., topic_name: str = ..., partitions: list[int] = ...) -> None: ...
    class Assignment(Message):
        topic_partitions: list[Response.TopicPartitions]
        def __init__(self, *, topic_partitions: list[Response.TopicPartitions] = ...) -> None: ...
    class Member(Message):
        member_id: str
        instance_id: str | None
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: list[str]
        subscribed_topic_regex: str | None
        assignment: Response.Assignment
        target_assignment: Response.Assignment
        member_type: int
        def __init__(self, *, member_id: str = ..., instance_id: str | None = ..., rack_id: str | None = ..., member_epoch: int = ..., client_id: str = ..., client_host: str = ..., subscribed_topic_names: list[str] = ..., subscribed_topic_regex: str | None = ..., assignment: Response.Assignment = ..., target_assignment: Response.Assignment = ..., member_type: int = ...) -> None: ...
    class DescribedGroup(Message):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: list[Response.Member]
        authorized_operations: int
        def __init__(self, *, error_code: int = ..., error_message: str | None = ..., group_id: str = ..., group_state: str = ..., group_epoch: int = ..., assignment_epoch: int = ..., assignor_name: str = ..., members: list[Response.Member] = ..., authorized_operations: int = ...) -> None: ...
    throttle_time_ms: int
    groups: list[Response.DescribedGroup]
    def __init__(self, *, throttle_time_ms: int = ..., groups: list[Response.DescribedGroup] = ...) -> None: ...
