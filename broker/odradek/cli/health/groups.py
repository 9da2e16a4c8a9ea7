"""Checks of `odradek doctor` on a cluster's groups: their members, committed offsets, and offsets in the metadata tree."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from odradek.cli.framework.output import abbreviate, count, span
from odradek.cli.health.finding import Finding
from odradek.clients import groups, topics, tree_offsets
from odradek.clients.cluster import Cluster, View
from odradek.clients.errors import RefusedError
from odradek.clients.groups import CommittedOffset, GroupDescription
from odradek.mirror.keys import GROUP_PREFIX
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition

REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


LATE_S = 300
"""As the alert OdradekLagSeconds."""


class GroupOffsets(NamedTuple):
    """A group with its state and committed offsets."""

    group_id: str
    state: str
    committed: dict[TopicPartition, CommittedOffset]


def examine_groups(cluster: Cluster, view: View) -> list[Finding]:
    """All findings. Raises ClientError if the groups cannot be listed.

    Logs and groups go on meanwhile. The starts of logs are read before the committed offsets, and the ends after them: what is
    below a start, or beyond an end, has been so at one moment.
    """
    listed = groups.list_groups(cluster)
    findings = []
    rebalancing = [group.group_id for group in listed if group.state in REBALANCING]
    if rebalancing:
        findings.append(
            Finding(
                "warning",
                f"groups {abbreviate(rebalancing)}",
                "the groups are rebalancing",
                "members may not receive records until the rebalance has ended",
                f"if it takes long, `odradek group explain {rebalancing[0]}` shows which members join and leave",
            )
        )
    for group in listed:
        described = _described(cluster, group.group_id) if group.state == "Stable" else None
        if described is not None:
            findings += judge_members(described)
    starts = topics.list_offsets(
        cluster, [part for info in view.topics.values() for part in info.partitions], topics.EARLIEST
    )
    with_offsets = [
        GroupOffsets(group.group_id, group.state, groups.fetch_offsets(cluster, group.group_id)) for group in listed
    ]
    places = {place for group in with_offsets for place in group.committed}
    partitions = [
        part for info in view.topics.values() for part in info.partitions if (info.name, part.number) in places
    ]
    ends = topics.list_offsets(cluster, partitions, topics.LATEST)
    for group_offsets in with_offsets:
        findings += judge_group(
            group_offsets,
            {place: start.offset for place, start in starts.items() if not start.error},
            {place: end.offset for place, end in ends.items() if not end.error},
        )
    in_tree = tree_offsets.of_groups(cluster, tree_offsets.groups(cluster))
    return [*findings, *judge_tree(in_tree, {group.group_id: group.committed for group in with_offsets})]


def _described(cluster: Cluster, group_id: str) -> GroupDescription | None:
    """Describe a group; None if it no longer exists. Raises RefusedError, ClientError."""
    try:
        return groups.describe(cluster, group_id)
    except RefusedError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None


def judge_members(group: GroupDescription) -> Iterator[Finding]:
    """The finding that members of a stable group have no partition."""
    members = len(group.members)
    assigned = len({place for member in group.members for place in member.assigned or ()})
    idle = sum(member.assigned == [] for member in group.members)
    if not idle or group.state != "Stable":
        return
    subscribed = sorted({name for member in group.members for name in member.topics})
    if not assigned:
        what = f"none of the members ({members}) has a partition"
        remedy = f"check that the topics to which the members subscribe exist ({abbreviate(subscribed) or 'none'})"
    else:
        what = f"{idle} of {members} members have no partition; the others have {count(assigned, 'partition')}"
        if members > assigned:
            topic = subscribed[0] if len(subscribed) == 1 else "TOPIC"
            remedy = (
                f"run fewer members, or add partitions: `odradek topic alter {topic} --partitions"
                f" {members if len(subscribed) == 1 else 'COUNT'}`"
            )
        else:
            remedy = (
                f"configure another assignor than '{group.assignor}' (partition.assignment.strategy), such as"
                " cooperative-sticky, or subscribe the members to the same topics"
            )
    yield Finding(
        "warning",
        f"group {group.group_id}",
        what,
        "members without a partition process nothing, and only take over when another member leaves",
        remedy,
    )


def judge_tree(
    tree: Mapping[str, Mapping[TopicPartition, int]], log: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
) -> Iterator[Finding]:
    """The finding that groups have newer offsets in the metadata tree than in `__consumer_offsets`."""

    def is_newer(group_id: str, place: TopicPartition, offset: int) -> bool:
        known = log.get(group_id, {}).get(place)
        return known is None or known.offset < offset

    ahead = sorted(
        group_id
        for group_id, offsets in tree.items()
        if any(is_newer(group_id, place, offset) for place, offset in offsets.items())
    )
    if ahead:
        yield Finding(
            "warning",
            f"groups {abbreviate(ahead)}",
            "the newest offsets of these groups are in the metadata tree, to which consumers older than 0.9 commit",
            "newer consumers of these groups do not see the offsets in the tree; these never expire, and each commit writes "
            "to the metadata store",
            "run `odradek offsets migrate --all --to log` before newer consumers take over",
        )


def judge_group(
    group: GroupOffsets, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> Iterator[Finding]:
    """The findings on a group's committed offsets. :param starts, ends: of the logs, by partition.

    The offsets of a mirror's group are positions in another cluster, so nothing is known of them here.
    """
    if group.group_id.startswith(GROUP_PREFIX):
        return
    lost = {
        place: starts[place] - committed.offset
        for place, committed in group.committed.items()
        if committed.offset < starts.get(place, 0)
    }
    if lost:
        yield Finding(
            "error",
            f"group {group.group_id}",
            f"{sum(lost.values()):,} records of {abbreviate(map(_name, lost))} were deleted before the group read them",
            "the group has skipped these records, or continues where its auto.offset.reset says",
            "keep records longer (`odradek config explain --topic TOPIC retention.ms`), or make the consumers faster",
        )
    beyond = [place for place, committed in group.committed.items() if place in ends and committed.offset > ends[place]]
    if beyond:
        yield Finding(
            "error",
            f"group {group.group_id}",
            f"committed offsets are beyond the end of {abbreviate(map(_name, beyond))}",
            "the topic was recreated or truncated; the group reads nothing until the log reaches the offsets, or follows its "
            "auto.offset.reset",
            f"stop the members, then run `odradek group reset-offsets {group.group_id} --to latest` (or earliest)",
        )
    lag = sum(max(0, ends[place] - committed.offset) for place, committed in group.committed.items() if place in ends)
    if lag and group.state == "Empty":
        yield Finding(
            "warning",
            f"group {group.group_id}",
            f"the group has no members, and {lag:,} records to read",
            "no consumer processes these records, and retention will delete them",
            f"start the group's consumers; if the group is not needed, run `odradek group delete {group.group_id}`",
        )


def judge_late_groups(behind: Mapping[tuple[str, str], float]) -> Iterator[Finding]:
    """The findings on groups whose consumers run but are behind.

    :param behind: age in seconds of the oldest record that a group with members has not committed, by group and topic.
    """
    for (group_id, topic), age_s in sorted(behind.items(), key=lambda entry: -entry[1]):
        if age_s < LATE_S or group_id.startswith(GROUP_PREFIX):
            continue
        yield Finding(
            "warning",
            f"group {group_id}",
            f"the oldest record of {topic} that the group has not committed is {span(round(age_s) * 1000)} old",
            "the group's consumers are slower than the producers, or do not make progress; retention deletes records that they "
            "do not read in time",
            f"`odradek group describe {group_id}` shows the lag of each partition; add consumers, or make them faster",
        )


def _name(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"
