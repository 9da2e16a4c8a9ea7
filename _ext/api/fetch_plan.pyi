from typing import Any
from typing import Final

from odradek._ext.shm.topics import TopicDirectory


class FetchPlan:
    looks: Final[int]

    def __init__(self, topics: TopicDirectory, log_dirs, max_bytes: int, replicas=None) -> None: ...
