"""The live brokers of the cluster with the addresses that clients of a listener receive, from the table in the shared memory.

Used in a worker's loop. The table is read again when its version changes.
"""

from collections.abc import Sequence
from typing import NamedTuple

from odradek._ext.shm import brokers


class BrokerAddress(NamedTuple):
    """A broker with the address that clients of one listener receive."""

    node_id: int
    host: str
    port: int
    rack: str | None


class ClusterBrokers:
    """The live brokers as the controller published them.

    :param listeners: the names of this broker's listeners, in the order of their indexes. Clients of a listener receive the
        endpoints of the other brokers that have its name.
    """

    def __init__(self, listeners: Sequence[str]) -> None:
        self._listeners = listeners
        self._version = -1
        self._racks: dict[int, str | None] = {}
        self._addresses: list[dict[int, BrokerAddress]] = [{} for _ in listeners]

    def addresses(self, listener: int) -> dict[int, BrokerAddress]:
        """The live brokers that have this listener, by id, in ascending order.

        :param listener: index of a listener of this broker.
        """
        self._refresh()
        return self._addresses[listener]

    def racks(self) -> dict[int, str | None]:
        """The live brokers with their racks, by id; None: without a rack."""
        self._refresh()
        return self._racks

    def _refresh(self) -> None:
        version = brokers.version()  # read before the brokers: if they are newer, they are read once more
        if version == self._version:
            return
        known = brokers.brokers()
        self._racks = {broker.id: broker.rack for broker in known}
        self._addresses = [
            {
                broker.id: BrokerAddress(broker.id, endpoint.host, endpoint.port, broker.rack)
                for broker in known
                if (endpoint := broker.endpoint(listener)) is not None
            }
            for listener in self._listeners
        ]
        self._version = version
