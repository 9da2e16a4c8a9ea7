import logging
from typing import Final

LOG = logging.getLogger('odradek.requests')

class ReadErrors:
    def __init__(self): ...

class ReplicaReads:
    notes: Final[int]

    def __init__(self, replicas, errors: ReadErrors): ...
