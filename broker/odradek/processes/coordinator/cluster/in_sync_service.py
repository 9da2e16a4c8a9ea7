"""Keeps the in-sync replicas of the partitions that this broker leads: connects `InSyncKeeper` with the slots, the replicas
thread and the connection to the controller.

`start`, `wake` and `request_executed` may be called in the coordinator's event loop; everything else happens in the replicas
thread, which owns the keeper.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

import odradek._ext.partition.in_sync as native
import odradek._ext.partition.slots as slots
import odradek._ext.shm.brokers as brokers
from odradek._ext.partition.slots import SlotBusy, SlotChanged
from odradek._ext.shm.metering import count
from odradek._ext.shm.views import view_of
from odradek.config.broker_config import BrokerConfig
from odradek.processes.coordinator.cluster.controller_channel import ControllerChannel
from odradek.protocol.schemas import alter_partition
from odradek.replication.in_sync import InSyncKeeper, Proposal, View

log = logging.getLogger("odradek.replication")

InReplicas = Callable[..., Any]
"""(function, arguments): calls the function in the replicas thread, soon."""


class SlotVerbs:
    """The operations of `odradek.replication.in_sync.Verbs` on the slots of the shared table."""

    def expansion_of(self, slot: int) -> Proposal | None:
        """See `Verbs`."""
        return _proposal(native.expansion_of(slot))

    def lagging_of(self, slot: int, lag_ms: int) -> Proposal | None:
        """See `Verbs`."""
        return _proposal(native.lagging_of(slot, lag_ms))

    def lagging_slots(self, lag_ms: int) -> list[int]:
        """See `Verbs`."""
        return list(native.lagging_slots(lag_ms))

    def pending(self) -> list[int]:
        """See `Verbs`."""
        return [slot for slot, _ in native.pending()]

    def under_way(self, slot: int) -> tuple[int, Proposal] | None:
        """See `Verbs`."""
        found = native.proposal_of(slot)
        proposal = _proposal(found)
        return None if found is None or proposal is None else (found.serial, proposal)

    def propose(self, slot: int, proposal: Proposal) -> int:
        """See `Verbs`."""
        place = (slot, proposal.incarnation, proposal.leader_epoch)
        return int(native.propose_in_sync(*place, proposal.in_sync, proposal.broker_epochs))

    def commit(self, slot: int, serial: int, proposal: Proposal, in_sync: Sequence[int], partition_epoch: int) -> bool:
        """See `Verbs`."""
        place = (slot, proposal.incarnation, proposal.leader_epoch, serial)
        committed = bool(native.commit_in_sync(*place, list(in_sync), partition_epoch))
        if committed:
            count("in_sync_shrinks", len(in_sync) < len(proposal.before))
            count("in_sync_expansions", len(in_sync) > len(proposal.before))
        return committed

    def revert(self, slot: int, serial: int, proposal: Proposal) -> bool:
        """See `Verbs`."""
        return bool(native.revert_in_sync(slot, proposal.incarnation, proposal.leader_epoch, serial))

    def name_of(self, slot: int) -> tuple[str, bytes, int]:
        """See `Verbs`."""
        topic, partition, topic_id, _ = slots.log_of(slot)
        return topic, topic_id, partition

    def view_of(self, slot: int) -> View:
        """See `Verbs`."""
        view = view_of(slot)
        return View(view.leader_id, view.leader_epoch, view.partition_epoch, view.in_sync)


def _proposal(found: Any) -> Proposal | None:
    """The proposal of native code, with the committed in-sync replicas that it changes."""
    if found is None:
        return None
    before, _ = native.in_sync_sets(found.slot)
    return Proposal(
        found.incarnation, found.leader_epoch, found.partition_epoch, before, found.in_sync, found.broker_epochs
    )


class InSyncService:
    """See the module."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: BrokerConfig,
        channel: ControllerChannel,
        in_replicas: InReplicas,
    ) -> None:
        self._loop = loop
        self._channel = channel
        self._in_replicas = in_replicas
        self._lag_ms = config.integer("replica.lag.time.max.ms")
        self._ticker: asyncio.TimerHandle | None = None
        self.keeper = InSyncKeeper(
            SlotVerbs(),
            self._send,
            self._later,
            config.node_id,
            brokers.broker_epoch,
            SlotChanged,
            SlotBusy,
            refused_s=self._lag_ms / 10_000,
        )

    # -- event loop -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Continue with the proposals of a predecessor, and begin to look at followers."""
        self._in_replicas(self.keeper.resume)
        self._in_replicas(lambda: self.keeper.look(native.wanted_slots()))
        self._tick_later()

    def wake(self, changed: Collection[int]) -> None:
        """Slots changed: look at those whose followers may join. :param changed: see `SharedMemory.take_ready`."""
        wanted = native.wanted_among(changed)
        if wanted:
            self._in_replicas(self.keeper.look, wanted)

    def look_at_all(self) -> None:
        """A process died, perhaps between a change and the wake-up for it: look at every slot that asks for it."""
        self._in_replicas(lambda: self.keeper.look(native.wanted_slots()))

    def close(self) -> None:
        """Stop looking at followers."""
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None

    def _tick_later(self) -> None:
        self._ticker = self._loop.call_later(self._lag_ms / 2000, self._tick)

    def _tick(self) -> None:
        self._in_replicas(self.keeper.tick, self._lag_ms)
        self._tick_later()

    # -- replicas thread --------------------------------------------------------------------------------------------

    def request_executed(self) -> None:
        """A request of the controller was executed."""
        self.keeper.request_executed()

    def _send(self, make: Callable[[int], Any], then: Callable[[Any], None]) -> None:
        def answered(outcome: Any) -> None:
            self._in_replicas(self._take, then, outcome)

        self._loop.call_soon_threadsafe(self._channel.send, alter_partition.SCHEMA, make, answered)

    def _take(self, then: Callable[[Any], None], outcome: Any) -> None:
        failed = self.keeper.failed
        then(outcome)
        count("in_sync_failed", self.keeper.failed - failed)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        def plan() -> None:
            self._loop.call_later(seconds, self._in_replicas, action)

        self._loop.call_soon_threadsafe(plan)
