from typing import TypedDict

from odradek._ext.storage.log_state import LoadedProducer


class RestorePlan(TypedDict):
    items: LoadedProducer
    count: int
    first: int
    wall_less_monotonic: int
