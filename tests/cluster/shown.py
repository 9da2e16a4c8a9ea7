"""What one broker shows of its cluster. Client libraries would ask any broker, also one that is dead or stopped."""

from typing import Any, NamedTuple

from odradek.clients.errors import UnreachableError
from odradek.clients.wire import Connection
from odradek.protocol.schemas import metadata

NEWEST = 9  # with names of topics


class Shown(NamedTuple):
    """A partition. ``leader``: -1 if there is none."""

    leader: int
    in_sync: frozenset[int]


def ask(address: str, topics: list[str] | None) -> Any:
    """The Metadata response of a broker (host:port) about topics; None: about all topics. Raises UnreachableError."""
    host, _, port = address.rpartition(":")
    connection = Connection(host, int(port), 30)
    try:
        wanted = None if topics is None else [metadata.Request.MetadataRequestTopic(name=name) for name in topics]
        request = metadata.Request(topics=wanted, allow_auto_topic_creation=False)
        return connection.ask(metadata.SCHEMA, request, newest=NEWEST)
    finally:
        connection.close()


def partitions(address: str, topic: str) -> dict[int, Shown]:
    """The partitions of a topic, by number; empty if the broker does not know the topic or does not answer."""
    try:
        (found,) = ask(address, [topic]).topics
    except UnreachableError:
        return {}
    return {row.partition_index: Shown(row.leader_id, frozenset(row.isr_nodes)) for row in found.partitions}


def leaders(address: str, topic: str) -> dict[int, int]:
    """The leaders of the partitions of a topic that have one."""
    return {number: shown.leader for number, shown in partitions(address, topic).items() if shown.leader >= 0}


def in_sync(address: str, topic: str) -> dict[int, set[int]]:
    """The in-sync replicas of the partitions of a topic."""
    return {number: set(shown.in_sync) for number, shown in partitions(address, topic).items()}


def brokers(address: str) -> tuple[int, set[int]]:
    """(controller, live brokers); (-1, nothing) if the broker does not answer."""
    try:
        found = ask(address, [])
    except UnreachableError:
        return -1, set()
    return found.controller_id, {broker.node_id for broker in found.brokers}


def topics(address: str) -> set[str]:
    """The names of all topics. Raises UnreachableError."""
    return {topic.name for topic in ask(address, None).topics}
