"""The membership of a broker in a cluster with ZooKeeper. Used in the coordinator's store thread, except where noted.

The broker joins in steps, between which the coordinator's loop prepares the slots: `open` connects and checks the cluster,
`register` makes the broker known to the controller. Another broker may be the controller; this one then waits for its
requests. A session that was lost ends the registration; the next one has a new broker epoch, so that the controller treats the
broker as restarted.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import odradek._ext.shm.brokers as brokers
from odradek._ext.shm import pauses
from odradek.api.coordinator_call import CoordinatorView
from odradek.clock import now_ms
from odradek.controller.acls import Acls
from odradek.controller.broker_settings import BrokerSettings, TlsChanges
from odradek.controller.cluster.client_requests import ClientRequests
from odradek.controller.cluster_member import ApplySettings, ClusterMember
from odradek.controller.delegation_tokens import DelegationTokens, opened_tokens, secret_key_of
from odradek.controller.enforced_quotas import EnforcedQuotas
from odradek.controller.producer_ids import ProducerIds, ProducerIdsExhausted
from odradek.controller.topic_names import CLUSTER_METADATA
from odradek.metadata import acl_nodes, token_nodes, znodes
from odradek.metadata.acl_nodes import EVERYTHING, Pattern
from odradek.metadata.changes import Notifications, SettingsChanges
from odradek.metadata.cluster import check_endpoints, check_tree, join_cluster, register_again, register_broker
from odradek.metadata.corrupt_nodes import usable
from odradek.metadata.offset_sweep import OffsetSweep
from odradek.metadata.session import SessionEvent
from odradek.metadata.store import Event, Refused, Stat, Store, StoreError, StoreUnavailable, Watch, ensure_path
from odradek.metadata.znodes import BrokerRegistration, CorruptNode
from odradek.metadata.zookeeper import ZookeeperStore, open_zookeeper
from odradek.metadata.zookeeper_connection import accepts
from odradek.processes.authorization import has_authorizer
from odradek.processes.context import ProcessContext
from odradek.processes.coordinator.cluster.broker_session import BrokerSession
from odradek.processes.coordinator.cluster.controller_service import ControllerService
from odradek.processes.coordinator.security.acl_publisher import opened_acls
from odradek.shm.partition_table import PartitionTable

log = logging.getLogger("odradek.controller")

LOG_DIR_FAILURE = 1
USERS = znodes.USER_CONFIGS.removeprefix(f"{znodes.CONFIG}/") + "/"


def begin_registration(store: Store, broker_id: int, registration: BrokerRegistration) -> None:
    """Register the broker, and note its broker epoch. Raises StoreError, BrokerIdTaken.

    After ZooKeeper was restored from an older backup, the broker epoch is smaller than that of the former registration.
    Requests that the controller has sent to it already were refused as those for the former one, and are not repeated. So there
    is another registration, after its epoch counts as ended: requests to the next one are accepted from then on.
    """
    epoch = register_broker(store, broker_id, registration)
    if epoch < brokers.least_epoch():
        log.warning(
            "broker %d was registered with broker epoch %d, which is smaller than its former one: ZooKeeper was restored from "
            "an older backup; registering again, so that the controller sends everything again",
            broker_id, epoch,
        )  # fmt: skip
        brokers.end_registration(epoch)
        epoch = register_again(store, broker_id, registration)
    brokers.set_broker_epoch(epoch)
    log.info("registered broker %d with broker epoch %d", broker_id, epoch)


class ClusterMembership:
    """See the module, and `Membership` in `coordinator/store_service.py`.

    :param tls: replaces certificates at run time; None without TLS.
    :param apply: applies changed settings of topics to slots, in the replicas thread.
    :param apply_all: reads the settings of all topics with a log on this broker, and applies them.
    :param make_controller: makes the controller of this broker for a store, which takes part in no election yet.
    :param on_session: see `ZookeeperStore.on_session`.
    :param on_settings: called in any thread if another broker changed settings, see `apply_settings`.
    :param on_tree: called in any thread if the cluster id in the tree may have changed, see `check_tree`.
    """

    def __init__(
        self,
        context: ProcessContext,
        tls: TlsChanges | None,
        apply: ApplySettings,
        apply_all: Callable[[], None],
        make_controller: Callable[[Store], ControllerService],
        on_session: Callable[[SessionEvent], None],
        on_settings: Callable[[], None],
        on_tree: Callable[[], None],
    ) -> None:
        self._context = context
        self._tls = tls
        self._apply = apply
        self._apply_all = apply_all
        self._make_controller = make_controller
        self._on_session = on_session
        self._on_settings = on_settings
        self._on_tree = on_tree
        self._changes: SettingsChanges | None = None
        self._groups_changed = self._producer_ids_changed = False
        self._producer_ids: ProducerIds | None = None
        self._acls: Acls | None = None
        self._acl_changes: list[Notifications[Pattern]] = []
        self._tokens: DelegationTokens | None = None
        self._token_changes: Notifications[str] | None = None
        self._session: BrokerSession | None = None
        self._stopping = False
        self.controller: ControllerService | None = None
        self._member: ClusterMember | None = None
        self._settings: BrokerSettings | None = None
        self._quotas: EnforcedQuotas | None = None
        self.store: ZookeeperStore | None = None

    def beat(self) -> float:
        """Note that this process keeps the session, or knows that it has no connection [R 12]. Called by kazoo's thread, and
        by the event loop while there is no connection. Returns the time in seconds until the next call."""
        paused_ms = pauses.session_beat(pauses.clock_ms())
        if paused_ms and brokers.was_registered():
            log.warning(
                "the coordinator did not run for %.1f s, so that the session in ZooKeeper may have ended, and other brokers may"
                " lead the partitions of this broker: it refuses produce requests with acks=0 and acks=1 until ZooKeeper has"
                " confirmed its registration",
                paused_ms / 1000,
            )
        return float(pauses.interval_s())

    # -- joining --------------------------------------------------------------------------------------------------

    def open(self) -> CoordinatorView:
        """Connect to ZooKeeper, check that it belongs to the cluster of the log directories, and read the settings of brokers.

        Raises StoreError, WrongCluster.
        """
        config, shm = self._context.config, self._context.shm
        if self._stopping:
            raise StoreUnavailable("the broker stops")
        if self.store is None:
            store = open_zookeeper(config)
            store.on_session(self._on_session)
            store.on_beat(self.beat)
            self._session = BrokerSession(store, Path(self._context.log_dirs[0]))
            self.store = store
        store = self.store
        assert self._session is not None
        if store.session is None:
            self._session.begin()
        cluster_id = join_cluster(store, shm.cluster_id or None)
        if not shm.cluster_id:
            self._context.note_cluster(cluster_id)
        store.guard(znodes.CLUSTER_ID, partial(check_tree, cluster_id, str(config["zookeeper.connect"])), self._on_tree)
        member = self._member = ClusterMember(store, config, self._apply, self._apply_all)
        if self.controller is None:
            self.controller = self._make_controller(store)
        admin = self.controller.admin
        settings = self._settings = BrokerSettings(store, member, config, self._context.running, shm, self._tls)
        changes = self._changes = SettingsChanges(store, self._on_settings)
        changes.begin()
        settings.load(self._note_groups)
        quotas = self._quotas = EnforcedQuotas(store, self._context.quotas, shm)
        quotas.load()
        self._acl_changes = []
        if has_authorizer(config):
            for parent in (acl_nodes.LITERAL_CHANGES, acl_nodes.EXTENDED_CHANGES):
                ensure_path(store, parent)
                notifications = Notifications(store, self._on_settings, parent, acl_nodes.CHANGE, acl_nodes.changed)
                notifications.begin()
                self._acl_changes.append(notifications)
        acls = self._acls = opened_acls(self._context, store, notifies=True)
        self._token_changes = None
        if secret_key_of(config):
            ensure_path(store, token_nodes.CHANGES)
            self._token_changes = Notifications(
                store, self._on_settings, token_nodes.CHANGES, token_nodes.CHANGE, token_nodes.decode_change
            )
            self._token_changes.begin()
        tokens = self._tokens = opened_tokens(config, store, notifies=True)
        table = PartitionTable(shm, self._context.log_dirs, writes=False)
        if self._producer_ids is None:
            self._producer_ids = ProducerIds(store, config.node_id)
        self._look_at_producer_ids(
            self._note_producer_ids
        )  # the registration follows, and then others can allocate ids
        return CoordinatorView(
            config,
            store,
            ClientRequests(member, admin),
            self._producer_ids,
            table,
            settings,
            admin,
            quotas,
            acls=acls,
            tokens=tokens,
        )

    def resume(self) -> None:
        """There is a connection again, in the session of before. Raises StoreError."""
        self._look_at_producer_ids()

    def _look_at_producer_ids(self, watch: Watch | None = None) -> None:
        """See `ProducerIds.look`. What is wrong with the node, or refused, costs ids, but not the registration. Raises
        StoreError if ZooKeeper does not answer."""
        if self._producer_ids is None:
            return
        try:
            self._producer_ids.look(watch)
        except (CorruptNode, Refused, ProducerIdsExhausted) as error:
            log.error("cannot look at the newest block of producer ids: %s", error)

    def owns_registration(self) -> bool:
        """Whether the broker is registered in the present session, at some moment after the call. Raises StoreError."""
        return self._registration() is not None

    def is_registered(self) -> bool:
        """Whether the registration with the present broker epoch exists, at some moment after the call. Raises StoreError."""
        registration = self._registration()
        return registration is not None and registration.created == brokers.broker_epoch()

    def _registration(self) -> Stat | None:
        """The node of the registration, if it belongs to the present session, as the leader of ZooKeeper knows it."""
        assert self.store is not None
        self.store.sync()
        stat = self.store.exists(znodes.broker_path(self._context.config.node_id))
        session = self.store.session
        return stat if stat is not None and session is not None and stat.owner == session.id else None

    def register(self) -> None:
        """Register the broker. From then on the controller sends requests, which are judged by the new broker epoch.

        Raises StoreError, BrokerIdTaken.
        """
        assert self.store is not None and self._session is not None
        self._session.note()  # before the registration, so that the next start can end it
        config = self._context.config
        rack = config["broker.rack"]
        registration = BrokerRegistration(list(self._context.advertised), None if rack is None else str(rack), now_ms())
        check_endpoints(self.store, config.node_id, registration)
        begin_registration(self.store, config.node_id, registration)

    def check_tree(self) -> None:
        """Raise WrongTree if the tree is not that of the cluster any more, StoreError if it cannot be read."""
        assert self.store is not None
        self.store.exists(znodes.CLUSTER_ID)

    def topic_settings(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """The settings of topics, by name. Raises StoreError."""
        if self._member is None:
            raise StoreUnavailable("the metadata store is not connected yet")
        return self._member.usable_settings_of(list(topics))

    def has_partitions(self) -> bool:
        """Whether the cluster has partitions that its controller will publish. Raises StoreError."""
        if self._member is None:
            raise StoreUnavailable("the metadata store is not connected yet")
        return self._member.has_partitions()

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, bytes]:
        """The ids of topics as they are now, by name; topics that do not exist, have no id or cannot be decoded are missing.
        Raises StoreError."""
        if self.store is None:
            raise StoreUnavailable("the metadata store is not connected yet")
        names = list(topics)
        self.store.sync()
        ids: dict[str, bytes] = {}
        for name, node in zip(names, self.store.get_many([znodes.topic_path(name) for name in names]), strict=True):
            try:
                topic_id = None if node is None else znodes.decode_topic(name, node[0]).topic_id
            except CorruptNode as error:
                log.warning("cannot read the id of topic %s: %s; its id counts as unknown", name, error)
                continue
            if topic_id is not None:
                ids[name] = topic_id.bytes
        return ids

    # -- settings that other brokers changed ------------------------------------------------------------------------

    def _note_groups(self, _: Event) -> None:
        """Called in a thread of the store."""
        self._groups_changed = True
        self._on_settings()

    def _note_producer_ids(self, _: Event) -> None:
        """Called in a thread of the store."""
        self._producer_ids_changed = True
        self._on_settings()

    def apply_settings(self) -> None:
        """Apply the settings, ACLs, delegation tokens and blocks of producer ids that changed since the last call. Raises
        StoreError; the next call then repeats it.

        ACLs that cannot be read do not prevent the use of changed settings, nor the reverse.
        """
        if self._producer_ids_changed:
            self._producer_ids_changed = False
            try:
                self._look_at_producer_ids(self._note_producer_ids)
            except StoreError:
                self._producer_ids_changed = True
                raise
        try:
            self._apply_acls()
        finally:
            try:
                self._apply_tokens()
            finally:
                self._apply_settings()

    def _apply_settings(self) -> None:
        if self._changes is None or self._settings is None or self._member is None:
            return
        if self._groups_changed:
            self._groups_changed = False
            try:
                self._settings.load_groups(self._note_groups)
            except StoreError:
                self._groups_changed = True
                raise
        node_id = self._context.config.node_id
        own = {path.removeprefix(f"{znodes.CONFIG}/") for path in map(znodes.broker_config_path, (None, node_id))}
        changed = self._changes.look(now_ms())
        try:
            topics = [path.removeprefix("topics/") for path in changed if path.startswith("topics/")]
            if topics:
                log.info("the settings of topics changed: %s", ", ".join(topics))
                self._apply(self._member.usable_settings_of(topics))
            if own.intersection(changed):
                self._settings.reload_brokers()
            if self._quotas is not None:
                self._quotas.refresh_paths(changed)
            if any(path.startswith(USERS) for path in changed):  # quotas or SCRAM credentials: they have the same node
                self._context.credentials.announce()
                self._context.shm.wake_all()
            if self.controller is not None and (topics or own.intersection(changed)):
                self.controller.settings_changed()
        except StoreError:
            self._changes.repeat(changed)
            raise

    def _apply_acls(self) -> None:
        """Read the ACLs that other brokers changed. Raises StoreError; the next call then repeats it."""
        for notifications in self._acl_changes:
            changed = notifications.look(now_ms())
            try:
                if changed and self._acls is not None:
                    if EVERYTHING in changed:
                        self._acls.load()
                    else:
                        self._acls.reload(changed)
            except StoreError:
                notifications.repeat(changed)
                raise

    def _apply_tokens(self) -> None:
        """Read the delegation tokens that other brokers changed. Raises StoreError; the next call then repeats it."""
        if self._token_changes is None or self._tokens is None:
            return
        changed = self._token_changes.look(now_ms())
        if not changed:
            return
        try:
            self._tokens.reload(changed)
        except StoreError:
            self._token_changes.repeat(changed)
            raise
        self._context.tokens.announce()
        self._context.shm.wake_all()

    def report_strays(self, hosted: Mapping[str, Sequence[int]]) -> None:
        """Log a warning for each topic with logs here that are not assigned to this broker. Nothing is deleted: only the
        controller decides that. Raises StoreError.

        :param hosted: the partitions whose log is on this broker, by topic.
        """
        assert self.store is not None
        names = [name for name in hosted if name != CLUSTER_METADATA]
        nodes = self.store.get_many([znodes.topic_path(name) for name in names])
        strays: Counter[str] = Counter()
        for name, node in zip(names, nodes, strict=True):
            decode = partial(znodes.decode_topic, name, b"" if node is None else node[0])
            topic = None if node is None else usable(znodes.topic_path(name), decode, None, "its logs are kept")
            assignment = {} if topic is None else topic.partitions
            for partition in hosted[name] if node is None or topic is not None else ():
                if self._context.config.node_id not in assignment.get(partition, ()):
                    strays[name] += 1
        for name in sorted(strays):
            log.warning(
                "%d partitions of topic %s have a log here, but are not assigned to this broker; if the controller does not "
                "delete them, delete them while the broker is stopped",
                strays[name], name,
            )  # fmt: skip

    # -- while the broker serves ----------------------------------------------------------------------------------

    def sweep(self) -> OffsetSweep | None:
        """See `Membership`."""
        return None if self.store is None else OffsetSweep(self.store)

    def open_waiting(self) -> None:
        """See `Membership`: the replicas thread opens logs."""

    def report_log_dirs(self) -> None:
        """Notify the controller that logs of this broker became unusable or usable: it then sends their roles again. Raises
        StoreError."""
        assert self.store is not None
        self.store.create(
            znodes.LOG_DIR_EVENT,
            znodes.encode_log_dir_event(self._context.config.node_id, LOG_DIR_FAILURE),
            sequential=True,
        )

    @property
    def session_timeout_s(self) -> float:
        """See `ZookeeperStore.session_timeout_s`; may be called in any thread."""
        return 0.0 if self.store is None else self.store.session_timeout_s

    def note_progress(self) -> None:
        """Note for the successor of this process what it must have seen; may be called in any thread."""
        if self._session is not None and self.store is not None and self.store.session is not None:
            self._session.note_zxid()

    def revive(self) -> None:
        """See `ZookeeperStore.revive`. Raises StoreError."""
        if self.store is not None:
            self.store.revive()

    def accepts_others(self) -> bool:
        """Whether ZooKeeper accepts connections, but not in the session of this broker. May be called in any thread.

        Within the session timeout, the present session tries all servers.
        """
        store = self.store
        if store is None or self._stopping or not accepts(store.options):
            return False
        return not store.wait_until_connected(store.options.session_timeout_s)

    def replace_session(self) -> None:
        """Begin a new session: ZooKeeper accepts others, but not that of this broker. Raises StoreError."""
        if self.store is not None and not self.connected:
            log.warning(
                "ZooKeeper at %s accepts connections, but not in the session of this broker, which has seen later transactions:"
                " it was restored from a backup or replaced; beginning a new session",
                self.store.options.hosts,
            )
            self.store.replace_session()

    def stop_waiting(self) -> None:
        """Let calls that wait for ZooKeeper fail; may be called in any thread. `leave` must follow."""
        self._stopping = True
        if self.store is not None:
            self.store.stop_waiting()

    @property
    def connected(self) -> bool:
        """Whether ZooKeeper is connected; may be called in any thread."""
        return self.store is not None and self.store.connected

    def leave(self) -> None:
        """See `Membership`."""
        if self._session is not None:
            self._session.end()

    def note_error(self, error: StoreError) -> None:
        """See `Membership`."""
        log.warning("ZooKeeper did not execute an operation: %s", error)
