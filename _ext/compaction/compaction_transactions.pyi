from typing import TypedDict

from odradek._ext.storage.index_entries import AbortedEntry
from odradek._ext.storage.log_state import Array


class OpenAborted(TypedDict):
    entry: AbortedEntry
    seen: bool

class Transactions(TypedDict):
    aborted: Array
    next: int
    open_aborted: Array
    open_committed: Array
