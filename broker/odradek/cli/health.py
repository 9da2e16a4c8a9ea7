"""What the doctor asks a cluster over the wire, and what it makes of the answers. Works with any Kafka."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from odradek.cli.finding import Finding, some
from odradek.cli.health_groups import examine_groups
from odradek.cli.output import count
from odradek.clients import configs
from odradek.clients.cluster import Cluster, Partition, View
from odradek.clients.errors import ClientError

INTERNAL_OFFSETS = "__consumer_offsets"
MIN_IN_SYNC = "min.insync.replicas"


def examine_cluster(cluster: Cluster) -> list[Finding]:
    """All findings. Raises ClientError if the cluster cannot even be asked."""
    view = cluster.metadata()
    found = [*_brokers(cluster, view), *_partitions(cluster, view), *_offsets_topic(view)]
    try:
        found += examine_groups(cluster, view)
    except ClientError as error:
        found.append(
            Finding(
                "error",
                "groups",
                f"they cannot be listed: {error}",
                "consumers that share work in groups cannot join or commit",
                "look at the coordinator's log; `odradek status` shows whether its process restarts",
            )
        )
    return found


def _brokers(cluster: Cluster, view: View) -> Iterator[Finding]:
    for node_id, address in sorted(view.brokers.items()):
        try:
            cluster.broker(node_id)
        except ClientError as error:
            yield Finding(
                "error",
                f"broker {node_id}",
                f"it cannot be reached where it says it is: {error}",
                "clients are sent to this address by every other broker, and fail there",
                f"check that it runs, and that advertised.listeners ({address.host}:{address.port}) can be reached from here",
            )
    if view.controller_id < 0:
        yield Finding(
            "error",
            "controller",
            "the cluster has none",
            "topics cannot be made or changed, and partitions of brokers that die get no new leader",
            "start the brokers that are down; look for their loss of the metadata store in their logs",
        )


def _partitions(cluster: Cluster, view: View) -> Iterator[Finding]:
    all_of_them = [part for one in view.topics.values() for part in one.partitions]
    lost = [part for part in all_of_them if part.leader < 0]
    if lost:
        yield Finding(
            "error",
            _listed(lost),
            f"{len(lost)} of {len(all_of_them)} partitions have no leader",
            "nobody can read or write them",
            f"start the brokers of their replicas ({_replicas(lost)}); if a log directory failed there, mend or replace it",
        )
    behind = [part for part in all_of_them if part.leader >= 0 and len(part.in_sync) < len(part.replicas)]
    if behind:
        missing = sorted({node for part in behind for node in set(part.replicas) - set(part.in_sync)})
        yield Finding(
            "warning",
            _listed(behind),
            f"{len(behind)} partitions have fewer replicas in sync than they should",
            "the loss of one more broker may make them unavailable, or lose what is acknowledged",
            f"see whether the brokers {', '.join(map(str, missing))} run and keep up",
        )
    least = {
        name: int(entry.value or 1) for name, entry in configs.of_topics(cluster, [*view.topics], MIN_IN_SYNC).items()
    }
    yield from _short_of_replicas(part for part in behind if len(part.in_sync) < least.get(part.topic, 1))
    yield from _too_few_replicas(view, least)


def _short_of_replicas(parts: Iterable[Partition]) -> Iterator[Finding]:
    """:param parts: partitions that refuse acks=all."""
    refusing = list(parts)
    if refusing:
        yield Finding(
            "error",
            _listed(refusing),
            f"{len(refusing)} partitions have fewer replicas in sync than min.insync.replicas",
            "producers with acks=all are refused (NOT_ENOUGH_REPLICAS)",
            f"bring the brokers of their replicas ({_replicas(refusing)}) back, or lower min.insync.replicas of the topic",
        )


def _too_few_replicas(view: View, least: Mapping[str, int]) -> Iterator[Finding]:
    """Topics of which acks=all cannot get what they ask for, whatever is in sync."""
    single = sorted(
        name
        for name, wanted in least.items()
        if any(len(part.replicas) < wanted for part in view.topics[name].partitions)
    )
    if single:
        replicas = min(len(part.replicas) for part in view.topics[single[0]].partitions)
        yield Finding(
            "warning",
            some(single),
            f"{count(len(single), 'topic')} with fewer replicas than {MIN_IN_SYNC}",
            "a write with acks=all is acknowledged when the replicas that exist have it, so the loss of one disk may lose "
            "acknowledged records (Kafka before 3.7 refuses such writes)",
            "give the topics more replicas if the cluster has the brokers; otherwise set for each of them what holds: "
            f"`odradek config set --topic {single[0]} {MIN_IN_SYNC}={replicas}`",
        )


def _offsets_topic(view: View) -> Iterator[Finding]:
    info = view.topics.get(INTERNAL_OFFSETS)
    if info is not None and len(view.brokers) > 1 and any(len(part.replicas) < 2 for part in info.partitions):
        yield Finding(
            "warning",
            INTERNAL_OFFSETS,
            f"it has one replica in a cluster of {len(view.brokers)} brokers",
            "the loss of one broker loses the committed offsets of the groups it coordinates",
            "add replicas to it by a reassignment of its partitions",
        )


def _listed(partitions: Sequence[Partition]) -> str:
    return some(f"{part.topic}-{part.number}" for part in partitions)


def _replicas(partitions: Sequence[Partition]) -> str:
    return ", ".join(map(str, sorted({node for part in partitions for node in part.replicas})))
