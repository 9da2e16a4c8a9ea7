"""What a worker knows about the other brokers of a cluster: addresses of leaders for responses, and the choice of the replica
from which a consumer reads (KIP-392). Used in a worker's loop.
"""

from collections.abc import Collection, Sequence

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.shm.views as views
from odradek._ext.shm.slot import Role
from odradek.api.cluster_brokers import BrokerAddress, ClusterBrokers
from odradek.config.keys.replication import RACK_AWARE_SELECTOR
from odradek.shm import epochs

NOBODY = -1
_NO_TAGS = b"\0"


class ReplicaView:
    """See the module.

    :param broker_id: the id of this broker.
    :param selector: replica.selector.class.
    """

    def __init__(self, brokers: ClusterBrokers, broker_id: int, selector: str | None) -> None:
        self._brokers = brokers
        self._broker_id = broker_id
        self.selects = selector == RACK_AWARE_SELECTOR
        """Whether consumers are directed to replicas in their rack."""

    def preferred(self, candidates: Sequence[tuple[int, int, int]], rack: bytes, listener: int) -> int:
        """The id of the follower from which a consumer in `rack` should read; -1: from the leader, which is this broker.

        The leader is preferred if it is in that rack, or no follower is. Among several followers, the one with the largest log
        end offset is chosen, then the one that was caught up last, then the largest id, as by Kafka's selector.

        :param candidates: (log end offset, time at which it was caught up in ms, broker id) of the in-sync followers.
        :param listener: index of the listener of the client's connection: the follower must have it, too.
        """
        name = rack.decode("utf-8", "replace")
        racks, addresses = self._brokers.racks(), self._brokers.addresses(listener)
        if racks.get(self._broker_id) == name:
            return NOBODY
        in_rack = [place for place in candidates if racks.get(place[2]) == name and place[2] in addresses]
        return max(in_rack)[2] if in_rack else NOBODY

    def leader_of(self, slot: int) -> tuple[int, int]:
        """(id of the leader, leader epoch) of a partition; -1 each if they are not known. A role that the controller assigned
        is newer than what it has published."""
        facts = slot_facts.describe(slot)
        if facts.role != Role.ROLE_NONE:
            return facts.leader_id, facts.leader_epoch
        view = views.view_of(slot)
        return (view.leader_id, view.leader_epoch) if view.leader_id >= 0 else (NOBODY, NOBODY)

    def endpoints(self, broker_ids: Collection[int], listener: int) -> bytes | None:
        """The field NodeEndpoints of responses: the addresses of those brokers that are alive and have the listener, in the
        order of their ids; None if none has."""
        addresses = self._brokers.addresses(listener)
        known = [addresses[broker_id] for broker_id in sorted(broker_ids) if broker_id in addresses]
        if not known:
            return None
        return _length(len(known)) + b"".join(map(_endpoint, known))

    def end_offset_for(self, slot: int, epoch: int) -> tuple[int, int]:
        """See `epochs.end_offset_for`. Reads a small file if the epoch is older than the newest ones. Raises OSError."""
        return epochs.end_offset_for(slot, epoch)


def _endpoint(address: BrokerAddress) -> bytes:
    host = address.host.encode()
    rack = _length(-1) if address.rack is None else _length(len(address.rack.encode())) + address.rack.encode()
    return b"".join(
        (
            address.node_id.to_bytes(4, "big"),
            _length(len(host)),
            host,
            address.port.to_bytes(4, "big"),
            rack,
            _NO_TAGS,
        )
    )


def _length(length: int) -> bytes:
    """A compact length: an unsigned varint of `length` + 1; -1: null."""
    value, encoded = length + 1, bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
