"""The context of a request of the controller: LeaderAndIsr, StopReplica or UpdateMetadata."""

from dataclasses import dataclass

from odradek._ext.net.connection import client_name
from odradek.replication.replica_control import ReplicaControl


@dataclass
class ReplicaCall:
    """The context of one request, which the coordinator executes in its replicas thread.

    :param peer: address and port of the controller.
    """

    version: int
    client_id: str | None
    peer: str
    control: ReplicaControl

    @property
    def client(self) -> str:
        """The controller as shown in log lines."""
        return str(client_name(self.peer, self.client_id))
