from typing import Any, Final, TypedDict

from _typeshed import Incomplete


class Topic:
    name: Final[str]
    name_bytes: Final[bytes]
    topic_id: Final[bytes]
    internal: Final[bool]
    count: Final[int]

    def __init__(self, name: str, topic_id: bytes, internal: bool): ...
    def __dealloc__(self): ...
    def slot(self, partition: int): ...
    def partitions(self): ...
    def describe(self, partition: int): ...

class TopicDirectory:
    by_name: Final[dict[Any, Any]]
    by_id: Final[dict[Any, Any]]
    version: Final[int]

    def __init__(self): ...
    def __dealloc__(self): ...
    def get(self, name: str): ...
    def refresh(self) -> bool: ...

class SlotTopic(TypedDict):
    topic: Incomplete
    partition: int
    incarnation: int
