"""The controller of a cluster in this broker: elections, events, and the requests that only the controller serves.

Runs in the coordinator's store thread; only the callbacks of watches and responses come from other threads, and they only queue
an event. While this broker is the controller it has a context and an executor; when it resigns it discards both.

The context is only right if every machine ran to its end. Where a machine or a look at ``/controller`` ends with an exception,
whoever called it, the controller discards the context and requests a call of `begin_again`. So no caller can forget it.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from odradek.controller.cluster import (
    broker_events,
    deletion,
    epochs,
    failover,
    in_sync,
    leadership,
    log_dirs,
    reassignment,
    topic_events,
)
from odradek.controller.cluster.context import ControllerContext, Partition, Replica
from odradek.controller.cluster.effects import Outgoing, Steps
from odradek.controller.cluster.executor import Channels, ControllerMoved, Executor
from odradek.controller.cluster.partition_states import UncleanElections
from odradek.controller.cluster.requests import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from odradek.controller.store_errors import NotController
from odradek.metadata import znodes
from odradek.metadata.election import Reign, begin_epoch, is_own, run_for_controller, still_reigns
from odradek.metadata.store import CHILDREN, Event, Store, StoreError
from odradek.protocol.errors import ErrorCode, peer_error_text

log = logging.getLogger("odradek.controller")

Result = TypeVar("Result")
NO_CONTROLLER = -1
RETRY_S = 1.0
"""The time in seconds until a controller that failed reads everything again."""
REFUSED_RETRY_S = 30.0
"""The time in seconds until a controller reads everything again because the store refused a node: it works meanwhile, and its
operator must repair the node."""


@dataclass
class ControllerSettings:
    """Settings of the controller, by Kafka's keys.

    ``unclean_elections``: unclean.leader.election.enable; ``deletion_enabled``: delete.topic.enable; ``rebalance_enabled``:
    auto.leader.rebalance.enable; ``imbalance_percentage``: leader.imbalance.per.broker.percentage.
    """

    unclean_elections: bool = False
    deletion_enabled: bool = True
    rebalance_enabled: bool = True
    imbalance_percentage: int = 10


class _Changed(NamedTuple):
    """A watch of a reign was called."""

    executor: Executor | None
    event: Event


class _Answered(NamedTuple):
    """A broker answered a request of a reign."""

    executor: Executor
    outgoing: Outgoing
    response: Any


class ClusterController:
    """See the module.

    :param settings: returns the present settings.
    :param listener_name: the listener to which brokers connect (inter.broker.listener.name).
    :param wake: called, in any thread, when `process` has something to do.
    :param again: called in the store thread after a failure: `begin_again` must be called, after the time in seconds.
    :param count: (counter of the meter page, increment): counts elections.
    :param seen_epoch: returns the largest controller epoch that this broker has seen; 0 if it has seen none.
    :ivar context: the context while this broker is the controller, else None.
    :ivar deleted: the number of topics that were deleted while this broker was the controller.
    :ivar controller_id: the controller that was last seen; NO_CONTROLLER if there is none.
    """

    executor_type = Executor

    def __init__(
        self,
        store: Store,
        channels: Channels,
        broker_id: int,
        settings: Callable[[], ControllerSettings] = ControllerSettings,
        listener_name: str = "PLAINTEXT",
        wake: Callable[[], None] = lambda: None,
        again: Callable[[float], None] = lambda after_s: None,
        count: Callable[[str, int], None] = lambda name, number: None,
        seen_epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        self._store = store
        self._channels = channels
        self._broker_id = broker_id
        self._settings = settings
        self._listener_name = listener_name
        self._wake = wake
        self._again = again
        self._count = count
        self._seen_epoch = seen_epoch
        self._epoch_attempts = 0  # how often the epoch of this reign was raised
        self._queue: deque[_Changed | _Answered] = deque()  # thread-safe: append and popleft
        self._later: deque[Steps[Any]] = deque()  # of this reign
        self._executor: Executor | None = None
        self._reign: Reign | None = None
        self.context: ControllerContext | None = None
        self.controller_id = NO_CONTROLLER
        self.elections = 0
        self.deleted = 0

    # -- the role -------------------------------------------------------------------------------------------------

    @property
    def active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self.context is not None

    def look(self) -> None:
        """Look at ``/controller`` and watch it: resign if it is not this broker's, become the controller if there is none.

        Called after the broker has registered, also with a new session, and for every change of the node. Raises StoreError.
        """
        with self._or_again():
            self._look()

    def _look(self) -> None:
        stat = self._store.exists(znodes.CONTROLLER, self._controller_event)
        if stat is not None and is_own(self._store, stat) and self.active:
            return
        self.resign()
        outcome = run_for_controller(self._store, self._broker_id, self._seen_epoch())
        if isinstance(outcome, int):
            self.controller_id = outcome
            return
        self.controller_id = self._broker_id
        self.elections += 1
        self._epoch_attempts = 0
        log.info("broker %d is the controller, epoch %d", self._broker_id, outcome.epoch)
        self._begin(outcome)

    def reconnected(self) -> None:
        """The connection was lost and is back in the same session: all watches are lost. Raises StoreError.

        A controller that still is one reads everything again in its epoch.
        """
        with self._or_again():
            reign = self._reign
            if reign is None or not still_reigns(self._store, reign):
                self.resign()
                self._look()
                return
            self._store.exists(znodes.CONTROLLER, self._controller_event)
            self.resign()
            self._begin(reign)

    def begin_again(self) -> None:
        """Do what was requested with `again`: read everything again, unless that has happened since. Raises StoreError."""
        if self._executor is None or self._executor.refused:
            self.reconnected()

    @contextmanager
    def _or_again(self) -> Iterator[None]:
        """Request `begin_again` if the context may differ from the store afterwards: after every exception."""
        try:
            yield
        except ControllerMoved:
            raise  # `run` resigns
        except BaseException:
            self._discard_until_read_again()
            raise

    def _raise_epoch(self, broker_id: int) -> None:
        """A broker has seen a newer controller epoch, and no controller has followed this one: begin a newer epoch, and read
        and send everything again. Raises StoreError."""
        reign = self._reign
        epoch = None if reign is None else epochs.raised(reign.epoch, self._epoch_attempts)
        if reign is None or epoch is None:
            return
        self._epoch_attempts += 1
        newer = begin_epoch(self._store, reign, epoch)
        if newer is None:
            self.resign()
            self.look()
            return
        log.warning(
            "broker %d has seen a newer controller epoch than %d: ZooKeeper was restored from an older backup; the controller "
            "continues in epoch %d",
            broker_id, reign.epoch, epoch,
        )  # fmt: skip
        self.resign()
        self._begin(newer)

    def resign(self) -> None:
        """Stop to be the controller: end the channels, forget everything. The controller node is not touched."""
        if self._executor is not None:
            log.info(
                "broker %d is no longer the controller of epoch %d",
                self._broker_id,
                self._reign.epoch if self._reign else -1,
            )
            self._executor.close()
        self._executor = self._reign = self.context = None
        self._later.clear()
        self.controller_id = NO_CONTROLLER

    def _begin(self, reign: Reign) -> None:
        self._reign = reign
        self._executor = self.make_executor(reign)
        self.context = ControllerContext(self._broker_id, reign.epoch, reign.epoch_version, self._listener_name)
        self.controller_id = self._broker_id
        self._run(failover.begin(self.context, self.unclean_elections(), self._settings().deletion_enabled))

    def make_executor(self, reign: Reign) -> Executor:
        """The executor of a reign, whose watches and responses are queued here."""

        def on_event(event: Event) -> None:
            self._post(_Changed(executor, event))

        def on_answer(outgoing: Outgoing, response: Any) -> None:
            self._post(_Answered(executor, outgoing, response))

        executor = self.executor_type(
            self._store, self._channels, reign.epoch_version, on_event, on_answer, self._continue_later
        )
        return executor

    def _continue_later(self, steps: Steps[Any]) -> None:
        self._later.append(steps)
        self._wake()

    def unclean_elections(self) -> UncleanElections:
        """Which topics allow unclean elections now."""
        return UncleanElections(self._settings().unclean_elections)

    # -- events ---------------------------------------------------------------------------------------------------

    def _controller_event(self, event: Event) -> None:
        self._post(_Changed(None, event))

    def _post(self, entry: _Changed | _Answered) -> None:
        self._queue.append(entry)
        self._wake()

    def process(self) -> bool:
        """Execute all queued events, also those that they cause, then one machine of `Later`. If more of them wait, `wake` is
        called, so that other work of the thread has its turn. Returns whether there is more to do. Raises StoreError if the
        store is not available."""
        with self._or_again():
            while self._queue:
                self._process(self._queue.popleft())
            if self._later:
                self._run(self._later.popleft())
        if self._later:
            self._wake()
        return bool(self._later or self._queue)

    def _process(self, entry: _Changed | _Answered) -> None:
        if isinstance(entry, _Changed) and entry.executor is None:
            self._look()
        elif entry.executor is self._executor and self.context is not None:
            steps = self._changed(entry.event) if isinstance(entry, _Changed) else self._answered(entry)
            began = time.monotonic_ns()
            if steps is not None:
                self._run(steps)
            if isinstance(entry, _Changed) and entry.event.path == znodes.BROKER_IDS:
                self._count("election_events", 1)
                self._count("election_us", (time.monotonic_ns() - began) // 1000)

    def _run(self, steps: Steps[Result]) -> Result | None:
        """`run` for an event: the loss of the role is handled already."""
        try:
            return self.run(steps)
        except NotController:
            return None

    def run(self, steps: Steps[Result]) -> Result:
        """Execute a machine for a request. Raises NotController, StoreError, and what the machine raises as a refusal."""
        executor = self._executor
        if executor is None:
            steps.close()
            raise NotController("another broker is the controller")
        context = self.context
        before = (0, 0) if context is None else (context.unclean_elections, context.deleted)
        try:
            with self._or_again():
                return executor.run(steps)
        except ControllerMoved as moved:
            log.warning("broker %d resigns: %s", self._broker_id, moved)
            self.resign()
            self._post(_Changed(None, Event(CHILDREN, znodes.CONTROLLER)))
            raise NotController(str(moved)) from moved
        except StoreError:
            raise
        except Exception:
            log.exception("an event or a request of the controller failed; it reads everything again in %g s", RETRY_S)
            raise
        finally:
            if executor.refused:
                self._again(REFUSED_RETRY_S)
            if context is not None:
                self._count("unclean_elections", context.unclean_elections - before[0])
                self.deleted += context.deleted - before[1]

    def _discard_until_read_again(self) -> None:
        """The context may differ from the store: discard it, keep the reign for `begin_again`, and request that."""
        if self._executor is not None:
            log.warning(
                "the controller of epoch %d stops; it reads everything again in %g s",
                self._reign.epoch if self._reign else -1,
                RETRY_S,
            )
            self._executor.close()
        self._executor = self.context = None
        self._later.clear()
        self.controller_id = NO_CONTROLLER
        self._again(RETRY_S)

    def _changed(self, event: Event) -> Steps[Any] | None:
        """The machine for a watch; None if the event needs none."""
        assert self.context is not None
        context, unclean = self.context, self.unclean_elections()
        deletion_enabled = self._settings().deletion_enabled
        machines: dict[str, Callable[[], Steps[Any]]] = {
            znodes.BROKER_IDS: partial(broker_events.brokers_changed, context, unclean),
            znodes.TOPICS: partial(topic_events.topics_changed, context),
            znodes.DELETE_TOPICS: partial(deletion.deletions_requested, context, deletion_enabled),
            in_sync.ISR_CHANGES: partial(in_sync.in_sync_changes_reported, context),
            log_dirs.LOG_DIR_EVENTS: partial(log_dirs.events_reported, context),
            reassignment.REASSIGN_PARTITIONS: partial(reassignment.legacy_requested, context),
            leadership.PREFERRED_REPLICA_ELECTION: partial(leadership.legacy_requested, context),
        }
        machine = machines.get(event.path)
        if machine is not None:
            return machine()
        parent, _, name = event.path.rpartition("/")
        if parent == znodes.BROKER_IDS:
            return broker_events.brokers_changed(context, unclean)
        if parent == znodes.TOPICS:
            return topic_events.topic_changed(context, name)
        return None

    def _answered(self, answered: _Answered) -> Steps[Any] | None:
        """The machine for the answer of a broker; None if it needs none."""
        assert self.context is not None
        context, outgoing, response = self.context, answered.outgoing, answered.response
        if isinstance(response, Exception):
            log.warning("broker %d gave no answer to the controller: %s", outgoing.broker_id, response)
            return None
        broker = context.brokers.get(outgoing.broker_id)
        if broker is None or broker.epoch != outgoing.broker_epoch:
            return None  # an older incarnation answered
        if response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
            self._raise_epoch(broker.id)
            return None
        if outgoing.api_key == UPDATE_METADATA or response.error_code != ErrorCode.NONE:
            if response.error_code != ErrorCode.NONE:
                log.warning(
                    "broker %d refused a request (api key %d) of controller epoch %d: %s",
                    broker.id, outgoing.api_key, context.epoch, peer_error_text(response.error_code),
                )  # fmt: skip
            if outgoing.api_key != STOP_REPLICA:
                return None
        if outgoing.api_key == LEADER_AND_ISR:
            return self._roles_answered(context, broker.id, outgoing.request, response)
        return self._replicas_stopped(context, outgoing, response)

    def _roles_answered(self, context: ControllerContext, broker_id: int, request: Any, response: Any) -> Steps[Any]:
        codes = _codes_by_id(context, response)
        yield from log_dirs.answered(context, broker_id, codes, self.unclean_elections())
        yield from epochs.answered(context, broker_id, request, codes)

    def _replicas_stopped(self, context: ControllerContext, outgoing: Outgoing, response: Any) -> Steps[Any] | None:
        """The answer to a StopReplica, if it deletes replicas of topics that are being deleted."""
        top = response.error_code
        codes = {(entry.topic_name, entry.partition_index): entry.error_code for entry in response.partition_errors}
        deleted: list[Replica] = []
        failed: list[Replica] = []
        for topic in outgoing.request.topic_states:
            if topic.topic_name not in context.deleting:
                continue
            for state in topic.partition_states:
                partition = context.find(topic.topic_name, state.partition_index)
                if state.delete_partition and partition is not None:
                    code = top or codes.get((topic.topic_name, state.partition_index), ErrorCode.NONE)
                    (failed if code else deleted).append((partition, outgoing.broker_id))
        if not deleted and not failed:
            return None
        return deletion.replicas_deleted(context, deleted, failed)

    def rebalance(self) -> None:
        """Let preferred leaders lead again; called every leader.imbalance.check.interval.seconds. Raises StoreError."""
        settings = self._settings()
        if self.context is not None and settings.rebalance_enabled:
            self._run(leadership.rebalance(self.context, settings.imbalance_percentage))

    def unclean_elections_changed(self) -> None:
        """unclean.leader.election.enable of a topic or of all topics may have changed. Raises StoreError."""
        if self.context is not None:
            self._run(broker_events.elect_leaderless(self.context, self.unclean_elections()))


def _codes_by_id(context: ControllerContext, response: Any) -> list[tuple[Partition, int]]:
    """The codes of a LeaderAndIsr response, which names topics by id."""
    by_bytes = {topic.id_bytes: topic for topic in context.topics.values()} if response.topics else {}
    found = []
    for entry in response.topics:
        topic = by_bytes.get(bytes(entry.topic_id))
        if topic is None:
            continue
        for error in entry.partition_errors:
            partition = topic.partitions.get(error.partition_index)
            if partition is not None:
                found.append((partition, error.error_code))
    return found
