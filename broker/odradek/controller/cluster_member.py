"""What every broker of a cluster does with topics and settings: creates topics that clients request, and changes settings.

As in Kafka with ZooKeeper, any broker may do this, and writes the metadata store itself; the controller sees the new nodes and
acts on them. All other changes of topics are requests to the controller. Runs in the coordinator's store thread.
"""

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from odradek.config.broker_config import BrokerConfig
from odradek.config.dynamic import change_text
from odradek.controller.assignment import Broker
from odradek.controller.image import ClusterImage, Topic, load_image
from odradek.controller.outcomes import Outcome
from odradek.controller.policies import Policies
from odradek.controller.store_errors import code_of
from odradek.controller.topic_names import INTERNAL
from odradek.controller.topics import (
    NewTopic,
    Plan,
    Refusal,
    checked_config,
    internal_topic,
    plan_topic,
    refuse_too_large,
)
from odradek.metadata import znodes
from odradek.metadata.cluster import usable_registration
from odradek.metadata.corrupt_nodes import usable
from odradek.metadata.store import (
    ANY_VERSION,
    BadVersion,
    Event,
    NodeExists,
    NoNode,
    Store,
    StoreError,
    ensure_path,
    parent_of,
)
from odradek.protocol.errors import ErrorCode

log = logging.getLogger("odradek.controller")

MANY_BROKERS = 1 << 31
TOPICS_READ_AT_ONCE = 100
NOT_STORED = -2
"""The version of settings that do not exist yet; see `write_settings`."""
ATTEMPTS = 5
"""How often a change of settings is repeated when another broker changes them at the same time."""
NOT_NOTIFIED = znodes.GROUP_CONFIGS + "/"
"""Settings of groups exist only in this broker: Kafka brokers cannot read a notification of such a change."""

ApplySettings = Callable[[Mapping[str, Mapping[str, str]]], None]
"""Applies all settings of topics, by name, to the slots of their partitions; returns before that is done."""


