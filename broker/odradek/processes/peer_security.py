"""Makes the `PeerSecurity` of a process that connects to other brokers."""

from typing import TYPE_CHECKING

from odradek._ext.shm.layout import ProcessKind
from odradek._ext.shm.metering import count
from odradek.processes.context import ProcessContext
from odradek.security.peer_settings import is_protected
from odradek.shm.published_faults import Area

if TYPE_CHECKING:
    from odradek.security.peers import PeerSecurity


def peer_security_of(context: ProcessContext) -> "PeerSecurity | None":
    """How this process connects to other brokers; None if there is no cluster, or the inter-broker listener is PLAINTEXT."""
    config = context.config
    if not is_protected(config):
        return None
    from odradek.security.peers import PeerSecurity

    published = None if context.tls is None else context.tls.published
    area = Area.COORDINATOR_LOGINS if context.kind == ProcessKind.COORDINATOR else Area.REPLICATOR_LOGINS
    return PeerSecurity(
        config,
        published,
        lambda: count("failed_peer_logins"),
        publish=lambda faults: context.faults.publish_logins(area, faults),
    )
