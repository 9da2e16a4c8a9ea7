from typing import Any
import logging
from typing import Final

from odradek._ext.net.connection import Connection
from odradek._ext.net.data_loop import DataLoop

LOG = logging.getLogger('odradek.connections')

class KeptMemory:
    budget: Final[int]
    kept: Final[int]
    dropped: Final[int]
    closed: Final[int]

    def __init__(self, loop: DataLoop, budget: int) -> None: ...
    def look(self, now_ms: int) -> int: ...

def idle_since(c: Connection) -> int: ...
def progress(c: Connection) -> tuple[int, int]: ...
def kept_bytes(c: Connection) -> int: ...
