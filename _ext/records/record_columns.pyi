from typing import Any
import re

from odradek._ext.records.record_printing import RecordPrinter

SURROGATE = re.compile(b'\\xed[\\xa0-\\xbf][\\x80-\\xbf]?')

class RecordColumns(RecordPrinter):
    def __init__(self) -> None: ...
    def set_partition(self, topic: str, partition: int) -> Any: ...
    def take(self) -> tuple[list[bytes | None], list[bytes | None], list[int], list[int], list[int], list[list[tuple[str, bytes | None]] | None]]: ...
