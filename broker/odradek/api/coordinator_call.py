"""The context of a request that the coordinator executes: the client, and the objects that the coordinator owns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek._ext.net.connection import client_name
from odradek.api.permits import UNRESTRICTED, Permits
from odradek.config.broker_config import BrokerConfig
from odradek.controller.acls import Acls
from odradek.controller.broker_settings import BrokerSettings
from odradek.controller.client_changes import ClientChanges
from odradek.controller.delegation_tokens import DelegationTokens
from odradek.controller.enforced_quotas import EnforcedQuotas
from odradek.controller.producer_ids import ProducerIds
from odradek.controller.topics import Refusal
from odradek.metadata.store import Store
from odradek.protocol.errors import ErrorCode
from odradek.quotas.mutations import MutationCharge, QuotaExceeded
from odradek.shm.partition_table import PartitionTable

if TYPE_CHECKING:  # a single broker does without the controller of a cluster
    from odradek.controller.cluster.admin import ClusterAdmin, OngoingReassignment


def _nothing() -> None:
    pass


@dataclass
class CoordinatorView:
    """The objects that a coordinator owns; used only in its store thread.

    :param cluster: the controller of a cluster; None with the embedded store.
    :param quotas: the quotas that are enforced; None in tests without them.
    :param credentials_changed: lets all workers drop the SCRAM credentials that they keep, and waits until they have done so.
    :param acls: the ACLs; None without an authorizer. :param tokens: the delegation tokens; None without a secret key for them.
    """

    config: BrokerConfig
    store: Store
    controller: ClientChanges
    producer_ids: ProducerIds
    table: PartitionTable
    settings: BrokerSettings
    cluster: "ClusterAdmin | None" = None
    quotas: EnforcedQuotas | None = None
    credentials_changed: Callable[[], None] = _nothing
    acls: Acls | None = None
    tokens: DelegationTokens | None = None

    def is_controller(self) -> bool:
        """Whether this broker is the controller of its cluster now. With the embedded store it always is."""
        return self.cluster is None or self.cluster.active

    def reassignments(self) -> "Sequence[OngoingReassignment]":
        """The reassignments under way, as the controller knows them. Raises NotController."""
        return () if self.cluster is None else self.cluster.reassignments()


@dataclass
class CoordinatorCall:
    """The context of one request.

    :param peer: address and port of the client.
    :param principal: the principal of the client, e.g. "User:ANONYMOUS".
    :param by_token: whether the client logged in with a delegation token.
    :param mutations: the quota of the client for changes of topics; None: it has none.
    """

    version: int
    client_id: str | None
    peer: str
    principal: str
    listener_index: int
    view: CoordinatorView
    mutations: MutationCharge | None = None
    permits: Permits = UNRESTRICTED
    by_token: bool = False

    @property
    def client(self) -> str:
        """The client as shown in log lines."""
        return str(client_name(self.peer, self.client_id))

    def charge(self, partitions: int) -> None:
        """Charge the creation or deletion of partitions to the client's quota. Raises Refusal if it is exceeded."""
        if self.mutations is None:
            return
        try:
            self.mutations.partitions(partitions)
        except QuotaExceeded as error:
            raise Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, str(error)) from None
