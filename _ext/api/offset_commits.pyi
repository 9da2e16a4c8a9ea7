from collections.abc import Iterator
from typing import Any, Final, TypedDict

from odradek._ext.protocol.decoder import MAX_ELEMENTS
from odradek._ext.records.batch_builder import BatchBuilder
from odradek._ext.shm.topics import TopicDirectory


class CommittedOffset:
    offset: Final[int]
    commit_timestamp_ms: Final[int]
    expire_timestamp_ms: Final[int]
    metadata: Final[str]
    leader_epoch: Final[int]

    def __init__(self, offset: int, leader_epoch: int=-1, metadata: str='', commit_timestamp_ms: int=0, expire_timestamp_ms: int=...) -> None: ...
    def fields(self) -> tuple[int, int, str, int, int]: ...
    def __eq__(self, other) -> bool: ...
    def __hash__(self) -> int: ...
    def __repr__(self) -> str: ...

class OffsetCommit:
    version: Final[int]
    correlation_id: Final[int]
    generation_id: Final[int]
    group_id: Final[str]
    member_id: Final[str]
    instance_id: Final[str]
    transactional_id: Final[str]
    producer_id: Final[int]
    producer_epoch: Final[int]
    expire_timestamp_ms: Final[int]
    topics: Final[list[Any]]
    known: Final[int]
    metadata_size: Final[int]
    failed: Final[bool]

    def __init__(self) -> None: ...
    ...
    @property
    def knows_epochs(self) -> bool: ...
    @property
    def size(self) -> int: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[tuple[bytes, bytes]]: ...
    def items(self) -> list[tuple[tuple[str, int], CommittedOffset]]: ...
    def put_into(self, offsets: dict[Any, Any]) -> None: ...
    def response(self, outcome: int) -> bytes: ...

class Entry(TypedDict):
    offset: int
    timestamp: int
    note: int
    note_bytes: int
    partition: int
    leader_epoch: int
    error: int

class Section(TypedDict):
    name: int
    name_bytes: int
    first: int
    count: int

def partition_for(group_id: str, partitions: int) -> int: ...
def join(queue: list[Any], builder: BatchBuilder, most_records: int, most_bytes: int, timestamp: int) -> int: ...
def is_long(records) -> bool: ...
def in_steps(records, builder: BatchBuilder, timestamp: int, most_bytes: int, step: int=...) -> Iterator[None]: ...
def read(frame: bytes, topics: TopicDirectory, longest_note: int, now_ms: int, max_elements: int=MAX_ELEMENTS) -> OffsetCommit | None: ...
def read_transactional(frame: bytes, topics: TopicDirectory, longest_note: int, now_ms: int, max_elements: int=MAX_ELEMENTS) -> OffsetCommit | None: ...
