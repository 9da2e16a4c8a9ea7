"""What the doctor asks a cluster about its groups, and what it makes of the answers."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from odradek.cli.finding import Finding, some
from odradek.clients import groups, topics, tree_offsets
from odradek.clients.cluster import Cluster, View
from odradek.clients.errors import RefusedError
from odradek.clients.groups import Committed, GroupDescription, Place
from odradek.protocol.errors import ErrorCode

REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


class GroupSeen(NamedTuple):
    """A group and its offsets."""

    group_id: str
    state: str
    committed: dict[Place, Committed]


def examine_groups(cluster: Cluster, view: View) -> list[Finding]:
    """All findings. Raises ClientError if the groups cannot be asked for."""
    listed = groups.list_groups(cluster)
    found = []
    stuck = [one.group_id for one in listed if one.state in REBALANCING]
    if stuck:
        found.append(
            Finding(
                "warning",
                f"groups {some(stuck)}",
                "they are rebalancing right now",
                "their members may read nothing meanwhile",
                f"if it lasts, `odradek group explain {stuck[0]}` shows which members join and leave",
            )
        )
    for one in listed:
        described = _described(cluster, one.group_id) if one.state == "Stable" else None
        if described is not None:
            found += judge_members(described)
    seen = [GroupSeen(one.group_id, one.state, groups.fetch_offsets(cluster, one.group_id)) for one in listed]
    wanted = {place for one in seen for place in one.committed}
    partitions = [part for one in view.topics.values() for part in one.partitions if (one.name, part.number) in wanted]
    starts = topics.list_offsets(cluster, partitions, topics.EARLIEST)
    ends = topics.list_offsets(cluster, partitions, topics.LATEST)
    for group in seen:
        found += judge_group(
            group,
            {place: one.offset for place, one in starts.items() if not one.error},
            {place: one.offset for place, one in ends.items() if not one.error},
        )
    in_tree = tree_offsets.of_groups(cluster, tree_offsets.groups(cluster))
    return [*found, *judge_tree(in_tree, {one.group_id: one.committed for one in seen})]


def _described(cluster: Cluster, group_id: str) -> GroupDescription | None:
    """None if the group does not exist any more."""
    try:
        return groups.describe(cluster, group_id)
    except RefusedError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None


def judge_members(group: GroupDescription) -> Iterator[Finding]:
    """Members of a group that have nothing to do."""
    members = len(group.members)
    shared = len({place for one in group.members for place in one.assigned or ()})
    idle = sum(one.assigned == [] for one in group.members)
    if not idle or group.state != "Stable":
        return
    wanted = sorted({name for one in group.members for name in one.topics})
    if not shared:
        what = f"none of its {members} members has a partition"
        remedy = f"check that the topics they subscribe to exist ({some(wanted) or 'nothing'})"
    else:
        what = f"{idle} of its {members} members have no partition: the group has {shared} to share"
        if members > shared:
            topic = wanted[0] if len(wanted) == 1 else "TOPIC"
            remedy = (
                f"run fewer members, or add partitions: `odradek topic alter {topic} --partitions"
                f" {members if len(wanted) == 1 else 'COUNT'}`"
            )
        else:
            remedy = (
                f"let them use another assignor than '{group.assignor}' (partition.assignment.strategy), such as"
                " cooperative-sticky, or subscribe them to the same topics"
            )
    yield Finding(
        "warning",
        f"group {group.group_id}",
        what,
        "members without a partition process nothing as long as the others live",
        remedy,
    )


def judge_tree(
    tree: Mapping[str, Mapping[Place, int]], log: Mapping[str, Mapping[Place, Committed]]
) -> Iterator[Finding]:
    """Groups whose newest offsets are in the metadata tree."""

    def is_newer(group_id: str, place: Place, offset: int) -> bool:
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
            f"groups {some(ahead)}",
            "their newest offsets are in the metadata tree, where consumers older than 0.9 commit",
            "newer consumers of these groups do not see them; offsets there never expire, and each commit writes to the store",
            "before newer consumers take over, `odradek offsets migrate --all --to log`",
        )


def judge_group(seen: GroupSeen, starts: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[Finding]:
    """What is wrong with the offsets of a group."""
    lost = {
        place: starts[place] - at.offset for place, at in seen.committed.items() if at.offset < starts.get(place, 0)
    }
    if lost:
        yield Finding(
            "error",
            f"group {seen.group_id}",
            f"{sum(lost.values()):,} records that it had not read were deleted, of {some(map(_name, lost))}",
            "it has skipped them, or continues where its auto.offset.reset says",
            "keep records longer (`odradek config explain --topic TOPIC retention.ms`), or make its consumers faster",
        )
    ahead = [place for place, at in seen.committed.items() if place in ends and at.offset > ends[place]]
    if ahead:
        yield Finding(
            "error",
            f"group {seen.group_id}",
            f"its offsets are beyond the end of {some(map(_name, ahead))}",
            "it reads nothing until the log reaches them, or follows auto.offset.reset; the topic was recreated or cut",
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
