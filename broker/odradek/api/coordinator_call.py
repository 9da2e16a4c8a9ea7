"""What a handler in the coordinator is given beside the request: who asks, and what the coordinator owns."""

from dataclasses import dataclass

from odradek._ext.net.connection import client_name
from odradek.config.broker_config import BrokerConfig
from odradek.controller.broker_settings import BrokerSettings
from odradek.controller.controller import Controller
from odradek.controller.producer_ids import ProducerIds
from odradek.metadata.store import Store
from odradek.shm.partition_table import PartitionTable


@dataclass
class CoordinatorView:
    """One a coordinator, used in its controller thread alone."""

    config: BrokerConfig
    store: Store
    controller: Controller
    producer_ids: ProducerIds
    table: PartitionTable
    settings: BrokerSettings


@dataclass
class CoordinatorCall:
    """One a request.

    :param peer: address and port of the client.
    :param principal: who asks, e.g. "User:ANONYMOUS".
    """

    version: int
    client_id: str | None
    peer: str
    principal: str
    listener_index: int
    view: CoordinatorView

    @property
    def client(self) -> str:
        """The client as log lines name it."""
        return str(client_name(self.peer, self.client_id))
