from typing import NamedTuple


class View(NamedTuple):
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]

def publish_view(index: int, *, leader_id: int, leader_epoch: int, partition_epoch: int, replicas, in_sync, offline=()) -> None: ...
def view_of(index: int) -> View: ...
