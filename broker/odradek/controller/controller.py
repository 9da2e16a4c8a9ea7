"""The controller: makes topic changes durable in the metadata store, then real in the shared table, then known.

Runs in the coordinator's controller thread, one change after the other. The store's transaction is the truth: a
change that is in it happens, even if the controller dies right after, because its successor's `recover` brings slots
and directories to it; a change that is not in it did not happen, and its client may try again. Whenever the store
refuses or fails, the image in memory is thrown away and read anew before the next change.
"""

import logging
import random
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from odradek.config.broker_config import BrokerConfig
from odradek.config.dynamic import change_text
from odradek.config.table import without_effect
from odradek.controller.assignment import Broker
from odradek.controller.image import ClusterImage, Topic, load_image, load_states
from odradek.controller.partitions import LocalPartitions
from odradek.controller.policies import Policies
from odradek.controller.topic_names import INTERNAL
from odradek.controller.topics import (
    NewPartitions,
    NewTopic,
    Plan,
    Refusal,
    checked_config,
    initial_states,
    internal_topic,
    plan_partitions,
    plan_topic,
    write_missing_states,
    write_plans,
    write_states,
)
from odradek.metadata import znodes
from odradek.metadata.cluster import elect_controller, was_adopted
from odradek.metadata.store import NodeError, Store, StoreError, delete_tree, ensure_path, parent_of
from odradek.protocol.errors import ErrorCode

log = logging.getLogger("odradek.controller")

Wish = TypeVar("Wish", NewTopic, NewPartitions)


class NotController(Exception):
    """Another broker is the controller."""


@dataclass
class Outcome:
    """What became of one wish: ``code`` NONE and the topic as it is now (or would be), or the error and its message."""

    name: str
    code: ErrorCode
    message: str | None = None
    topic: Topic | None = None
    topic_id: uuid.UUID | None = None


