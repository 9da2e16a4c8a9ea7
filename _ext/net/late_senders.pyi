from typing import Any
from odradek._ext.net.open_connections import OpenConnections


class LateSenders:
    def __init__(self, connections: OpenConnections, patience_ms=5000) -> None: ...
    def look(self, now_ms) -> int: ...
