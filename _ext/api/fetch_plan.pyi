import logging
from typing import Any, Final

from odradek._ext.shm.topics import TopicDirectory

LOG = logging.getLogger('odradek.requests')

class ColdRead(Exception): ...

class FetchPlan:
    looks: Final[int]
    notes: Final[int]

    def __init__(self, topics: TopicDirectory, log_dirs, max_bytes: int, replicas=None): ...

def look_up_cold(jobs: list[Any]): ...
