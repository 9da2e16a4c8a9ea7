from typing import Any
from typing import TypedDict

from odradek._ext.compaction.batch_reader import BatchReader
from odradek._ext.compaction.compaction_log import CompactedLog
from odradek._ext.compaction.compaction_map import KeyMap
from odradek._ext.shm.faults import *


class SegmentRewriter:
    def __init__(self, log: CompactedLog, reader: BatchReader, keys: KeyMap, compress, reduce_old) -> None: ...
    ...

class Verdict(TypedDict):
    discard: bool
    keep_empty: bool
    starts_horizon: bool

class Span(TypedDict):
    start: int
    end: int

class Sifted(TypedDict):
    kept: int
    tombstones: bool
    max_timestamp: int
