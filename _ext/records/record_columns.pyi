from typing import Any
import re

from odradek._ext.records.record_printing import RecordPrinter

SURROGATE = re.compile(b'\\xed[\\xa0-\\xbf][\\x80-\\xbf]?')

class RecordColumns(RecordPrinter):
    def __init__(self): ...
    def set_partition(self, topic: str, partition: int) -> Any: ...
    def take(self): ...