class Controller:
    """Topic changes of a cluster.

    :param store: with a session begun.
    :param chance: where the first replicas of topics are put.
    :ivar deleted: topics deleted so far.
    :raises ConfigError: a policy that the configuration names cannot be loaded.
    """

    def __init__(
        self,
        store: Store,
        partitions: LocalPartitions,
        config: BrokerConfig,
        broker_id: int,
        chance: random.Random | None = None,
    ) -> None:
        self.policies = Policies(config)
        self._store = store
        self._partitions = partitions
        self._config = config
        self._broker_id = broker_id
        self._chance = chance or random.Random()
        self._epoch_version = -1
        self._stale = True
        self.epoch = 0
        self.image = ClusterImage()
        self.metadata_version = 0
        self.deleted = 0

    # -- office ---------------------------------------------------------------------------------------------------

    def become_controller(self) -> None:
        """Become the controller in a new epoch and recover. Raises NotController, StoreError."""
        self._stale = True
        election = elect_controller(self._store, self._broker_id)
        if election.epoch is None:
            raise NotController(f"broker {election.broker_id} is the controller")
        self.epoch = election.epoch
        stat = self._store.exists(znodes.CONTROLLER_EPOCH)
        assert stat is not None
        self._epoch_version = stat.version
        log.info("broker %d is the controller, epoch %d", self._broker_id, self.epoch)
        self.recover()

    def recover(self) -> None:
        """Read the store anew and bring states, slots and directories to it. Raises StoreError.

        Completes what a dead controller left half done: topics without all states or slots, and deletions.
        """
        self._stale = True
        image = load_image(self._store)
        deleted = self._finish_pending_deletions(image)
        kept = self._partitions.kept()
        for name, entry in list(kept.items()):
            known = image.topics.get(name)
            if known is None or known.topic_id is None or known.topic_id.bytes != entry.topic_id:
                log.warning("topic %s (%s) is not in the metadata: taken out of service", name, entry.topic_id.hex())
                self._take_out({name: entry.settled + entry.unsettled})
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
        """Whether all deletions that had begun are finished; else the next change of topics tries again. Raises StoreError."""
        names = sorted(image.deleting)
        topics = _partitions_of(image, names)
        self._partitions.delete(topics)
        try:
            self._remove_deleted(image, names, topics)
        except OSError as error:
            log.error("the deletion of %s waits for room on a disk: %s", ", ".join(names), error)
            return False
        return True

    def _take_out(self, topics: Mapping[str, Sequence[int]]) -> None:
        """Delete partitions that are not in the metadata store."""
        self._partitions.delete(topics)
        try:
            self._partitions.forget(topics)
        except OSError as error:
            log.error("cannot remove the partitions of %s from the checkpoints: %s", ", ".join(topics), error)

    # -- leader epochs --------------------------------------------------------------------------------------------

    def open_waiting(self) -> None:
        """Open the logs that waited for room, if there is room now, with recovery. Raises StoreError.

        Each is led in a new leader epoch; in a cluster that may return to Kafka only if it lost records.
        """
        waiting = self._partitions.to_open()
        if waiting:
            self._store_epochs(self._partitions.unstored_epochs())
            self._begin_epochs(waiting)
            self._partitions.open_waiting(waiting, self._begin_epoch)

    def _begin_epochs(self, waiting: Sequence[tuple[str, int, int]]) -> None:
        """Begin a new leader epoch for each log of `waiting` that needs one whatever its files contain. Raises StoreError.

        A log gets one epoch, however many attempts to open it fail: its slot says whether it has one that nobody was served in.
        If a predecessor stored that epoch and died before it was in the slot, the slot gets it now.
        """
        epochs = self._partitions.epochs_not_begun(waiting)
        if epochs and not was_adopted(self._store):
            self._store_epochs({place: (slot, epoch + 1) for place, (slot, epoch) in epochs.items()})

    def _begin_epoch(self, topic: str, partition: int, slot: int, leader_epoch: int) -> None:
        """Begin a leader epoch for a log that turned out to need it, before the log is served. Raises StoreError.

        The slot has it first: the next attempt finds the log already cut, and no sign that records were lost.
        """
        self._partitions.mark_epoch(slot, leader_epoch)
        self._store_epochs({(topic, partition): (slot, leader_epoch)})

    def _store_epochs(self, epochs: Mapping[tuple[str, int], tuple[int, int]]) -> None:
        """Make leader epochs durable, then put them into their slots, before anybody is served in them. Raises StoreError.

        :param epochs: {(topic, partition): (slot, leader epoch)}. If the store has a newer one already, the slot gets that.
        """
        if not epochs:
            return
        topics: dict[str, list[int]] = {}
        for topic, partition in epochs:
            topics.setdefault(topic, []).append(partition)
        stored = []
        changes = []
        for place, (state, version) in load_states(self._store, topics.items()).items():
            epoch = epochs[place][1]
            if state.leader_epoch < epoch and state.leader == self._broker_id:
                state = state._replace(leader_epoch=epoch, controller_epoch=self.epoch)
                changes.append((znodes.state_path(*place), znodes.encode_state(state), version))
                version += 1
            stored.append((*place, state.leader_epoch, version))
        write_states(self._store, changes, self._epoch_version)
        for entry in stored:
            self._partitions.put_epoch(*entry)

    def _complete_states(self, topic: Topic, partitions: list[int]) -> dict[int, tuple[znodes.PartitionState, int]]:
        """The states of these partitions, those written now that are not there."""
        states = load_states(self._store, [(topic.name, partitions)])
        absent = [partition for partition in partitions if (topic.name, partition) not in states]
        if absent:
            alive = [broker.id for broker in self.brokers()]
            made = initial_states(Plan(topic, absent), alive, self.epoch)
            write_missing_states(self._store, topic, made, self._epoch_version)
            states.update({(topic.name, partition): (state, 0) for partition, state in made.items()})
        return {partition: states[topic.name, partition] for partition in partitions}

    def brokers(self) -> list[Broker]:
        """The brokers that live. Raises StoreError."""
        found = []
        for name in self._store.children(znodes.BROKER_IDS):
            registration = znodes.decode_broker(int(name), self._store.get(znodes.broker_path(int(name)))[0])
            found.append(Broker(int(name), registration.rack))
        return found

    # -- changes --------------------------------------------------------------------------------------------------

    def create_topics(self, wishes: Sequence[NewTopic], validate_only: bool = False) -> list[Outcome]:
        """Create topics, each for itself: an outcome for each distinct name, in the order of the wishes."""

        def plan(wish: NewTopic, image: ClusterImage, brokers: list[Broker]) -> Plan:
            made = plan_topic(wish, image, self._config, brokers, self._chance)
            self.policies.check_topic(wish, made)
            return made

        return self._change(wishes, plan, validate_only)

    def create_partitions(self, wishes: Sequence[NewPartitions], validate_only: bool = False) -> list[Outcome]:
        """Add partitions to topics, likewise."""

        def plan(wish: NewPartitions, image: ClusterImage, brokers: list[Broker]) -> Plan:
            return plan_partitions(wish, image, self._config, brokers, self._chance)

        return self._change(wishes, plan, validate_only)

    def auto_create(self, names: Sequence[str]) -> list[Outcome]:
        """Create topics with the broker's defaults because a client asked for them; existing ones are fine.

        Those of the broker itself get the settings that their coordinators need.
        """
        wishes = [
            internal_topic(name, self._config, len(self.brokers())) if name in INTERNAL else NewTopic(name)
            for name in dict.fromkeys(names)
        ]
        outcomes = self.create_topics(wishes)
        for outcome in outcomes:
            topic = self.image.topics.get(outcome.name)
            if outcome.code == ErrorCode.TOPIC_ALREADY_EXISTS and topic is not None:
                outcome.code, outcome.message, outcome.topic = ErrorCode.NONE, None, topic
                outcome.topic_id = topic.topic_id
        return outcomes

    def _change(
        self,
        wishes: Sequence[Wish],
        plan: Callable[[Wish, ClusterImage, list[Broker]], Plan],
        validate_only: bool,
    ) -> list[Outcome]:
        """Plan every wish, make the plans durable together, then real; what the store refuses is looked at again."""
        outcomes: dict[str, Outcome] = {}
        plans: list[Plan] = []
        try:
            self._refresh()
            brokers = self.brokers()
        except (StoreError, NotController) as error:
            return [_failed(name, error) for name in dict.fromkeys(wish.name for wish in wishes)]
        scratch = self.image.copy()
        room = self._partitions.room()
        counts = Counter(wish.name for wish in wishes)
        for wish in wishes:
            try:
                if counts[wish.name] > 1:
                    raise Refusal(ErrorCode.INVALID_REQUEST, f"Topic '{wish.name}' is named {counts[wish.name]} times.")
                made = plan(wish, scratch, brokers)
                room -= sum(self._broker_id in made.topic.assignment.partitions[p] for p in made.added)
                if room < 0:
                    raise Refusal(
                        ErrorCode.INVALID_PARTITIONS,
                        f"Topic '{wish.name}' would need {-room} partition(s) more than this broker can hold.",
                    )
            except Refusal as refusal:
                outcomes[wish.name] = Outcome(wish.name, refusal.code, refusal.message)
                continue
            made.states = initial_states(made, [broker.id for broker in brokers], self.epoch)
            scratch.put(made.topic)
            plans.append(made)
            outcomes[wish.name] = Outcome(wish.name, ErrorCode.NONE, None, made.topic, made.topic.topic_id)
        if plans and not validate_only:
            self._carry_out(plans, outcomes)
        return list(outcomes.values())

    def _carry_out(self, plans: list[Plan], outcomes: dict[str, Outcome]) -> None:
        try:
            write_plans(self._store, plans, self._epoch_version)
        except StoreError as error:
            log.warning("topic change refused by the metadata store: %s", error)
            self._stale = True
            self._settle(plans, outcomes, error)
            return
        slots = []
        self._stale = True  # until slots and image have followed
        for made in plans:
            slots += self._partitions.ensure(
                made.topic, {p: (state, 0) for p, state in made.states.items()}, self._begin_epoch
            )
            self.image.put(made.topic)
            log.info("added %d partitions to topic %s", len(made.added), made.topic.name)
            _warn(made.topic, {} if made.replaces is None else made.topic.config)
        self.metadata_version = self._partitions.announce(slots)
        self._stale = False

    def _settle(self, plans: list[Plan], outcomes: dict[str, Outcome], error: StoreError) -> None:
        """After a failure: what is in the store has happened, the rest gets a retriable error."""
        try:
            self._refresh()
        except (StoreError, NotController) as again:
            for made in plans:
                outcomes[made.topic.name] = _failed(made.topic.name, again)
            return
        for made in plans:
            found = self.image.topics.get(made.topic.name)
            if found is None or found.assignment != made.topic.assignment:
                outcomes[made.topic.name] = _failed(made.topic.name, error)

    def _refresh(self) -> None:
        """Make sure that the image is what the store says. Raises StoreError, NotController."""
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
        """Change a topic's settings; in force in all processes when this returns.

        :param change: makes the new settings from the present ones; what it raises as Refusal is the outcome.
        """
        try:
            self._refresh()
            topic = self.image.topics.get(name)
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
        """Durable first, then in the slots: a successor takes it from the store."""
        self._stale = True  # until slots and image have followed
        self._write_settings(znodes.topic_config_path(topic.name), topic.config, True)
        self._partitions.configure(topic)
        self.image.put(topic)
        self._stale = False
        log.info("changed the settings of topic %s: %s", topic.name, change_text(before, topic.config))
        _warn(topic, before)

    def write_settings(self, path: str, settings: Mapping[str, str], keep_empty: bool = True) -> None:
        """Make the settings of a node durable, parents included; without settings the node goes, unless it is to be kept.

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
        """Put every topic's settings into its slots once more: the broker's defaults have changed."""
        self._stale = True
        self._partitions.forget_settings()
        for topic in self.image.topics.values():
            self._partitions.configure(topic)
        self._stale = False

    def delete_topics(self, wishes: Sequence[str | uuid.UUID]) -> list[Outcome]:
        """Delete topics by name or id; an outcome for each wish, in order, ``name`` empty for an unknown id."""
        try:
            self._refresh()
        except (StoreError, NotController) as error:
            return [_named(_failed("", error), wish) for wish in wishes]
        outcomes = [self._deletable(wish) for wish in wishes]
        counts = Counter(outcome.name for outcome in outcomes)
        for outcome in outcomes:
            if outcome.name and counts[outcome.name] > 1:
                outcome.code, outcome.message = ErrorCode.INVALID_REQUEST, f"Topic '{outcome.name}' is named twice."
        doomed = [outcome for outcome in outcomes if outcome.code == ErrorCode.NONE]
        if not doomed:
            return outcomes
        self._stale = True  # until all of it is done
        names = [outcome.name for outcome in doomed]
        topics = _partitions_of(self.image, names)
        slots: list[int] = []
        try:
            self._mark_deleted(names)
            slots = self._partitions.delete(topics)
            self._remove_deleted(self.image, names, topics)
            self._stale = False
        except (StoreError, OSError) as error:
            log.warning("the deletion of topics was interrupted, the next change of topics finishes it: %s", error)
            for outcome in doomed:
                if outcome.name in self.image.topics and outcome.name not in self.image.deleting:
                    failed = _failed(outcome.name, error)
                    outcome.code, outcome.message = failed.code, failed.message
        if slots:
            self.metadata_version = self._partitions.announce(slots)
        return outcomes

    def _deletable(self, wish: str | uuid.UUID) -> Outcome:
        if isinstance(wish, str):
            topic, unknown = self.image.topics.get(wish), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            topic, unknown = self.image.by_id.get(wish), ErrorCode.UNKNOWN_TOPIC_ID
        if topic is None or topic.name in self.image.deleting:
            return _named(Outcome("", unknown, f"There is no topic '{wish}'."), wish)
        if not self._config["delete.topic.enable"]:
            code, message = ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this broker."
            return Outcome(topic.name, code, message, topic, topic.topic_id)
        return Outcome(topic.name, ErrorCode.NONE, None, topic, topic.topic_id)

    def _mark_deleted(self, names: Sequence[str]) -> None:
        """From here on the deletion happens, whoever completes it."""
        transaction = self._store.transaction().check(znodes.CONTROLLER_EPOCH, self._epoch_version)
        for name in names:
            transaction.create(znodes.delete_topic_path(name))
        transaction.commit()
        self.image.deleting.update(names)

    def _remove_deleted(self, image: ClusterImage, names: Sequence[str], topics: Mapping[str, Sequence[int]]) -> None:
        """Finish deletions whose slots and directories are removed: the lines in the checkpoints first, then the nodes, the
        mark of the deletion with the last ones. From then on the names are free. Offsets that groups have in the tree are
        deleted later, see `odradek.metadata.offset_sweep`. Raises StoreError, OSError.
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
            log.info("topic %s deleted", name)


