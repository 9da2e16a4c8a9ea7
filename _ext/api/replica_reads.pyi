from typing import Any
import logging
from typing import Final

LOG = logging.getLogger('odradek.requests')

class ReadErrors:
    def __init__(self) -> None: ...

class ReplicaReads:
    notes: Final[int]

    def __init__(self, replicas, errors: ReadErrors) -> None: ...
