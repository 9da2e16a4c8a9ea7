"""What ``odradek group describe`` shows of a group: its members, and its offsets against the logs. In the command's process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from odradek.cli.output import count, print_table
from odradek.clients import groups, topics, tree_offsets
from odradek.clients.cluster import Cluster
from odradek.clients.errors import RefusedError
from odradek.clients.groups import Committed, GroupDescription, Member, Place
from odradek.protocol.errors import ErrorCode

OFFSET_TITLES = ["topic", "partition", "committed", "end", "lag", "client", "host", "note"]
MEMBER_TITLES = ["member", "instance", "client", "host", "epoch", "assigned", "wants"]


class View(NamedTuple):
    """:param described: None for a group that has offsets in the metadata tree only.
    :param offsets: rows of what is committed or assigned, None if they were not asked for. :param tree: those in the tree.
    """

    group_id: str
    described: GroupDescription | None
    offsets: list[dict[str, Any]] | None
    tree: list[dict[str, Any]]


def look(cluster: Cluster, group_id: str, with_offsets: bool) -> View:
    """Raises RefusedError if there is no such group anywhere, ClientError."""
    in_tree = tree_offsets.of_groups(cluster, [group_id]).get(group_id, {})
    described = described_or_none(cluster, group_id, bool(in_tree))
    if not with_offsets:
        return View(group_id, described, None, [])
    tree = _progress(cluster, {place: Committed(offset) for place, offset in in_tree.items()}, {})
    if described is None:
        return View(group_id, None, None, tree)
    owners = {place: one for one in described.members for place in one.assigned or ()}
    return View(group_id, described, _progress(cluster, groups.fetch_offsets(cluster, group_id), owners), tree)


def described_or_none(cluster: Cluster, group_id: str, in_tree: bool) -> GroupDescription | None:
    """The group; None for one that is in the metadata tree only. Raises RefusedError if it is nowhere, ClientError."""
    try:
        return groups.describe(cluster, group_id)
    except RefusedError as error:
        if not in_tree or error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None


def as_json(view: View) -> dict[str, Any]:
    """All of it."""
    found = view.described
    shown: dict[str, Any] = {"group": view.group_id, "state": None, "type": "Tree", "assignor": None}
    shown |= {"coordinator": None, "epoch": None}
    if found is not None:
        shown |= {"state": found.state, "type": found.type, "assignor": found.assignor}
        shown |= {"coordinator": found.coordinator, "epoch": found.epoch}
    shown |= {"lag": _lag(view.offsets or []), "members": _members(found), "offsets": view.offsets or []}
    return shown | {"tree": view.tree}


def show(view: View, members: bool) -> None:
    """Tables for people. :param members: show them too."""
    found = view.described
    if found is None:
        click.echo(f"Group {view.group_id}: has offsets in the metadata tree only; no coordinator knows the group")
    else:
        click.echo(
            f"Group {found.group_id}: {found.state}, {count(len(found.members), 'member')},"
            f" lag {_lag(view.offsets or []):,} ({found.type.lower()} protocol"
            f"{', ' + found.assignor if found.assignor else ''}; coordinator {found.coordinator})"
        )
    if view.offsets is not None:
        click.echo()
        print_table(OFFSET_TITLES, _cells(OFFSET_TITLES, view.offsets), "  no committed offsets")
    if view.tree:
        titles = [title for title in OFFSET_TITLES if title not in ("client", "host")]
        click.echo(f"\nOffsets in the metadata tree (/consumers/{view.group_id}/offsets), for clients of Kafka 0.8:\n")
        print_table(titles, _cells(titles, view.tree), "")
    if members and found is not None:
        click.echo()
        print_table(MEMBER_TITLES, _cells(MEMBER_TITLES, _members(found)), "  no members")


def _cells(titles: list[str], rows: list[dict[str, Any]]) -> list[list[Any]]:
    return [[row[title] for title in titles] for row in rows]


def _lag(rows: list[dict[str, Any]]) -> int:
    return sum(row["lag"] or 0 for row in rows)


def _members(found: GroupDescription | None) -> list[dict[str, Any]]:
    return [
        {
            "member": one.member_id,
            "instance": one.instance_id,
            "client": one.client_id,
            "host": one.host,
            "epoch": one.epoch,
            "topics": one.topics,
            "assigned": None if one.assigned is None else [f"{name}-{index}" for name, index in one.assigned],
            "wants": None
            if one.wants in (None, one.assigned)
            else [f"{name}-{index}" for name, index in one.wants or ()],
        }
        for one in (found.members if found is not None else ())
    ]


def _progress(
    cluster: Cluster, committed: Mapping[Place, Committed], owners: Mapping[Place, Member]
) -> list[dict[str, Any]]:
    """A row for each partition that was committed or is assigned."""
    places = sorted({*committed, *owners})
    there = cluster.metadata({name for name, _ in places}).topics
    partitions = [part for one in there.values() for part in one.partitions if (part.topic, part.number) in set(places)]
    starts = topics.list_offsets(cluster, partitions, topics.EARLIEST)
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
            }
        )
        rows[-1]["note"] = _note(rows[-1], name in there)
    return rows


def _note(row: dict[str, Any], topic_there: bool) -> str | None:
    """What is odd about a committed offset."""
    if not topic_there:
        return "the topic does not exist"
    if row["end"] is None:
        return "no leader"
    if row["committed"] is None:
        return "nothing committed"
    if row["committed"] > row["end"]:
        return "beyond the end of the log"
    if row["start"] is not None and row["committed"] < row["start"]:
        return f"{row['start'] - row['committed']} records were deleted unread"
    return None