class ClusterMember:
    """See the module.

    :param store: a store with an open session.
    :param apply: see `ApplySettings`. :param apply_all: applies the settings of all topics again.
    :param rng: chooses the brokers of the first replicas of topics.
    :raises ConfigError: a policy in the configuration cannot be loaded.
    """

    def __init__(
        self,
        store: Store,
        config: BrokerConfig,
        apply: ApplySettings,
        apply_all: Callable[[], None],
        rng: random.Random | None = None,
    ) -> None:
        self.policies = Policies(config)
        self.metadata_version = 0
        """No worker has to wait for a version: the controller publishes the result of a change later."""
        self._store = store
        self._config = config
        self._apply = apply
        self._apply_all = apply_all
        self._rng = rng or random.Random()
        self._image = ClusterImage()
        self._stale = True

    # -- reading --------------------------------------------------------------------------------------------------

    @property
    def image(self) -> ClusterImage:
        """The topics in the store. Their settings and assignments may be older than the last change by another broker. Raises
        StoreError."""
        if self._stale:
            self._store.children(znodes.TOPICS, self._note_change)
            self._store.children(znodes.DELETE_TOPICS, self._note_change)
            self._stale = False  # before the topics are read: a change meanwhile sets it again
            try:
                self._image = load_image(self._store, tolerant=True)
            except StoreError:
                self._stale = True
                raise
        return self._image

    def _note_change(self, _: Event) -> None:
        self._stale = True

    def look_again(self) -> None:
        """Read the topics again at the next use; called after a session was lost, whose watches are lost, too."""
        self._stale = True

    def brokers(self) -> list[Broker]:
        """The live brokers. Raises StoreError."""
        ids = znodes.broker_ids(self._store.children(znodes.BROKER_IDS))
        nodes = self._store.get_many([znodes.broker_path(broker_id) for broker_id in ids])
        registrations = {
            broker_id: usable_registration(broker_id, node[0])
            for broker_id, node in zip(ids, nodes, strict=True)
            if node is not None
        }
        return [Broker(broker_id, found.rack) for broker_id, found in registrations.items() if found is not None]

    def settings_of(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """The settings of topics, by name; empty if none are stored. Raises StoreError, CorruptNode."""
        return {
            name: {} if data is None else znodes.decode_config(path, data) for name, path, data in self._read(topics)
        }

    def usable_settings_of(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """See `settings_of`; without the topics whose settings cannot be decoded. Raises StoreError."""
        found = {}
        for name, path, data in self._read(topics):
            consequence = (
                f"topic {name} keeps the settings that it has; after a start it has the defaults and deletes nothing"
            )
            settings = usable(path, partial(znodes.decode_config, path, data or b""), None, consequence)
            if settings is not None:
                found[name] = settings
        return found

    def _read(self, topics: Sequence[str]) -> list[tuple[str, str, bytes | None]]:
        """The name, the path and the data of the settings of topics."""
        paths = [znodes.topic_config_path(name) for name in topics]
        nodes = self._store.get_many(paths)
        return [
            (name, path, None if node is None else node[0])
            for name, path, node in zip(topics, paths, nodes, strict=True)
        ]

    def has_partitions(self) -> bool:
        """Whether a partition exists that a controller publishes: one that had a leader, of a topic that is not being deleted.
        Raises StoreError."""
        names = sorted(set(self._store.children(znodes.TOPICS)) - set(self._store.children(znodes.DELETE_TOPICS)))
        for start in range(0, len(names), TOPICS_READ_AT_ONCE):
            states = [znodes.state_path(name, 0) for name in names[start : start + TOPICS_READ_AT_ONCE]]
            if any(self._store.get_many(states)):
                return True
        return False

    # -- creation of topics ---------------------------------------------------------------------------------------

    def auto_create(self, names: Sequence[str]) -> list[Outcome]:
        """Create topics that a client requested, with the broker's defaults; existing topics are no error.

        A topic that exists now has the outcome LEADER_NOT_AVAILABLE until the controller has elected its leaders. Internal
        topics get the settings that their coordinators need; if too few brokers are live for their replication factor, they are
        refused, and clients retry (KIP-115).
        """
        try:
            image, brokers = self.image, self.brokers()
            return [self._create(name, image, brokers) for name in dict.fromkeys(names)]
        except StoreError as error:
            return [Outcome(name, ErrorCode.LEADER_NOT_AVAILABLE, str(error)) for name in dict.fromkeys(names)]

    def _create(self, name: str, image: ClusterImage, brokers: list[Broker]) -> Outcome:
        """Create one topic. Raises StoreError."""
        if name in image.topics:
            return Outcome(name, ErrorCode.LEADER_NOT_AVAILABLE, f"Topic '{name}' has no leader yet.")
        request = internal_topic(name, self._config, MANY_BROKERS) if name in INTERNAL else NewTopic(name)
        try:
            if not brokers:
                raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, "No broker is registered.")
            plan = plan_topic(request, image, self._config, brokers, self._rng)
            refuse_too_large(plan)
            self.policies.check_topic(request, plan)
        except Refusal as refusal:
            return Outcome(name, refusal.code, refusal.message)
        try:
            self._write(plan)
        except NodeExists:  # another broker was faster
            self._stale = True
            return Outcome(name, ErrorCode.LEADER_NOT_AVAILABLE, f"Topic '{name}' has no leader yet.")
        image.put(plan.topic)
        log.info("created topic %s with %d partitions, as a client requested", name, len(plan.added))
        return Outcome(name, ErrorCode.LEADER_NOT_AVAILABLE, f"Topic '{name}' was created and has no leader yet.")

    def _write(self, plan: Plan) -> None:
        """Write the settings, then the topic, which exists from then on. Raises StoreError; NodeExists: the topic exists."""
        config_path = znodes.topic_config_path(plan.topic.name)
        settings = znodes.encode_config(plan.topic.config)
        transaction = self._store.transaction()
        if self._store.exists(config_path) is None:
            transaction.create(config_path, settings)
        else:
            transaction.set(config_path, settings)  # left by a former topic of this name
        transaction.create(znodes.topic_path(plan.topic.name), znodes.encode_topic(plan.topic.assignment))
        transaction.commit()

    # -- settings -------------------------------------------------------------------------------------------------

    def alter_topic(
        self, name: str, change: Callable[[Mapping[str, str]], dict[str, str]], validate_only: bool = False
    ) -> Outcome:
        """Change the settings of a topic in the store; all brokers apply them soon after.

        :param change: returns the new settings for the present ones; if it raises Refusal, that is the outcome. It is called
            again if another broker changes the settings at the same time, so that no change is lost.
        """
        try:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    return self._alter_topic(name, change, validate_only)
                except (BadVersion, NodeExists, NoNode):
                    if attempt == ATTEMPTS:
                        raise
            raise AssertionError("the last attempt returns or raises")
        except Refusal as refusal:
            return Outcome(name, refusal.code, refusal.message)
        except StoreError as error:
            return Outcome(name, code_of(error), str(error))

    def _alter_topic(
        self, name: str, change: Callable[[Mapping[str, str]], dict[str, str]], validate_only: bool
    ) -> Outcome:
        """See `alter_topic`. Raises Refusal, StoreError."""
        path = znodes.topic_config_path(name)
        node, stored = self._store.get_many([znodes.topic_path(name), path])
        if node is None:
            return Outcome(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        present = {} if stored is None else znodes.decode_config(path, stored[0])
        settings = checked_config(change(present), self._config)
        topic = Topic(name, znodes.decode_topic(name, node[0]), settings, node[1].version)
        if not validate_only:
            # Settings that are stored already are written again, as Kafka does: the broker that stored them may have failed
            # before it notified the others.
            self.write_settings(path, settings, version=NOT_STORED if stored is None else stored[1].version)
            self._apply({name: settings})
            if settings != present:
                log.info("changed the settings of topic %s: %s", name, change_text(present, settings))
        return Outcome(name, ErrorCode.NONE, None, topic, topic.topic_id)

    def write_settings(
        self, path: str, settings: Mapping[str, str], keep_empty: bool = True, version: int = ANY_VERSION
    ) -> None:
        """Store the settings of a node and notify all brokers, in one transaction: no broker misses a change.

        Without settings, the node is deleted, unless `keep_empty` or it has children. Raises StoreError.

        :param version: of the settings that these replace, or `NOT_STORED`; the change fails with BadVersion or NodeExists if
            another broker was faster.
        """
        exists = self._store.exists(path) is not None
        transaction = self._store.transaction()
        if not settings and not keep_empty and not (exists and self._store.children(path)):
            for unused in [path, *self._unused_parents(path)] if exists else ():
                transaction.delete(unused)
        elif exists and version != NOT_STORED:
            transaction.set(path, znodes.encode_config(settings), version)
        else:
            ensure_path(self._store, parent_of(path))
            transaction.create(path, znodes.encode_config(settings))
        if not path.startswith(NOT_NOTIFIED):
            entity = path.removeprefix(f"{znodes.CONFIG}/")
            transaction.create(znodes.CONFIG_CHANGE, znodes.encode_config_change(entity), sequential=True)
        transaction.commit()

    def _unused_parents(self, path: str) -> list[str]:
        """The nodes above the quotas of a user with a client id that have no use without them: of its client ids, and of the
        user. Raises StoreError."""
        clients = parent_of(path)
        user = parent_of(clients)
        if parent_of(user) != znodes.USER_CONFIGS or len(self._store.children(clients)) > 1:
            return []
        data, stat = self._store.get(user)
        return [clients] if znodes.decode_config(user, data) or stat.children > 1 else [clients, user]

    def configure_all(self) -> None:
        """Apply the settings of all topics again after a change of the broker's defaults."""
        self._apply_all()
