"""The controller: writes topic changes to the metadata store, then applies them to the shared table, then announces them.

Runs in the coordinator's store thread, one change after the other. The transaction of the store decides. A change that
it contains takes effect even if the controller dies after it, because `recover` of the successor applies it to slots and
directories. A change that it does not contain did not happen, and the client can retry. When the store refuses a transaction
or fails, the controller discards the image in memory and loads it again before the next change.
"""

import logging
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from odradek.config.broker_config import BrokerConfig
from odradek.config.dynamic import change_text
from odradek.config.table import without_effect
from odradek.controller.assignment import Broker
from odradek.controller.image import ClusterImage, Topic, load_image, load_states
from odradek.controller.outcomes import (
    Charge,
    Outcome,
    OutcomesInSteps,
    Request,
    busy,
    free_of_charge,
    named,
    plan_deletions,
    plan_each,
)
from odradek.controller.partitions import LocalPartitions
from odradek.controller.policies import Policies
from odradek.controller.store_errors import NotController, code_of
from odradek.controller.topic_names import INTERNAL
from odradek.controller.topics import (
    Admit,
    NewPartitions,
    NewTopic,
    Plan,
    Refusal,
    checked_config,
    initial_states,
    internal_topic,
    plan_partitions,
    plan_topic,
    transactions_of,
    write_missing_states,
    write_states,
)
from odradek.metadata import znodes
from odradek.metadata.cluster import was_adopted
from odradek.metadata.election import run_for_controller
from odradek.metadata.store import Store, StoreError, delete_tree, ensure_path, parent_of
from odradek.protocol.errors import ErrorCode
from odradek.stepwise import MUST_GO_ON, Pace, Steps, Stepwise
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.controller")


PLANNED_A_STEP = 1000
OPENED_A_STEP = 5
"""The number of partitions that one step creates and opens; each takes a millisecond or two."""


