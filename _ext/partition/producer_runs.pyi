from typing import TypedDict

from odradek._ext.partition.producer_entry import ProducerEntry


class RunHead(TypedDict):
    used: int
    free: int
    open_transactions: int
    hand: int
    open_first: int
    open_last: int
    spare: list[int]

class Run(TypedDict):
    head: RunHead
    entries: ProducerEntry
    cells: int
    capacity: int
    cell_count: int
