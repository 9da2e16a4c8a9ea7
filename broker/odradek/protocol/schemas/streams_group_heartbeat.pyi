# Made by `make tables` from the schema; do not edit.
from typing import Final

from odradek._ext.protocol.messages import Message
from odradek.protocol.schema import ApiSchema

API_KEY: Final = 88
SCHEMA: Final[ApiSchema]

class Request(Message):
    class KeyValue(Message):
        key: str
        value: str
        def __init__(self, *, key: str = ..., value: str = ...) -> None: ...
    class TopicInfo(Message):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: list[Request.KeyValue]
        def __init__(self, *, name: str = ..., partitions: int = ..., replication_factor: int = ..., topic_configs: list[Request.KeyValue] = ...) -> None: ...
    class CopartitionGroup(Message):
        source_topics: list[int]
        source_topic_regex: list[int]
        repartition_source_topics: list[int]
        def __init__(self, *, source_topics: list[int] = ..., source_topic_regex: list[int] = ..., repartition_source_topics: list[int] = ...) -> None: ...
    class Subtopology(Message):
        subtopology_id: str
        source_topics: list[str]
        source_topic_regex: list[str]
        state_changelog_topics: list[Request.TopicInfo]
        repartition_sink_topics: list[str]
        repartition_source_topics: list[Request.TopicInfo]
        copartition_groups: list[Request.CopartitionGroup]
        def __init__(self, *, subtopology_id: str = ..., source_topics: list[str] = ..., source_topic_regex: list[str] = ..., state_changelog_topics: list[Request.TopicInfo] = ..., repartition_sink_topics: list[str] = ..., repartition_source_topics: list[Request.TopicInfo] = ..., copartition_groups: list[Request.CopartitionGroup] = ...) -> None: ...
    class Topology(Message):
        epoch: int
        subtopologies: list[Request.Subtopology]
        def __init__(self, *, epoch: int = ..., subtopologies: list[Request.Subtopology] = ...) -> None: ...
    class TaskIds(Message):
        subtopology_id: str
        partitions: list[int]
        def __init__(self, *, subtopology_id: str = ..., partitions: list[int] = ...) -> None: ...
    class Endpoint(Message):
        host: str
        port: int
        def __init__(self, *, host: str = ..., port: int = ...) -> None: ...
    class TaskOffset(Message):
        subtopology_id: str
        partition: int
        offset: int
        def __init__(self, *, subtopology_id: str = ..., partition: int = ..., offset: int = ...) -> None: ...
    group_id: str
    member_id: str
    member_epoch: int
    endpoint_information_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topology: Request.Topology | None
    active_tasks: list[Request.TaskIds] | None
    standby_tasks: list[Request.TaskIds] | None
    warmup_tasks: list[Request.TaskIds] | None
    process_id: str | None
    user_endpoint: Request.Endpoint | None
    client_tags: list[Request.KeyValue] | None
    task_offsets: list[Request.TaskOffset] | None
    task_end_offsets: list[Request.TaskOffset] | None
    shutdown_application: bool
    def __init__(self, *, group_id: str = ..., member_id: str = ..., member_epoch: int = ..., endpoint_information_epoch: int = ..., instance_id: str | None = ..., rack_id: str | None = ..., rebalance_timeout_ms: int = ..., topology: Request.Topology | None = ..., active_tasks: list[Request.TaskIds] | None = ..., standby_tasks: list[Request.TaskIds] | None = ..., warmup_tasks: list[Request.TaskIds] | None = ..., process_id: str | None = ..., user_endpoint: Request.Endpoint | None = ..., client_tags: list[Request.KeyValue] | None = ..., task_offsets: list[Request.TaskOffset] | None = ..., task_end_offsets: list[Request.TaskOffset] | None = ..., shutdown_application: bool = ...) -> None: ...
class Response(Message):
    class Status(Message):
        status_code: int
        status_detail: str
        def __init__(self, *, status_code: int = ..., status_detail: str = ...) -> None: ...
    class TaskIds(Message):
        subtopology_id: str
        partitions: list[int]
        def __init__(self, *, subtopology_id: str = ..., partitions: list[int] = ...) -> None: ...
    class Endpoint(Message):
        host: str
        port: int
        def __init__(self, *, host: str = ..., port: int = ...) -> None: ...
    class TopicPartition(Message):
        topic: str
        partitions: list[int]
        def __init__(self, *, topic: str = ..., partitions: list[int] = ...) -> None: ...
    class EndpointToPartitions(Message):
        user_endpoint: Response.Endpoint
        active_partitions: list[Response.TopicPartition]
        standby_partitions: list[Response.TopicPartition]
        def __init__(self, *, user_endpoint: Response.Endpoint = ..., active_partitions: list[Response.TopicPartition] = ..., standby_partitions: list[Response.TopicPartition] = ...) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    acceptable_recovery_lag: int
    task_offset_interval_ms: int
    status: list[Response.Status] | None
    active_tasks: list[Response.TaskIds] | None
    standby_tasks: list[Response.TaskIds] | None
    warmup_tasks: list[Response.TaskIds] | None
    endpoint_information_epoch: int
    partitions_by_user_endpoint: list[Response.EndpointToPartitions] | None
    def __init__(self, *, throttle_time_ms: int = ..., error_code: int = ..., error_message: str | None = ..., member_id: str = ..., member_epoch: int = ..., heartbeat_interval_ms: int = ..., acceptable_recovery_lag: int = ..., task_offset_interval_ms: int = ..., status: list[Response.Status] | None = ..., active_tasks: list[Response.TaskIds] | None = ..., standby_tasks: list[Response.TaskIds] | None = ..., warmup_tasks: list[Response.TaskIds] | None = ..., endpoint_information_epoch: int = ..., partitions_by_user_endpoint: list[Response.EndpointToPartitions] | None = ...) -> None: ...
