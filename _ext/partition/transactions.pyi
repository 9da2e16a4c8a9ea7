from typing import TypedDict


class TransactionEnd(TypedDict):
    producer_id: int
    coordinator_epoch: int
    producer_epoch: int
    commits: int
    transaction_version: int
    first_offset: int
    error: int
    offset: int
