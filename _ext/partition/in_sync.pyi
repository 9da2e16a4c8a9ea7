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

def expansion_of(index: int): ...
def lagging_of(index: int, lag_ms: int): ...
def lagging_slots(lag_ms: int): ...
def wanted_slots(): ...
def wanted_among(indexes): ...
def propose_in_sync(index: int, incarnation, leader_epoch: int, in_sync, broker_epochs=None): ...
def commit_in_sync(index: int, incarnation, leader_epoch: int, serial, in_sync, partition_epoch: int, *, recovering: bool=False): ...
def revert_in_sync(index: int, incarnation, leader_epoch: int, serial): ...
def pending(): ...
def proposal_of(index: int): ...
def in_sync_sets(index: int): ...
