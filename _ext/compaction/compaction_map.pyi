from typing import Any
from odradek._ext.compaction.batch_reader import BatchReader
from odradek._ext.compaction.compaction_log import CompactedLog


class KeyMap:
    def __init__(self, log: CompactedLog, reader: BatchReader, map_bytes: int, load_factor: float) -> None: ...
    ...
