"""Assignment of replicas to brokers: a pure function; the caller passes the random start values.

The aims are Kafka's: replicas are spread evenly over the brokers, the followers of one leader are spread over the other
brokers, and the replicas of a partition over as many racks as possible (KIP-36).
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple


class Broker(NamedTuple):
    """A broker that can keep replicas; ``rack`` is None if the broker has none."""

    id: int
    rack: str | None = None


def assign_replicas(
    brokers: Sequence[Broker],
    partitions: Sequence[int],
    replication_factor: int,
    *,
    start: int,
    shift: int,
) -> dict[int, list[int]]:
    """Replicas of each partition, the preferred leader first.

    :param partitions: consecutive ascending indexes; they do not start at 0 when partitions are added to a topic.
    :param start: index in the ring of brokers of partition 0's leader; any non-negative number, usually random.
    :param shift: distance in the ring from partition 0's leader to its second replica; any non-negative number, usually random.
    :raises ValueError: if there are fewer brokers than replicas, or if the replication factor is less than 1.

    Racks are used only if every broker has one.
    """
    if not 1 <= replication_factor <= len(brokers):
        raise ValueError(f"the replication factor {replication_factor} is not possible with {len(brokers)} brokers")
    racked = all(broker.rack is not None for broker in brokers)
    ring = _alternate_racks(brokers) if racked else sorted(brokers)
    if replication_factor == 1:  # a broker alone: a topic with 60,000 partitions must not take long
        leaders = [broker.id for broker in ring]
        return {partition: [leaders[(start + partition) % len(leaders)]] for partition in partitions}
    return {
        partition: _replicas(ring, racked, replication_factor, start + partition, shift + partition // len(ring))
        for partition in partitions
    }


def _alternate_racks(brokers: Sequence[Broker]) -> list[Broker]:
    """Order the brokers so that neighbours are in different racks: one broker of each rack in turn."""
    racks: dict[str | None, list[Broker]] = {}
    for broker in sorted(brokers, key=lambda broker: (str(broker.rack), broker.id)):
        racks.setdefault(broker.rack, []).append(broker)
    return [broker for row in zip_longest(*racks.values()) for broker in row if broker is not None]


def _replicas(ring: Sequence[Broker], racked: bool, replication_factor: int, place: int, shift: int) -> list[int]:
    """Replicas of a partition: the leader is at `place` in the ring, the followers come from the ring after `shift` brokers.

    A broker is skipped if its rack has a replica while another rack has none.
    """
    size = len(ring)
    chosen = [ring[place % size]]
    others = [ring[(place + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)]
    if not racked:
        return [broker.id for broker in chosen + others[: replication_factor - 1]]
    racks = {broker.rack for broker in ring}
    while len(chosen) < replication_factor:
        used = {broker.rack for broker in chosen}
        candidates = (broker for broker in others if used == racks or broker.rack not in used)
        broker = next(candidates)
        others.remove(broker)
        chosen.append(broker)
    return [broker.id for broker in chosen]
