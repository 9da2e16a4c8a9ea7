"""The membership of a broker with the embedded metadata store: it is alone, and always the controller.

Used in the coordinator's store thread.
"""

import errno
import logging
import sqlite3
from pathlib import Path

from odradek._ext.storage.log_dirs import note_error
from odradek.api.coordinator_call import CoordinatorView
from odradek.clock import now_ms
from odradek.controller.broker_settings import BrokerSettings, TlsChanges
from odradek.controller.controller import Controller
from odradek.controller.delegation_tokens import opened_tokens
from odradek.controller.enforced_quotas import EnforcedQuotas
from odradek.controller.partitions import LocalPartitions
from odradek.controller.producer_ids import ProducerIds
from odradek.metadata import sqlite
from odradek.metadata.cluster import ensure_cluster_id, register_broker
from odradek.metadata.offset_sweep import OffsetSweep
from odradek.metadata.sqlite import SqliteStore
from odradek.metadata.store import Session, StoreError
from odradek.metadata.znodes import BrokerRegistration
from odradek.processes.context import ProcessContext
from odradek.processes.coordinator.security.acl_publisher import opened_acls
from odradek.shm.partition_table import PartitionTable

log = logging.getLogger("odradek.controller")


def session_of(boot_id: int) -> Session:
    """The session of a broker from its start to its end; all coordinators of this start use it."""
    return Session(boot_id or 1, boot_id.to_bytes(8, "big"))


class EmbeddedMembership:
    """See the module, and `Membership` in `store_service.py`. :param tls: replaces certificates; None without TLS."""

    def __init__(self, context: ProcessContext, tls: TlsChanges | None) -> None:
        self._context = context
        self._tls = tls
        self._controller: Controller | None = None
        self.store: SqliteStore | None = None

    def open(self) -> CoordinatorView:
        """Begin or resume the broker's session, register the broker, and become controller."""
        config, shm = self._context.config, self._context.shm
        store = self.store = SqliteStore(Path(self._context.log_dirs[0]) / sqlite.FILE_NAME, keeps_room=True)
        store.begin_session(session_of(shm.boot_id))
        store.expire_other_sessions()
        ensure_cluster_id(store, shm.cluster_id or None)
        rack = config["broker.rack"]
        registration = BrokerRegistration(list(self._context.advertised), None if rack is None else str(rack), now_ms())
        register_broker(store, config.node_id, registration)
        table = PartitionTable(shm, self._context.log_dirs)
        partitions = LocalPartitions(table, config, config.node_id, lambda index: not shm.log_dir_offline(index))
        controller = self._controller = Controller(store, partitions, config, config.node_id)
        settings = BrokerSettings(store, controller, config, self._context.running, shm, self._tls)
        settings.load()
        controller.become_controller()
        quotas = EnforcedQuotas(store, self._context.quotas, shm)
        quotas.load()
        acls = opened_acls(self._context, store, notifies=False)
        producer_ids = ProducerIds(store, config.node_id)
        tokens = opened_tokens(config, store, notifies=False)
        return CoordinatorView(
            config, store, controller, producer_ids, table, settings, quotas=quotas, acls=acls, tokens=tokens
        )

    def sweep(self) -> OffsetSweep | None:
        """See `Membership`."""
        return None if self.store is None else OffsetSweep(self.store)

    def open_waiting(self) -> None:
        """See `Membership`."""
        if self._controller is not None:
            self._controller.open_waiting()

    def leave(self) -> None:
        """See `Membership`."""
        if self.store is not None:
            self.store.end_session()

    def note_error(self, error: StoreError) -> None:
        """Report a failure of the store's file as a failure of the log directory that contains it."""
        cause = error.__cause__
        if isinstance(cause, OSError):
            note_error(0, cause.errno or errno.EIO)
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF if isinstance(cause, sqlite3.Error) else 0
        if code == sqlite3.SQLITE_FULL:
            note_error(0, errno.ENOSPC)
        elif code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY):
            note_error(0, errno.EIO)
        log.error("the metadata store failed: %s", error)
