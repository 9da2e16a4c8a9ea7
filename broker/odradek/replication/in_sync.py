"""Changes of the in-sync replicas of the partitions that this broker leads: proposes them to the controller by AlterPartition.

Used only in the coordinator's replicas thread. The state of each proposal is in the partition's slot, so that a successor of a
coordinator that died continues with it; this module keeps only what is needed to match responses. At most one AlterPartition
request is under way; it contains every proposal that was made until it was sent.

Each fetch of a follower that has caught up asks to propose it. A follower that the controller refused is proposed again after
the controller's next request, or after `refused_s`.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from odradek.protocol.errors import ErrorCode, error_text, peer_error_text
from odradek.protocol.schemas import alter_partition

log = logging.getLogger("odradek.replication")

RETRY_S = 0.05
"""The time in seconds after which proposals are sent again that the controller did not judge."""
REPORT_AGAIN_S = 30.0
"""The time in seconds between two log messages about a controller that does not judge proposals."""
FIRST_BY_ID = 2
FIRST_WITH_EPOCHS = 3
FIRST_WITH_RECOVERY = 1
RECOVERED = 0

BACK_TO_COMMITTED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""The proposal was refused, but may be made again later."""
WAIT_FOR_CONTROLLER = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The controller knows a newer state than this broker, and will send it."""


class Proposal(NamedTuple):
    """A change of the in-sync replicas that a slot suggests; see `Verbs`.

    ``before``: the committed in-sync replicas. ``broker_epochs``: for each of ``in_sync`` the epoch of the registration with
    which it fetched what lets it join; -1: it is in sync already, or its requests have no epoch. The controller refuses a
    replica that has registered again since: it may have lost records.
    """

    incarnation: int
    leader_epoch: int
    partition_epoch: int
    before: list[int]
    in_sync: list[int]
    broker_epochs: list[int]


def _joining(proposal: Proposal) -> list[int]:
    """The followers that a proposal adds."""
    return [member for member in proposal.in_sync if member not in proposal.before]


class View(NamedTuple):
    """What the controller published about a partition."""

    leader_id: int
    leader_epoch: int
    partition_epoch: int
    in_sync: list[int]


class Verbs(Protocol):
    """The operations on slots. Those that take an incarnation and an epoch return False or raise SlotChanged if the slot has
    others now. All that take a slot may raise SlotBusy: its lock was held for long."""

    def expansion_of(self, slot: int) -> Proposal | None:
        """The change by which followers that have caught up join. Clears the slot's `in_sync_wanted`."""
        ...

    def lagging_of(self, slot: int, lag_ms: int) -> Proposal | None:
        """The change by which followers that lag leave."""
        ...

    def lagging_slots(self, lag_ms: int) -> list[int]: ...
    def pending(self) -> list[int]:
        """The slots in which a proposal is under way, also those of a predecessor of this process."""
        ...

    def under_way(self, slot: int) -> tuple[int, Proposal] | None:
        """Serial number and content of the proposal that is under way in a slot; None if there is none."""
        ...

    def propose(self, slot: int, proposal: Proposal) -> int:
        """Note in the slot that the proposal is under way; returns its serial number. Raises SlotChanged, also if a follower
        that would join lacks committed records by now."""
        ...

    def commit(
        self, slot: int, serial: int, proposal: Proposal, in_sync: Sequence[int], partition_epoch: int
    ) -> bool: ...
    def revert(self, slot: int, serial: int, proposal: Proposal) -> bool: ...
    def name_of(self, slot: int) -> tuple[str, bytes, int]:
        """Topic, topic id and partition of a slot."""
        ...

    def view_of(self, slot: int) -> View: ...


Send = Callable[[Callable[[int], Any], Callable[[Any], None]], None]
"""(make the request in a version, receive the response or an exception): sends AlterPartition to the controller. The second
function is called in the replicas thread."""


@dataclass
class _Pending:
    """A proposal that the controller has not answered. :ivar stuck: the controller knows a newer state."""

    slot: int
    serial: int
    proposal: Proposal
    topic: str
    topic_id: bytes
    partition: int
    stuck: bool = False


