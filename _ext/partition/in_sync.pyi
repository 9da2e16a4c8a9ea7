from typing import NamedTuple, TypedDict


class Proposal(NamedTuple):
    slot: int
    incarnation: int
    leader_epoch: int
    partition_epoch: int
    in_sync: list[int]
    broker_epochs: list[int]
    serial: int
    since_ms: int

class Members(TypedDict):
    count: int
    ids: list[int]
    broker_epochs: list[int]

class Found(TypedDict):
    incarnation: int
    leader_epoch: int
    partition_epoch: int
    serial: int
    since_ms: int
    members: Members
    broker_epochs: list[int]

def expansion_of(index: int) -> Proposal | None: ...
def lagging_of(index: int, lag_ms: int) -> Proposal | None: ...
def lagging_slots(lag_ms: int) -> list[int]: ...
def wanted_slots() -> list[int]: ...
def wanted_among(indexes) -> list[int]: ...
def propose_in_sync(index: int, incarnation, leader_epoch: int, in_sync, broker_epochs=None) -> int: ...
def commit_in_sync(index: int, incarnation, leader_epoch: int, serial, in_sync, partition_epoch: int, *, recovering: bool=False) -> bool: ...
def revert_in_sync(index: int, incarnation, leader_epoch: int, serial) -> bool: ...
def pending() -> list[tuple[int, int]]: ...
def proposal_of(index: int) -> Proposal | None: ...
def in_sync_sets(index: int) -> tuple[list[int], list[int]]: ...
