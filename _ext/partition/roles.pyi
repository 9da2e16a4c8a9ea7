from typing import TypedDict


class Assignment(TypedDict):
    role: int
    leader_id: int
    leader_epoch: int
    partition_epoch: int
    controller_epoch: int
    recovering: int
    adding: int
    removing: int
    replica_count: int
    in_sync_count: int
    replicas: list[int]
    in_sync: list[int]

def become_leader(index: int, incarnation: int, *, leader_id: int, leader_epoch: int, partition_epoch: int, controller_epoch: int, replicas, in_sync, adding=(), removing=(), recovering: bool=False) -> bool: ...
def become_follower(index: int, incarnation: int, *, leader_id: int, leader_epoch: int, partition_epoch: int, controller_epoch: int, replicas, in_sync, adding=(), removing=()) -> bool: ...
def leave_role(index: int, incarnation: int, leader_epoch: int) -> None: ...
def led_slots() -> list[int]: ...
def give_up_leadership(index: int) -> bool: ...
def role_epoch(index: int) -> int: ...
