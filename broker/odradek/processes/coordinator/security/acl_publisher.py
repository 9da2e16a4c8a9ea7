"""Publishes the ACLs of the metadata store to all processes. Used in the coordinator's store thread."""

import logging

from odradek._ext.shm.layout import ProcessKind
from odradek._ext.shm.metering import gauge
from odradek.controller.acls import Acls
from odradek.metadata.store import Store
from odradek.processes.authorization import authorizer_of, has_authorizer
from odradek.processes.context import ProcessContext
from odradek.security.acl_encoding import decode_acls
from odradek.shm.confirmed_version import TAKEN_WITHIN_S, serving

log = logging.getLogger("odradek.authorizer")

LOCKED_OUT = (
    "nobody may change ACLs: there is no super user, and no ACL allows ALTER on the cluster. Set super.users, for example "
    "super.users=User:admin, and restart the broker"
)


def opened_acls(context: ProcessContext, store: Store, notifies: bool) -> Acls | None:
    """The ACLs of the store, read and published; None if the broker has no authorizer. Raises StoreError."""
    if not has_authorizer(context.config):
        return None
    publisher = AclPublisher(context)
    acls = Acls(store, publisher.publish, context.acls.largest, notifies)
    acls.load()
    if not authorizer_of(context.config, context.acls)[1].can_manage():
        log.warning("%s", LOCKED_OUT)
    return acls


class AclPublisher:
    """See the module."""

    def __init__(self, context: ProcessContext) -> None:
        self._pages = context.acls
        self._shm = context.shm

    def publish(self, data: bytes) -> None:
        """Publish encoded ACLs, and wait until every worker has confirmed that it has no request left that waits by older
        rules.

        Each decision after this call is by these rules in any case, also in a worker that does not confirm in time: it compares
        the version before it decides.
        """
        version = self._pages.publish(data)
        gauge("acls", len(decode_acls(data)))
        self._shm.wake_all()
        late = self._pages.wait_until_taken(version, serving(self._shm, ProcessKind.WORKER), TAKEN_WITHIN_S)
        if late:
            log.warning(
                "%d workers have not confirmed version %d of the ACLs within %g s (indexes %s of the process table); they "
                "decide by it, but may not have ended all long polls of clients that lost a right",
                len(late), version, TAKEN_WITHIN_S, ", ".join(map(str, late)),
            )  # fmt: skip
