from typing import TypedDict


class PartitionView(TypedDict):
    offline: int
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    replica_count: int
    in_sync_count: int
    replicas: list[int]
    in_sync: list[int]
