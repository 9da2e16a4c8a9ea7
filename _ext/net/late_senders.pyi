from typing import Any
from odradek._ext.net.data_loop import DataLoop


class LateSenders:
    def __init__(self, data_loop: DataLoop, patience_ms=5000) -> None: ...
    def look(self, now_ms) -> int: ...
