from typing import Any
from typing import TypedDict

from typing_extensions import TypeAlias

FetchEventKind: TypeAlias = int
DeviceWait: TypeAlias = int

class FetchedPartitions:
    ...
    def add(self, slot: int, incarnation: int, leader_epoch: int, topic: str, topic_id: bytes, partition: int) -> int: ...
    def drop(self, place: int) -> None: ...
    def activate(self, place: int, from_offset: int=-1) -> bool: ...
    def deactivate(self, place: int) -> None: ...
    def take_events(self) -> list[tuple[int, int, int, int]]: ...
    @property
    def max_lag(self) -> int: ...

class FetchEvent(TypedDict):
    place: int
    kind: int
    first: int
    second: int

class FetchedTopic(TypedDict):
    topic_id: list[int]
    first: int
    id_next: int
    name_next: int
    to_send: int
    name_bytes: int
    name: list[int]

class FetchedPartition(TypedDict):
    slot: int
    incarnation: int
    leader_epoch: int
    partition: int
    topic: int
    next: int
    hash_next: int
    used: int
    active: int
    dropped: int
    in_session: int
    sent: int
    throttled: int
    member: int
    held: int
    device: int
    last_epoch: int
    fetch_offset: int
    log_start_offset: int
    fetch_from: int
    leader_high_watermark: int