class InSyncKeeper:
    """Keeps the in-sync replicas of the led partitions.

    :param broker_id: of this broker. :param broker_epoch: returns the epoch of this broker's registration.
    :param later: (seconds, function): calls the function in the replicas thread after this time.
    :param slot_changed: the exception of `Verbs` for a slot that has another role or epoch now.
    :param slot_busy: the exception for a slot whose lock was held for long. It is looked at again after `RETRY_S`; the others
        are not affected.
    :param refused_s: the time in seconds for which a follower is not proposed again after the controller has refused it.
    :ivar proposed: the number of proposals made, for metrics; `shrinks` and `expansions`: those that were committed;
        `failed`: those that the controller refused or did not answer, each time.
    """

    def __init__(
        self,
        verbs: Verbs,
        send: Send,
        later: Callable[[float, Callable[[], None]], None],
        broker_id: int,
        broker_epoch: Callable[[], int],
        slot_changed: type[Exception],
        slot_busy: type[Exception],
        clock: Callable[[], float] = time.monotonic,
        refused_s: float = 3.0,
    ) -> None:
        self._verbs = verbs
        self._send = send
        self._later = later
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._slot_changed = slot_changed
        self._slot_busy = slot_busy
        self._clock = clock
        self._pending: dict[int, _Pending] = {}
        self._unsent: dict[int, _Pending] = {}
        self._unseen: set[int] = set()  # slots whose lock was held when they were to be looked at
        self._sent: list[_Pending] | None = None
        self._retry_planned = False
        self._refused_s = refused_s
        self._refused: dict[int, dict[int, float]] = {}  # slot -> follower -> until when it is not proposed again
        self._one_by_one: set[int] = set()  # slots of which several followers were refused together
        self._refusal_logged: dict[int, float] = {}  # slot -> when
        self._reported: float | None = None  # when the present failure of AlterPartition was last logged
        self.proposed = 0
        self.shrinks = 0
        self.expansions = 0
        self.failed = 0

    # -- proposals --------------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Continue with the proposals of a predecessor of this process."""
        self._each(self._verbs.pending(), self._review)
        self._flush()

    def look(self, slots: Iterable[int]) -> None:
        """Propose that followers that have caught up join the in-sync replicas of these slots."""
        self._each([slot for slot in slots if slot not in self._pending], self._review)
        self._flush()

    def tick(self, lag_ms: int) -> None:
        """Propose that followers leave that have lagged for `lag_ms`; call it every half of that time."""
        lagging = [slot for slot in self._verbs.lagging_slots(lag_ms) if slot not in self._pending]
        self._each(lagging, lambda slot: self._propose(slot, self._verbs.lagging_of(slot, lag_ms)))
        self._flush()

    def request_executed(self) -> None:
        """A request of the controller was executed: forget the proposals that ended with a former role, and adopt the published
        states for proposals that the controller refused because it had a newer state. Refused followers need not wait."""
        self._refused.clear()
        self._each(list(self._pending), self._end_or_adopt)

    @property
    def waiting(self) -> list[int]:
        """The slots with a proposal that the controller has not committed."""
        return list(self._pending)

    def _each(self, slots: Iterable[int], action: Callable[[int], None]) -> None:
        """Perform an action for each slot; those whose lock is held for long are reviewed after `RETRY_S`."""
        for slot in slots:
            try:
                action(slot)
            except self._slot_busy as error:
                self._unseen.add(slot)
                self._retry_later(str(error))

    def _end_or_adopt(self, slot: int) -> None:
        """Forget a pending proposal that ended with its role; adopt the controller's state if the proposal waits for that."""
        pending = self._pending[slot]
        under_way = self._verbs.under_way(slot)
        if under_way is None or under_way[0] != pending.serial:
            self._forget(slot)
        elif pending.stuck:
            self._adopt(pending)

    def _review(self, slot: int) -> None:
        """Learn what is under way in a slot, also from a predecessor, and propose that followers join if nothing is."""
        if slot in self._pending:
            self._end_or_adopt(slot)
        if slot in self._pending:
            return
        under_way = self._verbs.under_way(slot)
        if under_way is None:
            self._propose(slot, self._verbs.expansion_of(slot))
        else:
            self._adopt(self._note(slot, *under_way))

    def _propose(self, slot: int, proposal: Proposal | None) -> None:
        proposal = self._without_refused(slot, proposal)
        if proposal is None:
            return
        try:
            serial = self._verbs.propose(slot, proposal)
        except self._slot_changed:
            return  # the role ended meanwhile, or the follower fell behind the high watermark: its next fetch asks again
        self.proposed += 1
        pending = self._note(slot, serial, proposal)
        level = logging.DEBUG if self._refused_lately(slot) else logging.INFO
        log.log(level, "%s-%d: proposing the in-sync replicas %s", pending.topic, pending.partition, proposal.in_sync)

    def _without_refused(self, slot: int, proposal: Proposal | None) -> Proposal | None:
        """A proposal without the followers that must wait; None if nothing of it remains. Their next fetches ask again."""
        if proposal is None:
            return None
        joining = _joining(proposal)
        waiting = self._refused.get(slot, {})
        now = self._clock()
        may_join = [follower for follower in joining if waiting.get(follower, now) <= now]
        if slot in self._one_by_one:
            may_join = may_join[:1]
        if len(may_join) == len(joining):
            return proposal
        kept = [place for place, member in enumerate(proposal.in_sync) if member in may_join or member not in joining]
        members = [proposal.in_sync[place] for place in kept]
        if members == proposal.before:
            return None
        return proposal._replace(in_sync=members, broker_epochs=[proposal.broker_epochs[place] for place in kept])

    def _refused_lately(self, slot: int) -> bool:
        logged = self._refusal_logged.get(slot)
        return logged is not None and self._clock() < logged + REPORT_AGAIN_S

    def _note_refused(self, item: _Pending, code: int) -> None:
        """The controller refused a follower of a slot, which is not proposed for a while. If it refused several together, they
        are proposed one by one, because one of them may be the reason."""
        joining = _joining(item.proposal)
        if len(joining) > 1:
            self._one_by_one.add(item.slot)
        else:
            until = self._clock() + self._refused_s
            self._refused.setdefault(item.slot, {}).update(dict.fromkeys(joining, until))
        level = logging.DEBUG if self._refused_lately(item.slot) else logging.INFO
        if level == logging.INFO:
            self._refusal_logged[item.slot] = self._clock()
        log.log(
            level,
            "%s-%d: the controller refused the in-sync replicas %s now (%s); proposing them again in %g s",
            item.topic, item.partition, item.proposal.in_sync, error_text(code), self._refused_s,
        )  # fmt: skip

    def _note(self, slot: int, serial: int, proposal: Proposal) -> _Pending:
        pending = _Pending(slot, serial, proposal, *self._verbs.name_of(slot))
        self._pending[slot] = self._unsent[slot] = pending
        return pending

    def _forget(self, slot: int) -> None:
        self._pending.pop(slot, None)
        self._unsent.pop(slot, None)

    def _adopt(self, pending: _Pending) -> None:
        """Commit the state that the controller published if it is newer than the one that the proposal is based on."""
        view = self._verbs.view_of(pending.slot)
        if (
            view.leader_id == self._broker_id
            and view.leader_epoch == pending.proposal.leader_epoch
            and view.partition_epoch > pending.proposal.partition_epoch
        ):
            self._commit(pending, view.in_sync, view.partition_epoch)

    # -- requests ---------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Send all proposals that are not sent yet, unless a request is under way."""
        if self._sent is not None or not self._unsent or self._retry_planned:
            return
        self._sent = list(self._unsent.values())
        self._unsent = {}
        sent = self._sent
        self._send(lambda version: self._request(sent, version), self._answered)

    def _request(self, items: Sequence[_Pending], version: int) -> Any:
        """AlterPartition in a version. Called when the request is sent, in the loop's thread: it changes nothing."""
        message = alter_partition
        topics: dict[bytes | str, Any] = {}
        for item in items:
            key = item.topic_id if version >= FIRST_BY_ID else item.topic
            topic = topics.get(key)
            if topic is None:
                topic = message.Request.TopicData(partitions=[])
                if version >= FIRST_BY_ID:
                    topic.topic_id = item.topic_id
                else:
                    topic.topic_name = item.topic
                topics[key] = topic
            partition = message.Request.PartitionData(
                partition_index=item.partition,
                leader_epoch=item.proposal.leader_epoch,
                partition_epoch=item.proposal.partition_epoch,
            )
            if version >= FIRST_WITH_RECOVERY:
                partition.leader_recovery_state = RECOVERED
            if version >= FIRST_WITH_EPOCHS:
                state = message.Request.BrokerState
                partition.new_isr_with_epochs = [
                    state(broker_id=broker, broker_epoch=epoch)
                    for broker, epoch in zip(item.proposal.in_sync, item.proposal.broker_epochs, strict=True)
                ]
            else:
                partition.new_isr = list(item.proposal.in_sync)
            topic.partitions.append(partition)
        return message.Request(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _answered(self, outcome: Any) -> None:
        """The response to the request under way, or an exception."""
        sent, self._sent = self._sent or [], None
        if isinstance(outcome, Exception):
            self.failed += len(sent)
            self._again(sent, str(outcome))
            return
        if outcome.error_code:
            self.failed += len(sent)
            self._again(sent, peer_error_text(outcome.error_code))
            return
        self._reported = None
        answers = {}
        for topic in outcome.topics:
            for answer in topic.partitions:
                answers[topic.topic_id, topic.topic_name, answer.partition_index] = answer
        nobody, unnamed = bytes(16), ""
        missing = []
        for item in sent:
            if self._pending.get(item.slot) is not item:
                continue  # the role changed meanwhile
            answer = answers.get((item.topic_id, unnamed, item.partition)) or answers.get(
                (nobody, item.topic, item.partition)
            )
            if answer is None:
                missing.append(item)
            else:
                try:
                    self._judged(item, answer)
                except (self._slot_busy, ValueError) as error:
                    self._again([item], str(error))  # the controller answers a repeated proposal with its state
                except Exception as error:  # else the slot would wait for an answer for ever
                    log.exception("cannot apply the controller's answer for %s-%d", item.topic, item.partition)
                    self._again([item], repr(error))
        if missing:
            self._again(missing, "the response does not contain these partitions")
        self._flush()

    def _judged(self, item: _Pending, answer: Any) -> None:
        """Apply the controller's decision about one proposal."""
        code = answer.error_code
        name = f"{item.topic}-{item.partition}"
        self.failed += code != ErrorCode.NONE
        if code == ErrorCode.NONE:
            if answer.leader_epoch != item.proposal.leader_epoch or answer.leader_id != self._broker_id:
                item.stuck = True  # LeaderAndIsr of the newer leader epoch follows
            elif answer.partition_epoch >= item.proposal.partition_epoch:
                self._commit(item, answer.isr, answer.partition_epoch)
            else:
                item.stuck = True
        elif code in BACK_TO_COMMITTED:
            self._verbs.revert(item.slot, item.serial, item.proposal)
            self._forget(item.slot)
            self._note_refused(item, code)
        elif code in WAIT_FOR_CONTROLLER:
            log.info("%s: the controller has a newer state (%s); waiting for it", name, error_text(code))
            item.stuck = True
            self._adopt(item)
        else:
            self._again([item], error_text(code))

    def _commit(self, item: _Pending, in_sync: Sequence[int], partition_epoch: int) -> None:
        committed = self._verbs.commit(item.slot, item.serial, item.proposal, list(in_sync), partition_epoch)
        self._forget(item.slot)
        self._one_by_one.discard(item.slot)
        self._refusal_logged.pop(item.slot, None)
        if not committed:
            return  # the role ended meanwhile
        self.expansions += len(in_sync) > len(item.proposal.before)
        self.shrinks += len(in_sync) < len(item.proposal.before)
        log.info(
            "%s-%d: the in-sync replicas are %s, partition epoch %d",
            item.topic,
            item.partition,
            list(in_sync),
            partition_epoch,
        )

    def _again(self, items: Sequence[_Pending], reason: str) -> None:
        """Send proposals again after `RETRY_S`."""
        kept = [item for item in items if self._pending.get(item.slot) is item]
        for item in kept:
            self._unsent.setdefault(item.slot, item)
        if kept:
            self._retry_later(reason)

    def _retry_later(self, reason: str) -> None:
        """Plan the next attempt, and report why it is needed, now and then."""
        if self._retry_planned:
            return
        now = self._clock()
        if self._reported is None or now >= self._reported + REPORT_AGAIN_S:
            self._reported = now
            log.warning(
                "changes of the in-sync replicas of %d partitions are not judged or not applied yet: %s; retrying every %g ms",
                len(self._unsent.keys() | self._unseen), reason, RETRY_S * 1000,
            )  # fmt: skip
        self._retry_planned = True
        self._later(RETRY_S, self._retry)

    def _retry(self) -> None:
        self._retry_planned = False
        unseen, self._unseen = self._unseen, set()
        self._each(unseen, self._review)
        self._flush()
