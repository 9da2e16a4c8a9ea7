"""Which brokers keep which partition's replicas: a pure function, random only in what the caller hands in.

Kafka's aims: replicas spread evenly over brokers, followers of a broker's partitions over the others, and over racks
as far as there are racks (KIP-36).
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple


class Broker(NamedTuple):
    """A broker that may keep replicas; ``rack`` None if it says none."""

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

    :param partitions: consecutive indexes, rising; not from 0 when partitions are added.
    :param start: place of partition 0's leader in the ring of brokers; any non-negative number, best a random one.
    :param shift: how far partition 0's second replica stands from its leader; likewise.
    :raises ValueError: if there are fewer brokers than replicas, or less than one replica is wanted.

    Racks count only if every broker tells its own.
    """
    if not 1 <= replication_factor <= len(brokers):
        raise ValueError(f"replication factor {replication_factor} with {len(brokers)} brokers")
    racked = all(broker.rack is not None for broker in brokers)
    ring = _alternate_racks(brokers) if racked else sorted(brokers)
    return {
        partition: _replicas(ring, racked, replication_factor, start + partition, shift + partition // len(ring))
        for partition in partitions
    }


def _alternate_racks(brokers: Sequence[Broker]) -> list[Broker]:
    """The brokers so that neighbours are in different racks: one of each rack in turn."""
    racks: dict[str | None, list[Broker]] = {}
    for broker in sorted(brokers, key=lambda broker: (str(broker.rack), broker.id)):
        racks.setdefault(broker.rack, []).append(broker)
    return [broker for row in zip_longest(*racks.values()) for broker in row if broker is not None]


def _replicas(ring: Sequence[Broker], racked: bool, replication_factor: int, place: int, shift: int) -> list[int]:
    """Replicas of the partition whose leader is at `place`: the others follow around the ring from `shift` behind it.

    A broker whose rack has a replica is passed over while there is a rack without one.
    """
    size = len(ring)
    chosen = [ring[place % size]]
    others = [ring[(place + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)]
    if not racked:
        return [broker.id for broker in chosen + others[: replication_factor - 1]]
    racks = {broker.rack for broker in ring}
    while len(chosen) < replication_factor:
        used = {broker.rack for broker in chosen}
        fresh = (broker for broker in others if used == racks or broker.rack not in used)
        broker = next(fresh)
        others.remove(broker)
        chosen.append(broker)
    return [broker.id for broker in chosen]
