from typing import Any
import logging
from typing import Final

from odradek._ext.net.connection import Connection
from odradek._ext.net.open_connections import OpenConnections

LOG = logging.getLogger('odradek.connections')

class KeptMemory:
    budget: Final[int]
    kept: Final[int]
    dropped: Final[int]
    closed: Final[int]

    def __init__(self, connections: OpenConnections, budget: int) -> None: ...
    def look(self, now_ms: int) -> int: ...

def idle_since(c: Connection) -> int: ...
def progress(c: Connection) -> tuple[int, int]: ...
def kept_bytes(c: Connection) -> int: ...
