from typing import TypedDict

from odradek._ext.shm.layout import Region, region
from odradek._ext.shm.meter_layout import MeterPage


class Index(TypedDict):
    places: int
    mask: int

class MeterState(TypedDict):
    region: Region
    page: MeterPage
    private_page: MeterPage
    clients: Index
    topics: Index
    usage: Index
    positions: Index
    live_clients: int
    live_topics: int
    live_usage: int
    live_positions: int
    free_client: int
    free_topic: int
    free_usage: int
    free_position: int
    now_ms: int
    fixed_now_ms: int
    idle_ms: int
    next_retire_ms: int
    indexed: bool
    hash_key: list[int]
    owner: int
    owners: int
    clients_of: int
    next_eviction_ms: int
