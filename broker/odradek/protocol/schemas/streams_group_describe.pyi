# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 89
SCHEMA: Final[ApiSchema]

class Request(Message):
    group_ids: list[str]
    include_authorized_operations: bool
    def __init__(self, *, group_ids: list[str] = ..., include_authorized_operations: bool = ...) -> None: ...
class Response(Message):
    class KeyValue(Message):
        key: str
        value: str
        def __init__(self, *, key: str = ..., value: str = ...) -> None: ...
    class TopicInfo(Message):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: list[Response.KeyValue]
        def __init__(self, *, name: str = ..., partitions: int = ..., replication_factor: int = ..., topic_configs: list[Response.KeyValue] = ...) -> None: ...
    class Subtopology(Message):
        subtopology_id: str
        source_topics: list[str]
        repartition_sink_topics: list[str]
        state_changelog_topics: list[Response.TopicInfo]
        repartition_source_topics: list[Response.TopicInfo]
        def __init__(self, *, subtopology_id: str = ..., source_topics: list[str] = ..., repartition_sink_topics: list[str] = ..., state_changelog_topics: list[Response.TopicInfo] = ..., repartition_source_topics: list[Response.TopicInfo] = ...) -> None: ...
    class Topology(Message):
        epoch: int
        subtopologies: list[Response.Subtopology] | None
        def __init__(self, *, epoch: int = ..., subtopologies: list[Response.Subtopology] | None = ...) -> None: ...
    class Endpoint(Message):
        host: str
        port: int
        def __init__(self, *, host: str = ..., port: int = ...) -> None: ...
    class TaskOffset(Message):
        subtopology_id: str
        partition: int
        offset: int
        def __init__(self, *, subtopology_id: str = ..., partition: int = ..., offset: int = ...) -> None: ...
    class TaskIds(Message):
        subtopology_id: str
        partitions: list[int]
        def __init__(self, *, subtopology_id: str = ..., partitions: list[int] = ...) -> None: ...
    class Assignment(Message):
        active_tasks: list[Response.TaskIds]
        standby_tasks: list[Response.TaskIds]
        warmup_tasks: list[Response.TaskIds]
        def __init__(self, *, active_tasks: list[Response.TaskIds] = ..., standby_tasks: list[Response.TaskIds] = ..., warmup_tasks: list[Response.TaskIds] = ...) -> None: ...
    class Member(Message):
        member_id: str
        member_epoch: int
        instance_id: str | None
        rack_id: str | None
        client_id: str
        client_host: str
        topology_epoch: int
        process_id: str
        user_endpoint: Response.Endpoint | None
        client_tags: list[Response.KeyValue]
        task_offsets: list[Response.TaskOffset]
        task_end_offsets: list[Response.TaskOffset]
        assignment: Response.Assignment
        target_assignment: Response.Assignment
        is_classic: bool
        def __init__(self, *, member_id: str = ..., member_epoch: int = ..., instance_id: str | None = ..., rack_id: str | None = ..., client_id: str = ..., client_host: str = ..., topology_epoch: int = ..., process_id: str = ..., user_endpoint: Response.Endpoint | None = ..., client_tags: list[Response.KeyValue] = ..., task_offsets: list[Response.TaskOffset] = ..., task_end_offsets: list[Response.TaskOffset] = ..., assignment: Response.Assignment = ..., target_assignment: Response.Assignment = ..., is_classic: bool = ...) -> None: ...
    class DescribedGroup(Message):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        topology: Response.Topology | None
        members: list[Response.Member]
        authorized_operations: int
        def __init__(self, *, error_code: int = ..., error_message: str | None = ..., group_id: str = ..., group_state: str = ..., group_epoch: int = ..., assignment_epoch: int = ..., topology: Response.Topology | None = ..., members: list[Response.Member] = ..., authorized_operations: int = ...) -> None: ...
    throttle_time_ms: int
    groups: list[Response.DescribedGroup]
    def __init__(self, *, throttle_time_ms: int = ..., groups: list[Response.DescribedGroup] = ...) -> None: ...
