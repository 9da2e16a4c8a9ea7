from typing import Any, Final

from odradek._ext.shm.topics import TopicDirectory


class ColdRead(Exception): ...

class FetchPlan:
    looks: Final[int]

    def __init__(self, topics: TopicDirectory, log_dirs, max_bytes: int, replicas=None): ...

def look_up_cold(jobs: list[Any]): ...
