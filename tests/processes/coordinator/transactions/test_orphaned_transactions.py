"""The search for transactions that no coordinator will end: what it aborts, what it leaves alone, and when it tries again."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import odradek._ext.partition.slots as slots
import odradek.processes.coordinator.transactions.orphaned_transactions as module
from odradek.coordination.environment import EndMarker
from odradek.processes.coordinator.transactions.orphaned_transactions import (
    Orphan,
    OrphanedTransactions,
    Scan,
)
from odradek.protocol.errors import ErrorCode
from odradek.transactions.environment import Owner

NONE = ErrorCode.NONE
ORPHAN = Orphan("orders", 0, 7, 2, 5, 10)


class World:
    """Partitions, markers and transactional ids; each round of the search takes the first of `scans`, `owners` and `codes`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scans: list[Scan] = []
        self.owners: list[dict[int, Owner] | None] = []
        self.codes: list[ErrorCode] = []
        self.written: list[tuple[str, int, EndMarker]] = []
        self.waits: list[float] = []
        monkeypatch.setattr(module, "scan", lambda: self.scans.pop(0))

    def put(self, topic: str, partition: int, marker: EndMarker, then: Callable[[ErrorCode], None]) -> None:
        self.written.append((topic, partition, marker))
        then(self.codes.pop(0))

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def run(self) -> None:
        with ThreadPoolExecutor(1) as reader:
            search = OrphanedTransactions(lambda: self.owners.pop(0), self, reader, self.sleep)
            asyncio.run(search.end_all())
        assert not self.scans and not self.owners and not self.codes


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


MARKER = EndMarker(7, 2, 5, False, 0, first_offset=10)


def test_the_marker_names_the_transaction_that_was_seen(world: World) -> None:
    world.scans, world.owners, world.codes = [Scan([ORPHAN], 0)], [{}], [NONE]
    world.run()
    assert world.written == [("orders", 0, MARKER)]
    assert world.waits == []


def test_nothing_is_aborted_while_transactional_ids_are_loaded_again(world: World) -> None:
    owner = Owner("id", 7, 2, "Ongoing", (("orders", 0),))
    world.scans, world.owners = [Scan([ORPHAN], 0)] * 2, [None, {7: owner}]
    world.run()
    assert world.written == []
    assert world.waits == [1.0]


def test_each_attempt_reads_partitions_and_owners_again(world: World) -> None:
    """A transaction that the producer begins after a failed attempt is not aborted."""
    owner = Owner("id", 7, 2, "Ongoing", (("orders", 0),))
    begun = ORPHAN._replace(first_offset=20)
    world.scans = [Scan([ORPHAN], 0), Scan([begun], 0)]
    world.owners, world.codes = [{}, {7: owner}], [ErrorCode.NOT_ENOUGH_REPLICAS]
    world.run()
    assert world.written == [("orders", 0, MARKER)]


def test_partitions_that_cannot_be_read_are_read_later_at_longer_intervals(world: World) -> None:
    world.scans = [Scan([], 2)] * 8 + [Scan([ORPHAN], 0)]
    world.owners, world.codes = [{}] * 9, [NONE]
    world.run()
    assert world.written == [("orders", 0, MARKER)]
    assert world.waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_partition_whose_lock_is_not_released_is_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def transactions_of(slot: int) -> list[dict[str, int]]:
        if slot == 4:
            raise slots.SlotBusy("the lock was not released")
        return [{"producer_id": 7, "epoch": 2, "coordinator_epoch": -1, "first_offset": 10}]

    monkeypatch.setattr(slots, "not_online", list)
    monkeypatch.setattr(slots, "in_use", lambda: [("bills", 0, 4), ("orders", 0, 5)])
    monkeypatch.setattr(slots, "leadership", lambda slot: (1, 0))
    monkeypatch.setattr(slots, "transactions_of", transactions_of)
    assert module.scan() == Scan([ORPHAN._replace(coordinator_epoch=0)], 1)


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_transaction_that_has_ended_meanwhile_is_left_alone(world: World, code: ErrorCode) -> None:
    world.scans, world.owners, world.codes = [Scan([ORPHAN], 0)], [{}], [code]
    world.run()
    assert world.waits == []
