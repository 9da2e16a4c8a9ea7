"""What the doctor asks a cluster over the wire, and what it makes of the answers. Works with any Kafka."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from broker.cli.finding import Finding
from broker.clients import configs, groups, topics
from broker.clients.cluster import Cluster, Partition, View
from broker.clients.errors import ClientError
from broker.clients.groups import Committed, Place

SHOWN = 5
INTERNAL_OFFSETS = "__consumer_offsets"
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


class GroupSeen(NamedTuple):
    """A group and its offsets."""

    group_id: str
    state: str
    committed: dict[Place, Committed]


def examine_cluster(cluster: Cluster) -> list[Finding]:
    """All findings. Raises ClientError if the cluster cannot even be asked."""
    view = cluster.metadata()
    found = [*_brokers(cluster, view), *_partitions(cluster, view), *_offsets_topic(view)]
    try:
        found += _groups(cluster, view)
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
    yield from _short_of_replicas(cluster, [part for part in behind if part.leader >= 0])


def _short_of_replicas(cluster: Cluster, behind: Sequence[Partition]) -> Iterator[Finding]:
    """Partitions that refuse acks=all."""
    least: dict[str, int] = {}
    refusing = []
    for part in behind:
        if part.topic not in least:
            key = "min.insync.replicas"
            found = configs.describe(cluster, configs.Resource("topic", part.topic), [key])
            least[part.topic] = int(found[key].value or 1) if key in found else 1
        if len(part.in_sync) < least[part.topic]:
            refusing.append(part)
    if refusing:
        yield Finding(
            "error",
            _listed(refusing),
            f"{len(refusing)} partitions have fewer replicas in sync than min.insync.replicas",
            "producers with acks=all are refused (NOT_ENOUGH_REPLICAS)",
            f"bring the brokers of their replicas ({_replicas(refusing)}) back, or lower min.insync.replicas of the topic",
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


def _groups(cluster: Cluster, view: View) -> Iterator[Finding]:
    listed = groups.list_groups(cluster)
    stuck = [one.group_id for one in listed if one.state in REBALANCING]
    if stuck:
        yield Finding(
            "warning",
            f"groups {_some(stuck)}",
            "they are rebalancing right now",
            "their members may read nothing meanwhile",
            f"if it lasts, `odradek group explain {stuck[0]}` tells who comes and goes",
        )
    seen = [GroupSeen(one.group_id, one.state, groups.fetch_offsets(cluster, one.group_id)) for one in listed]
    wanted = {place for one in seen for place in one.committed}
    partitions = [part for one in view.topics.values() for part in one.partitions if (one.name, part.number) in wanted]
    starts = topics.list_offsets(cluster, partitions, topics.EARLIEST)
    ends = topics.list_offsets(cluster, partitions, topics.LATEST)
    for one in seen:
        yield from judge_group(
            one,
            {place: found.offset for place, found in starts.items() if not found.error},
            {place: found.offset for place, found in ends.items() if not found.error},
        )


def judge_group(seen: GroupSeen, starts: dict[Place, int], ends: dict[Place, int]) -> Iterator[Finding]:
    """What is wrong with the offsets of a group."""
    lost = {
        place: starts[place] - at.offset for place, at in seen.committed.items() if at.offset < starts.get(place, 0)
    }
    if lost:
        yield Finding(
            "error",
            f"group {seen.group_id}",
            f"{sum(lost.values()):,} records that it had not read were deleted, of {_some(map(_name, lost))}",
            "it has lost them, or begins elsewhere by its auto.offset.reset",
            "keep records longer (`odradek config explain --topic TOPIC retention.ms`), or make its consumers faster",
        )
    ahead = [place for place, at in seen.committed.items() if place in ends and at.offset > ends[place]]
    if ahead:
        yield Finding(
            "error",
            f"group {seen.group_id}",
            f"its offsets lie behind the end of {_some(map(_name, ahead))}",
            "it reads nothing until the log gets there, or begins elsewhere; the topic was made anew, or lost its end",
            f"stop its members and `odradek group reset-offsets {seen.group_id} --to latest`, or to earliest",
        )
    waiting = sum(max(0, ends[place] - at.offset) for place, at in seen.committed.items() if place in ends)
    if waiting and seen.state == "Empty":
        yield Finding(
            "warning",
            f"group {seen.group_id}",
            f"it has no members and {waiting:,} records to read",
            "nobody processes them; retention will delete them in time",
            f"start its consumers, or if nobody needs it, `odradek group delete {seen.group_id}`",
        )


def _name(place: Place) -> str:
    return f"{place[0]}-{place[1]}"


def _listed(partitions: Sequence[Partition]) -> str:
    return _some(f"{part.topic}-{part.number}" for part in partitions)


def _some(names: Iterable[str]) -> str:
    words = list(names)
    return ", ".join(words[:SHOWN]) + (f" and {len(words) - SHOWN} more" if len(words) > SHOWN else "")


def _replicas(partitions: Sequence[Partition]) -> str:
    return ", ".join(map(str, sorted({node for part in partitions for node in part.replicas})))
