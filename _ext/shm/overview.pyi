from typing import NamedTuple

from _typeshed import Incomplete

from odradek._ext.shm.topics import Topic


class Partition(NamedTuple):
    partition: int
    slot: int
    incarnation: int
    generation: int
    state: int
    leads: bool
    log_dir: int
    leader_id: int
    preferred_id: int
    replicas: int
    in_sync: int
    min_in_sync: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    segment_base: int
    segment_bytes: int
    follows: bool
    lag: int

class ReplicaCounts(NamedTuple):
    led: int
    followed: int
    under_replicated: int
    under_min_in_sync: int
    at_min_in_sync: int
    offline: int
    no_leader: int
    not_preferred: int
    reassigning: int
    unfetched: int
    lost_tail: int
    lost_tail_led: int
    under_replicated_ms: int
    pending_ms: int

def partitions_of(topic: Topic) -> list[Partition]: ...
def replica_counts() -> ReplicaCounts: ...
def settings_of(topic: Topic) -> tuple[int, int, int] | None: ...
def sample_ends(incarnations: Incomplete, ends: Incomplete) -> list[int]: ...
def unstable() -> list[tuple[int, int, int]]: ...
def lock_counts() -> tuple[int, int]: ...
