"""Reads and prints what ``odradek group describe`` shows: a group's members, its committed offsets and their lag.

Runs in the process of the command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from odradek.cli.framework.echo import echo
from odradek.cli.framework.output import count, print_table
from odradek.clients import groups, topics, tree_offsets
from odradek.clients.cluster import Cluster
from odradek.clients.errors import RefusedError
from odradek.clients.groups import CommittedOffset, GroupDescription, Member, PendingOffset
from odradek.mirror.keys import GROUP_PREFIX
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition

OFFSET_TITLES = ["topic", "partition", "committed", "end", "lag", "client", "host", "note"]
MEMBER_TITLES = ["member", "instance", "client", "host", "epoch", "assigned", "wants"]


class View(NamedTuple):
    """The description of a group and its offsets.

    :param described: None for a group that has offsets only in the metadata tree.
    :param offsets: a row for each partition with a committed offset or an assignment; None if offsets were not requested.
    :param tree: a row for each partition with an offset in the metadata tree.
    """

    group_id: str
    described: GroupDescription | None
    offsets: list[dict[str, Any]] | None
    tree: list[dict[str, Any]]


def read_view(cluster: Cluster, group_id: str, with_offsets: bool) -> View:
    """Read a group from its coordinator and the metadata tree. Raises RefusedError if the group is in neither, ClientError."""

    def in_tree() -> dict[TopicPartition, CommittedOffset]:
        offsets = tree_offsets.of_groups(cluster, [group_id]).get(group_id, {})
        return {place: CommittedOffset(offset) for place, offset in offsets.items()}

    with naming_similar(cluster, group_id):
        described = groups.described_or_none(cluster, group_id, bool(in_tree()))
    if not with_offsets:
        return View(group_id, described, None, [])
    tree = _progress(cluster, in_tree, {})
    if described is None:
        return View(group_id, None, None, tree)
    owners = {place: member for member in described.members for place in member.assigned or ()}
    pending = groups.pending_offsets(cluster, group_id)
    rows = _progress(cluster, lambda: groups.fetch_offsets(cluster, group_id), owners, pending)
    if group_id.startswith(GROUP_PREFIX):
        rows = [row | {"lag": None, "note": "a position in the source of a mirror"} for row in rows]
    return View(group_id, described, rows, tree)


@contextmanager
def naming_similar(cluster: Cluster, group_id: str) -> Iterator[None]:
    """Let the error for a group that does not exist name the group that may be meant. Raises RefusedError, ClientError."""
    try:
        yield
    except RefusedError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        raise groups.no_group(group_id, lambda: groups.known_groups(cluster)) from None


def as_json(view: View) -> dict[str, Any]:
    """The view as a JSON object."""
    described = view.described
    document: dict[str, Any] = {"group": view.group_id, "state": None, "type": "Tree", "assignor": None}
    document |= {"coordinator": None, "epoch": None}
    if described is not None:
        document |= {"state": described.state, "type": described.type, "assignor": described.assignor}
        document |= {"coordinator": described.coordinator, "epoch": described.epoch}
    document |= {"lag": _lag(view.offsets or []), "members": _members(described), "offsets": view.offsets or []}
    return document | {"tree": view.tree}


def show(view: View, members: bool) -> None:
    """Print the view as tables. :param members: whether to print the members."""
    described = view.described
    if described is None:
        echo(f"Group {view.group_id}: has offsets only in the metadata tree; no coordinator knows the group")
    else:
        echo(
            f"Group {described.group_id}: {described.state}, {count(len(described.members), 'member')},"
            f" lag {_lag(view.offsets or []):,} ({described.type.lower()} protocol"
            f"{', ' + described.assignor if described.assignor else ''}; coordinator {described.coordinator})"
        )
    if view.offsets is not None:
        echo()
        print_table(OFFSET_TITLES, _cells(OFFSET_TITLES, view.offsets), "  no committed offsets")
    if view.tree:
        titles = [title for title in OFFSET_TITLES if title not in ("client", "host")]
        echo(f"\nOffsets in the metadata tree (/consumers/{view.group_id}/offsets), for clients of Kafka 0.8:\n")
        print_table(titles, _cells(titles, view.tree), "")
    if members and described is not None:
        echo()
        headings = ["target" if title == "wants" else title for title in MEMBER_TITLES]
        print_table(headings, _cells(MEMBER_TITLES, _members(described)), "  no members")


def _cells(titles: list[str], rows: list[dict[str, Any]]) -> list[list[Any]]:
    return [[row[title] for title in titles] for row in rows]


def _lag(rows: list[dict[str, Any]]) -> int:
    return sum(row["lag"] or 0 for row in rows)


def _members(described: GroupDescription | None) -> list[dict[str, Any]]:
    return [
        {
            "member": member.member_id,
            "instance": member.instance_id,
            "client": member.client_id,
            "host": member.host,
            "epoch": member.epoch,
            "topics": member.topics,
            "assigned": None if member.assigned is None else [f"{name}-{index}" for name, index in member.assigned],
            "wants": None
            if member.wants in (None, member.assigned)
            else [f"{name}-{index}" for name, index in member.wants or ()],
        }
        for member in (described.members if described is not None else ())
    ]


def _progress(
    cluster: Cluster,
    read_committed: Callable[[], Mapping[TopicPartition, CommittedOffset]],
    owners: Mapping[TopicPartition, Member],
    pending: Mapping[TopicPartition, Sequence[PendingOffset]] | None = None,
) -> list[dict[str, Any]]:
    """A row for each partition that has a committed offset, an offset in an open transaction, or an owner.

    The committed offsets are read again between the starts and the ends of the logs: a group that goes on, while retention
    deletes what it has read, has lost nothing.
    """
    pending = pending or {}
    places = sorted({*read_committed(), *owners, *pending})
    existing = cluster.metadata({name for name, _ in places}).topics
    partitions = [
        part for info in existing.values() for part in info.partitions if (part.topic, part.number) in set(places)
    ]
    starts = topics.list_offsets(cluster, partitions, topics.EARLIEST)
    committed = read_committed()
    ends = topics.list_offsets(cluster, partitions, topics.LATEST)
    rows = []
    for place in places:
        name, index = place
        at = committed[place].offset if place in committed else None
        end = ends[place].offset if place in ends and not ends[place].error else None
        owner = owners.get(place)
        rows.append(
            {
                "topic": name,
                "partition": index,
                "committed": at,
                "start": starts[place].offset if place in starts and not starts[place].error else None,
                "end": end,
                "lag": None if at is None or end is None else max(0, end - at),
                "client": owner.client_id if owner else None,
                "host": owner.host if owner else None,
                "metadata": committed[place].metadata if place in committed else None,
                "pending": [offset._asdict() for offset in pending.get(place, ())],
            }
        )
        rows[-1]["note"] = _note(rows[-1], name in existing)
    return rows


def _note(row: dict[str, Any], topic_exists: bool) -> str | None:
    """A note on a committed offset that needs attention; None if there is nothing to note."""
    if not topic_exists:
        return "the topic does not exist"
    if row["end"] is None:
        return "no leader"
    if row["pending"]:
        producers = ", ".join(str(pending["producer_id"]) for pending in row["pending"])
        return f"pending in a transaction of producer {producers}"
    if row["committed"] is None:
        return "no committed offset"
    if row["committed"] > row["end"]:
        return "beyond the end of the log"
    if row["start"] is not None and row["committed"] < row["start"]:
        return f"{row['start'] - row['committed']} records were deleted before the group read them"
    return None