def _partitions_of(image: ClusterImage, names: Sequence[str]) -> dict[str, list[int]]:
    """The partitions of topics, by name; none of a topic that has no node any more."""
    return {
        name: list(image.topics[name].assignment.partitions) if name in image.topics else [] for name in names
    }  # fmt: skip


def _named(outcome: Outcome, wish: str | uuid.UUID) -> Outcome:
    """The outcome under what the client called the topic."""
    if isinstance(wish, str):
        outcome.name = wish
    else:
        outcome.topic_id = wish
    return outcome


def _warn(topic: Topic, before: Mapping[str, str]) -> None:
    """Tell what was asked for and is not to be had. :param before: the topic's settings until now."""
    changed = {name: value for name, value in topic.config.items() if before.get(name) != value}
    for name, value in without_effect(changed).items():
        log.warning("topic %s: %s=%s has no effect here, see docs/configuration.md", topic.name, name, value)
    fewest = min(map(len, topic.assignment.partitions.values()), default=1)
    if int(changed.get("min.insync.replicas", 1)) > fewest:
        log.warning(
            "topic %s: min.insync.replicas=%s is more than the %d replica(s) of its partitions: a write with acks=all is "
            "acknowledged when these have it",
            topic.name, changed["min.insync.replicas"], fewest,
        )  # fmt: skip


def _failed(name: str, error: Exception) -> Outcome:
    """A retriable outcome: another controller, a store that moved on, or one that cannot be used now."""
    retriable = isinstance(error, NotController | NodeError)
    return Outcome(name, ErrorCode.NOT_CONTROLLER if retriable else ErrorCode.KAFKA_STORAGE_ERROR, str(error))
