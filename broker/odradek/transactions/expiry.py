"""Removes expired transactional ids: first writes their tombstones, then removes the ids from memory.

Runs in the loop of the coordinator process.
"""

from __future__ import annotations

import logging
from collections import deque

from odradek.coordination.environment import Timers
from odradek.protocol.errors import ErrorCode
from odradek.transactions.environment import NOT_WRITTEN, Counts, Settings
from odradek.transactions.records import is_idle, key_of, times_of
from odradek.transactions.shards import NONE, Shard, Shards
from odradek.transactions.states import DEAD
from odradek.transactions.transaction import expired

log = logging.getLogger("odradek.transactions")


class Expiry:
    """Writes the tombstones of expired ids. Each shard has at most one such append under way."""

    def __init__(self, timers: Timers, settings: Settings, shards: Shards, counts: Counts) -> None:
        self._timers = timers
        self._settings = settings
        self._shards = shards
        self._counts = counts
        self._failed: dict[int, ErrorCode] = {}  # by partition, of the tombstones of the last run

    @property
    def failures(self) -> dict[str, str]:
        """The partitions that could not write the tombstones of the last run, and why."""
        led = {shard.partition for shard in self._shards.loaded_shards()}
        return {
            f"__transaction_state-{partition}": f"cannot write the tombstones of expired transactional ids: {error.name}"
            for partition, error in self._failed.items()
            if partition in led
        }

    def run(self) -> int:
        """Begin to remove all expired ids; return their number. Skips shards whose last tombstones are not acknowledged."""
        count = 0
        now_ms = self._timers.wall_ms()
        for shard in self._shards.loaded_shards():
            if not shard.expiring:
                self._failed.pop(shard.partition, None)
                names = deque(name for name in (*shard.idle, *shard.active) if self._expired(shard, name, now_ms))
                count += len(names)
                self._write(shard, names)
        return count

    def _expired(self, shard: Shard, name: str, now_ms: int) -> bool:
        value = shard.idle.get(name)
        if value is not None:
            return is_idle(value) and times_of(value)[0] <= now_ms - self._settings.id_expiration_ms
        transaction = shard.active.get(name)
        return (
            transaction is not None
            and transaction.pending is None
            and expired(transaction.facts, now_ms, self._settings.id_expiration_ms)
        )

    def _write(self, shard: Shard, names: deque[str]) -> None:
        """Append the tombstones of the first ids in `names`. When they are acknowledged, append those of the next ids. An id
        that has been used since it was collected is not removed."""
        if shard.closed:
            return
        batch: dict[str, bytes] = {}
        size, now_ms = 0, self._timers.wall_ms()
        while names and len(batch) < self._settings.tombstones_at_once and size < self._settings.tombstone_bytes:
            name = names.popleft()
            if self._expired(shard, name, now_ms):
                batch[name] = key_of(name)
                size += len(batch[name])
        if not batch:
            return
        shard.expiring = frozenset(batch)
        for name in batch:
            transaction = shard.active.get(name)
            if transaction is not None:
                transaction.pending = DEAD

        def appended(error: ErrorCode) -> None:
            if not shard.closed:
                self._appended(shard, names, error)

        shard.log.append([(key, None) for key in batch.values()], appended)

    def _appended(self, shard: Shard, names: deque[str], error: ErrorCode) -> None:
        batch, shard.expiring = shard.expiring, frozenset()
        if error is not NONE:
            self._failed[shard.partition] = error
            log.warning(
                "__transaction_state-%d: cannot write the tombstones of %d expired transactional ids: %s; retrying at the "
                "next expiration",
                shard.partition, len(batch) + len(names), error.name,
            )  # fmt: skip
            if error not in NOT_WRITTEN:
                self._shards.diverge(shard)
                return
        for name in batch:
            transaction = shard.active.get(name)
            if error is NONE:
                shard.idle.pop(name, None)
                shard.active.pop(name, None)
            if transaction is not None:
                transaction.settle()
        if error is NONE:
            self._counts.expired += len(batch)
            self._write(shard, names)