class Controller:
    """Changes of the topics of a cluster.

    :param store: a store with an open session.
    :param rng: chooses the brokers of the first replicas of topics.
    :ivar deleted: the number of topics that this object has deleted.
    :raises ConfigError: a policy in the configuration cannot be loaded.
    """

    def __init__(
        self,
        store: Store,
        partitions: LocalPartitions,
        config: BrokerConfig,
        broker_id: int,
        rng: random.Random | None = None,
    ) -> None:
        self.policies = Policies(config)
        self._store = store
        self._partitions = partitions
        self._config = config
        self._broker_id = broker_id
        self._rng = rng or random.Random()
        self._epoch_version = -1
        self._stale = True
        self.epoch = 0
        self.image = ClusterImage()
        self.metadata_version = 0
        self.deleted = 0
        # Topics that are being created or get partitions, between two steps; clients do not see the change yet.
        self._under_way: dict[str, Topic] = {}
        self._promised: dict[str, int] = {}  # how many partitions of them have no slot yet
        self._configured = 0  # how often the settings of all topics were written to the slots

    # -- election -------------------------------------------------------------------------------------------------

    def become_controller(self) -> None:
        """Become the controller in a new epoch and recover. Raises NotController, StoreError."""
        self._stale = True
        outcome = run_for_controller(self._store, self._broker_id)
        if isinstance(outcome, int):
            raise NotController(f"broker {outcome} is the controller")
        self.epoch, self._epoch_version = outcome
        log.info("broker %d is the controller, epoch %d", self._broker_id, self.epoch)
        self.recover()

    def recover(self) -> None:
        """Load the image from the store again, and apply it to states, slots and directories. Raises StoreError.

        Completes the changes of a controller that died: topics with missing states or slots, and deletions.
        """
        self._stale = True
        image = load_image(self._store)
        deleted = self._finish_pending_deletions(image)
        kept = self._partitions.kept()
        for name, entry in list(kept.items()):
            topic = image.topics.get(name)
            if topic is None or topic.topic_id is None or topic.topic_id.bytes != entry.topic_id:
                log.warning(
                    "topic %s (id %s) is not in the metadata store: deleting its partitions", name, entry.topic_id.hex()
                )
                self._delete_unknown({name: entry.settled + entry.unsettled})
                del kept[name]
        self._store_epochs(self._partitions.unstored_epochs())
        for topic in image.topics.values():
            if topic.name in image.deleting:
                continue
            settled = set(kept[topic.name].settled) if topic.name in kept else set()
            missing = [partition for partition in topic.assignment.partitions if partition not in settled]
            self._partitions.configure(topic)
            if missing:
                states = self._complete_states(topic, missing)
                self._begin_epochs(self._partitions.with_slots(topic.name, missing))
                self._partitions.ensure(topic, states, self._begin_epoch)
        self.image = image
        self.metadata_version = self._partitions.announce_all()
        self._stale = not deleted

    def _finish_pending_deletions(self, image: ClusterImage) -> bool:
        """Finish begun deletions. False if that failed; the next change of topics retries it. Raises StoreError."""
        names = sorted(image.deleting)
        topics = _partitions_of(image, names)
        self._partitions.delete(topics)
        try:
            self._remove_deleted(image, names, topics)
        except OSError as error:
            log.error(
                "cannot finish the deletion of %s: %s; the next change of topics retries it", ", ".join(names), error
            )
            return False
        return True

    def _delete_unknown(self, topics: Mapping[str, Sequence[int]]) -> None:
        """Delete partitions whose topic is not in the metadata store."""
        self._partitions.delete(topics)
        try:
            self._partitions.forget(topics)
        except OSError as error:
            log.error("cannot remove the partitions of %s from the checkpoints: %s", ", ".join(topics), error)

    # -- leader epochs --------------------------------------------------------------------------------------------

    def open_waiting(self) -> None:
        """Open the logs that waited for disk space and have it now, with recovery. Raises StoreError.

        Each gets a new leader epoch; in a cluster that was adopted from Kafka, only a log that lost records.
        """
        waiting = self._partitions.to_open()
        if waiting:
            self._store_epochs(self._partitions.unstored_epochs())
            self._begin_epochs(waiting)
            self._partitions.open_waiting(waiting, self._begin_epoch)

    def _begin_epochs(self, waiting: Sequence[tuple[str, int, int]]) -> None:
        """Begin a new leader epoch for each log of `waiting` that needs one independent of its files. Raises StoreError.

        A log gets only one epoch, even if several attempts to open it fail: its slot records that it has an epoch in which no
        client was served. If a predecessor stored that epoch and died before it wrote the slot, the slot gets it now.
        """
        epochs = self._partitions.epochs_not_begun(waiting)
        if epochs and not was_adopted(self._store):
            self._store_epochs({key: (slot, epoch + 1) for key, (slot, epoch) in epochs.items()})

    def _begin_epoch(self, topic: str, partition: int, slot: int, leader_epoch: int) -> None:
        """Begin a leader epoch for a log whose files require one, before clients are served from it. Raises StoreError.

        The slot gets the epoch first: if storing it fails, the next attempt to open the log finds it already cut, and cannot
        detect that records were lost.
        """
        self._partitions.mark_epoch(slot, leader_epoch)
        self._store_epochs({(topic, partition): (slot, leader_epoch)})

    def _store_epochs(self, epochs: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Store leader epochs, then write them to their slots, before clients are served in them. Raises StoreError.

        :param epochs: {(topic, partition): (slot, leader epoch)}. If the store has a newer epoch, the slot gets that one.
        """
        if not epochs:
            return
        topics: dict[str, list[int]] = {}
        for topic, partition in epochs:
            topics.setdefault(topic, []).append(partition)
        stored = []
        changes = []
        for key, (state, version) in load_states(self._store, topics.items()).items():
            epoch = epochs[key][1]
            if state.leader_epoch < epoch and state.leader == self._broker_id:
                state = state._replace(leader_epoch=epoch, controller_epoch=self.epoch)
                changes.append((znodes.state_path(*key), znodes.encode_state(state), version))
                version += 1
            stored.append((*key, state.leader_epoch, version))
        write_states(self._store, changes, self._epoch_version)
        for entry in stored:
            self._partitions.put_epoch(*entry)

    def _complete_states(self, topic: Topic, partitions: list[int]) -> dict[int, tuple[znodes.PartitionState, int]]:
        """The states of these partitions; missing ones are created and stored."""
        states = load_states(self._store, [(topic.name, partitions)])
        absent = [partition for partition in partitions if (topic.name, partition) not in states]
        if absent:
            alive = [broker.id for broker in self.brokers()]
            initial = initial_states(Plan(topic, absent), alive, self.epoch)
            write_missing_states(self._store, topic, initial, self._epoch_version)
            states.update({(topic.name, partition): (state, 0) for partition, state in initial.items()})
        return {partition: states[topic.name, partition] for partition in partitions}

    def brokers(self) -> list[Broker]:
        """The live brokers. Raises StoreError."""
        brokers = []
        for name in self._store.children(znodes.BROKER_IDS):
            registration = znodes.decode_broker(int(name), self._store.get(znodes.broker_path(int(name)))[0])
            brokers.append(Broker(int(name), registration.rack))
        return brokers

    # -- changes --------------------------------------------------------------------------------------------------

    def create_topics(
        self, requests: Sequence[NewTopic], validate_only: bool = False, charge: Charge = free_of_charge
    ) -> list[Outcome]:
        """As `create_topics_in_steps`, at once."""
        return _at_once(self.create_topics_in_steps(requests, validate_only, charge))

    def create_topics_in_steps(
        self, requests: Sequence[NewTopic], validate_only: bool = False, charge: Charge = free_of_charge
    ) -> OutcomesInSteps:
        """Create topics independently of each other; one outcome for each distinct name, in the order of the requests."""

        def make_plan(request: NewTopic, image: ClusterImage, brokers: list[Broker], admit: Admit) -> Plan:
            plan = plan_topic(request, image, self._config, brokers, self._rng, admit=admit)
            self.policies.check_topic(request, plan)
            return plan

        return self._change(requests, make_plan, validate_only, charge)

    def create_partitions(
        self, requests: Sequence[NewPartitions], validate_only: bool = False, charge: Charge = free_of_charge
    ) -> list[Outcome]:
        """As `create_partitions_in_steps`, at once."""
        return _at_once(self.create_partitions_in_steps(requests, validate_only, charge))

    def create_partitions_in_steps(
        self, requests: Sequence[NewPartitions], validate_only: bool = False, charge: Charge = free_of_charge
    ) -> OutcomesInSteps:
        """Add partitions to topics, independently of each other; one outcome for each distinct name."""

        def make_plan(request: NewPartitions, image: ClusterImage, brokers: list[Broker], admit: Admit) -> Plan:
            if request.name in self._under_way:
                raise Refusal(ErrorCode.REQUEST_TIMED_OUT, busy(request.name))
            return plan_partitions(request, image, self._config, brokers, self._rng, admit)

        return self._change(requests, make_plan, validate_only, charge)

    def auto_create(self, names: Sequence[str]) -> list[Outcome]:
        """As `auto_create_in_steps`, at once."""
        return _at_once(self.auto_create_in_steps(names))

    def auto_create_in_steps(self, names: Sequence[str]) -> OutcomesInSteps:
        """Create topics that a client requested, with the broker's defaults; existing topics are no error.

        Internal topics get the settings that their coordinators need.
        """
        requests = [
            internal_topic(name, self._config, len(self.brokers())) if name in INTERNAL else NewTopic(name)
            for name in dict.fromkeys(names)
        ]
        outcomes = yield from self.create_topics_in_steps(requests)
        for outcome in outcomes:
            topic = self.image.topics.get(outcome.name)
            if outcome.name in self._under_way and topic is None:
                outcome.code, outcome.message = ErrorCode.LEADER_NOT_AVAILABLE, busy(outcome.name)
            elif outcome.code == ErrorCode.TOPIC_ALREADY_EXISTS and topic is not None:
                outcome.code, outcome.message, outcome.topic = ErrorCode.NONE, None, topic
                outcome.topic_id = topic.topic_id
        return outcomes

    def _change(
        self,
        requests: Sequence[Request],
        make_plan: Callable[[Request, ClusterImage, list[Broker], Admit], Plan],
        validate_only: bool,
        charge: Charge,
    ) -> OutcomesInSteps:
        """Plan all requests, then store and apply the plans together, in steps."""
        try:
            self._refresh()
            brokers = self.brokers()
        except (StoreError, NotController) as error:
            return [_failed(name, error) for name in dict.fromkeys(request.name for request in requests)]
        room = self._partitions.room() - sum(self._promised.values())

        def plan_in_room(request: Request, image: ClusterImage, brokers: list[Broker]) -> Plan:
            nonlocal room

            def admit(added: int) -> None:
                if added > room:
                    raise Refusal(
                        ErrorCode.INVALID_PARTITIONS,
                        f"Topic '{request.name}' needs {added - room} partition(s) more than this broker can hold "
                        "(odradek.max.partitions).",
                    )
                charge(0)  # refuses a client whose quota is exceeded

            plan = make_plan(request, image, brokers, admit)
            room -= len(plan.added)  # each has its only replica here
            return plan

        image = self.image.copy()
        for topic in self._under_way.values():
            image.put(topic)
        plans, outcomes = plan_each(requests, plan_in_room, image, brokers, charge)
        if plans and not validate_only:
            yield from self._carry_out(plans, outcomes, [broker.id for broker in brokers])
        return list(outcomes.values())

    def _carry_out(self, plans: list[Plan], outcomes: dict[str, Outcome], alive: list[int]) -> Steps:
        """Store plans and open the partitions, in steps. Clients see the topics at the end.

        Between two steps the image and the slots that clients see are those from before the change, and no other change touches
        these topics. After the first transaction the change takes effect, even if this process dies: see `recover`.
        """
        self._under_way.update((plan.topic.name, plan.topic) for plan in plans)
        self._promised.update((plan.topic.name, len(plan.added)) for plan in plans)
        try:
            yield from self._initial_states(plans, alive)
            try:
                yield from self._store_plans(plans)
            except StoreError as error:
                log.warning("the metadata store refused a change of topics: %s; loading its state again", error)
                self._stale = True
                self._settle(plans, outcomes, error)
                return
            yield from self._open_partitions(plans)
        finally:
            for plan in plans:
                del self._under_way[plan.topic.name], self._promised[plan.topic.name]

    def _initial_states(self, plans: Sequence[Plan], alive: list[int]) -> Steps:
        pace = Pace(PLANNED_A_STEP)
        for plan in plans:
            for first in range(0, len(plan.added), PLANNED_A_STEP):
                part = plan.added[first : first + PLANNED_A_STEP]
                plan.states.update(initial_states(plan, alive, self.epoch, part))
                if pace.over(len(part)):
                    yield

    def _store_plans(self, plans: Sequence[Plan]) -> Steps:
        """Raises StoreError."""
        for number, transaction in enumerate(transactions_of(self._store, plans, self._epoch_version)):
            if number:
                yield MUST_GO_ON
            transaction.commit()

    def _open_partitions(self, plans: Sequence[Plan]) -> Steps:
        slots: list[int] = []
        configured = self._configured
        pace = Pace(OPENED_A_STEP)
        try:
            for plan in plans:
                states = iter(plan.states.items())
                while part := dict(islice(states, OPENED_A_STEP)):
                    if pace.over(len(part)) and slots:
                        yield MUST_GO_ON
                    entries = {partition: (state, 0) for partition, state in part.items()}
                    slots += self._partitions.ensure(plan.topic, entries, self._begin_epoch)
                    self._promised[plan.topic.name] -= len(part)
            for plan in plans:
                if configured != self._configured:
                    self._partitions.configure(plan.topic)
                self.image.put(plan.topic)
                log.info("added %d partitions to topic %s", len(plan.added), plan.topic.name)
                _warn_about_settings(plan.topic, {} if plan.replaces is None else plan.topic.config)
            self.metadata_version = self._partitions.announce(slots)
        except BaseException:
            self._stale = True  # slots and image may differ from the store
            raise

    def _settle(self, plans: list[Plan], outcomes: dict[str, Outcome], error: StoreError) -> None:
        """Set the outcomes after a failure: plans that are in the store succeeded, the others get a retriable error."""
        try:
            self._refresh()
        except (StoreError, NotController) as again:
            for plan in plans:
                outcomes[plan.topic.name] = _failed(plan.topic.name, again)
            return
        for plan in plans:
            topic = self.image.topics.get(plan.topic.name)
            if topic is None or topic.assignment != plan.topic.assignment:
                outcomes[plan.topic.name] = _failed(plan.topic.name, error)

    def _refresh(self) -> None:
        """Load the image again if it may differ from the store. Raises StoreError, NotController."""
        if not self._stale:
            return
        stat = self._store.exists(znodes.CONTROLLER_EPOCH)
        if stat is None or stat.version != self._epoch_version:
            self.become_controller()
        else:
            self.recover()

    def alter_topic(
        self, name: str, change: Callable[[Mapping[str, str]], dict[str, str]], validate_only: bool = False
    ) -> Outcome:
        """Change the settings of a topic; when this returns, all processes use them.

        :param change: returns the new settings for the present ones; if it raises Refusal, that is the outcome.
        """
        try:
            self._refresh()
            topic = self.image.topics.get(name)
            if name in self._under_way:
                return Outcome(name, ErrorCode.REQUEST_TIMED_OUT, busy(name))
            if topic is None or name in self.image.deleting:
                return Outcome(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            changed = Topic(name, topic.assignment, checked_config(change(topic.config), self._config), topic.version)
            if not validate_only and changed.config != topic.config:
                self._store_config(changed, topic.config)
        except Refusal as refusal:
            return Outcome(name, refusal.code, refusal.message)
        except (StoreError, NotController) as error:
            return _failed(name, error)
        return Outcome(name, ErrorCode.NONE, None, changed, changed.topic_id)

    def _store_config(self, topic: Topic, before: Mapping[str, str]) -> None:
        """Store the settings, then write them to the slots; a successor loads them from the store."""
        self._stale = True  # until slots and image are updated
        self._write_settings(znodes.topic_config_path(topic.name), topic.config, True)
        self._partitions.configure(topic)
        self.image.put(topic)
        self._stale = False
        log.info("changed the settings of topic %s: %s", topic.name, change_text(before, topic.config))
        _warn_about_settings(topic, before)

    def write_settings(self, path: str, settings: Mapping[str, str], keep_empty: bool = True) -> None:
        """Store the settings of a node; create its parents. Without settings, the node is deleted, unless `keep_empty`.

        Raises StoreError, NotController.
        """
        self._refresh()
        if settings or keep_empty:
            ensure_path(self._store, parent_of(path))
        self._write_settings(path, settings, keep_empty)

    def _write_settings(self, path: str, settings: Mapping[str, str], keep_empty: bool) -> None:
        transaction = self._store.transaction().check(znodes.CONTROLLER_EPOCH, self._epoch_version)
        exists = self._store.exists(path) is not None
        if not settings and not keep_empty and not (exists and self._store.children(path)):
            if not exists:
                return
            transaction.delete(path)
        elif exists:
            transaction.set(path, znodes.encode_config(settings))
        else:
            transaction.create(path, znodes.encode_config(settings))
        transaction.commit()

    def configure_all(self) -> None:
        """Write the settings of all topics to their slots again after a change of the broker's defaults."""
        self._stale = True
        self._configured += 1
        self._partitions.forget_settings()
        for topic in self.image.topics.values():
            self._partitions.configure(topic)
        self._stale = False

    def delete_topics(self, requests: Sequence[str | uuid.UUID], charge: Charge = free_of_charge) -> list[Outcome]:
        """Delete topics by name or id; one outcome for each request, in order, with an empty ``name`` for an unknown id."""
        try:
            self._refresh()
        except (StoreError, NotController) as error:
            return [named(_failed("", error), request) for request in requests]
        outcomes, deletable = plan_deletions(
            requests,
            self.image,
            bool(self._config["delete.topic.enable"]),
            lambda name: len(self.image.topics[name].assignment.partitions),
            charge,
            self._under_way,
        )
        if not deletable:
            return outcomes
        self._stale = True  # until the deletion is complete
        names = [outcome.name for outcome in deletable]
        topics = _partitions_of(self.image, names)
        slots: list[int] = []
        try:
            self._mark_deleted(names)
            slots = self._partitions.delete(topics)
            self._remove_deleted(self.image, names, topics)
            self._stale = False
        except (StoreError, OSError) as error:
            log.warning(
                "cannot finish the deletion of %s: %s; the next change of topics retries it", ", ".join(names), error
            )
            for outcome in deletable:
                if outcome.name in self.image.topics and outcome.name not in self.image.deleting:
                    failed = _failed(outcome.name, error)
                    outcome.code, outcome.message = failed.code, failed.message
        if slots:
            self.metadata_version = self._partitions.announce(slots)
        return outcomes

    def _mark_deleted(self, names: Sequence[str]) -> None:
        """Store the mark of the deletion. After this, the deletion takes effect: a successor completes it."""
        transaction = self._store.transaction().check(znodes.CONTROLLER_EPOCH, self._epoch_version)
        for name in names:
            transaction.create(znodes.delete_topic_path(name))
        transaction.commit()
        self.image.deleting.update(names)

    def _remove_deleted(self, image: ClusterImage, names: Sequence[str], topics: Mapping[str, Sequence[int]]) -> None:
        """Finish deletions whose slots and directories are already deleted: remove the checkpoint lines, then the nodes;
        the last transaction also removes the mark of the deletion. The names can then be used again. Offsets of groups in the
        tree are deleted later, see `odradek.metadata.offset_sweep`. Raises StoreError, OSError.
        """
        self._partitions.forget(topics)
        for name in names:
            delete_tree(self._store, znodes.partitions_path(name))
            transaction = self._store.transaction().check(znodes.CONTROLLER_EPOCH, self._epoch_version)
            for path in (znodes.topic_path(name), znodes.topic_config_path(name), znodes.delete_topic_path(name)):
                if self._store.exists(path) is not None:
                    transaction.delete(path)
            transaction.commit()
            image.remove(name)
            self.deleted += 1
            log.info("deleted topic %s", name)


def _at_once(steps: OutcomesInSteps) -> list[Outcome]:
    outcomes: list[Outcome] = Stepwise(steps).finish()
    return outcomes


def _partitions_of(image: ClusterImage, names: Sequence[str]) -> dict[str, list[int]]:
    """The partitions of topics, by name; an empty list if the topic is not in the image."""
    return {
        name: list(image.topics[name].assignment.partitions) if name in image.topics else [] for name in names
    }  # fmt: skip


def _warn_about_settings(topic: Topic, before: Mapping[str, str]) -> None:
    """Log warnings about changed settings without effect. :param before: the settings before the change."""
    changed = {name: value for name, value in topic.config.items() if before.get(name) != value}
    for name, value in without_effect(changed).items():
        log.warning(
            "topic %s: %s=%s has no effect in this broker, see docs/reference/configuration.md", topic.name, name, value
        )
    replicas = min(map(len, topic.assignment.partitions.values()), default=1)
    if int(changed.get("min.insync.replicas", 1)) > replicas:
        log.warning(
            "topic %s: min.insync.replicas=%s exceeds the %d replica(s) of its partitions: acks=all waits for these "
            "replicas only",
            topic.name, changed["min.insync.replicas"], replicas,
        )  # fmt: skip


def _failed(name: str, error: StoreError | NotController | OSError) -> Outcome:
    return Outcome(name, code_of(error), str(error))
