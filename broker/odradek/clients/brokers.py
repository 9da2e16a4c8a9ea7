"""The brokers of a cluster: addresses, software versions, served APIs and numbers of partitions.

Functions over a `Cluster`. The protocol has no field for a broker's version: see `software_of`.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from odradek.clients.cluster import Address, Cluster, View
from odradek.clients.errors import ClientError
from odradek.clients.wire import Connection
from odradek.protocol.schemas import explain_group

METADATA_VERSION = "metadata.version"
KAFKA_BY_LEVEL = (
    (1, "3.0"),
    (2, "3.1"),
    (3, "3.2"),
    (4, "3.3"),
    (8, "3.4"),
    (9, "3.5"),
    (12, "3.6"),
    (15, "3.7"),
    (20, "3.8"),
    (21, "3.9"),
    (22, "4.0"),
    (26, "4.1"),
    (28, "4.2"),
    (30, "4.3"),
)
"""The first level of the feature metadata.version in each release of Kafka."""
NEWEST_LEVEL = 30
WITH_FENCED = 2
"""The first version of DescribeCluster that also lists fenced brokers."""


class BrokerInfo(NamedTuple):
    """A broker. :param address: None if the broker is not registered, but has replicas. :param software: see `software_of`.

    :param apis: the oldest and newest version by API key; None if the broker did not answer; `problem` has the reason.
    :param features: the lowest and highest level by name of the feature; None if the broker did not answer.
    :param leads: number of partitions that it leads. :param replicas: number of partitions with a replica on it.
    """

    node_id: int
    address: Address | None
    rack: str | None
    fenced: bool
    software: str | None
    apis: Mapping[int, tuple[int, int]] | None
    features: Mapping[str, tuple[int, int]] | None
    leads: int
    replicas: int
    problem: str | None


class FeatureLevels(NamedTuple):
    """The levels of the cluster's features that are in force, by name. :param epoch: the number of changes of the levels."""

    epoch: int
    levels: Mapping[str, int]


class ClusterInfo(NamedTuple):
    """A cluster and its brokers, sorted by id.

    :param features: as the broker reports them that knows the newest change; None if no broker answered.
    """

    view: View
    brokers: list[BrokerInfo]
    features: FeatureLevels | None = None

    @property
    def kraft(self) -> bool:
        """Whether a broker has the feature metadata.version, which only KRaft clusters have."""
        return any(METADATA_VERSION in (broker.features or {}) for broker in self.brokers)


def describe(cluster: Cluster) -> ClusterInfo:
    """Describe the cluster and each of its brokers. Raises ClientError if no bootstrap server answers."""
    view = cluster.metadata()
    partitions = [part for topic in view.topics.values() for part in topic.partitions]
    leads = Counter(part.leader for part in partitions)
    replicas = Counter(node for part in partitions for node in part.replicas)
    fenced = _fenced(cluster)
    places: dict[int, tuple[Address | None, str | None]] = dict.fromkeys(replicas, (None, None))
    places |= {node: (address, view.racks.get(node)) for node, address in view.brokers.items()}
    places |= fenced
    connections = cluster.of_each(view.brokers, lambda _, connection: connection)
    descriptions = []
    levels = []
    for node_id, (address, rack) in sorted(places.items()):
        connection, problem = None, None
        result = connections.get(node_id)
        if address is None:
            problem = (
                f"the broker is not registered, and has {replicas[node_id]} replicas: start it, or move its replicas to other"
                f" brokers (`odradek partition move --off {node_id}`)"
            )
        elif result is None:
            problem = "the broker is fenced: the controllers receive no heartbeats from it"
        elif isinstance(result, ClientError):
            problem = str(result)
        else:
            connection = result
            levels.append(FeatureLevels(connection.features_epoch, connection.feature_levels))
        descriptions.append(
            BrokerInfo(
                node_id,
                address,
                rack,
                node_id in fenced,
                None if connection is None else software_of(connection),
                None if connection is None else connection.apis,
                None if connection is None else connection.features,
                leads[node_id],
                replicas[node_id],
                problem,
            )
        )
    return ClusterInfo(view, descriptions, max(levels, key=lambda known: known.epoch, default=None))


def software_of(connection: Connection) -> str | None:
    """The software of the broker, derived from its ApiVersions response; None if it is unknown.

    Only Odradek serves the API ExplainGroup. Kafka with KRaft reports the newest level of metadata.version that it
    supports; KAFKA_BY_LEVEL maps the level to a release.
    """
    if connection.serves(explain_group.API_KEY) is not None:
        return "Odradek"
    level = connection.features.get(METADATA_VERSION, (0, 0))[1]
    if level > NEWEST_LEVEL:
        return f"newer than Kafka {KAFKA_BY_LEVEL[-1][1]} ({METADATA_VERSION} {level})"
    place = bisect_right(KAFKA_BY_LEVEL, level, key=lambda row: row[0])
    return f"Kafka {KAFKA_BY_LEVEL[place - 1][1]}" if place else None


def _fenced(cluster: Cluster) -> dict[int, tuple[Address, str | None]]:
    """Registered brokers that are fenced (Metadata omits them); empty if the brokers serve no DescribeCluster with
    fenced brokers.
    """
    from odradek.protocol.schemas import describe_cluster as api

    served = cluster.any_broker().serves(api.API_KEY)
    if served is None or served[1] < WITH_FENCED:
        return {}
    response = cluster.ask(api.SCHEMA, api.Request(include_fenced_brokers=True), oldest=WITH_FENCED)
    return {
        broker.broker_id: (Address(broker.host, broker.port), broker.rack)
        for broker in response.brokers
        if broker.is_fenced
    }
