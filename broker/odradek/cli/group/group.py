"""``odradek group``: list, describe, explain, reset-offsets, delete. Runs in the process of the command."""

from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail, warn
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.framework.options import (
    DRY_RUN_OPTION,
    GROUP_ARGUMENT,
    YES_OPTION,
    complete_groups,
    confirm,
    on_cluster,
    repeatable_choice,
)

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster
    from odradek.clients.groups import Event, GroupDescription, PendingOffset
    from odradek.topic_partition import TopicPartition

STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Assigning", "Reconciling")


@click.group(cls=LazyGroup)
def group() -> None:
    """List, describe, explain, reset and delete consumer groups."""


@group.command("list")
@on_cluster
@repeatable_choice("--state", "states", STATES, "groups in this state; repeatable.")
@repeatable_choice(
    "--type",
    "types",
    ("Classic", "Consumer", "Tree"),
    "groups of this protocol; repeatable. Tree: groups with offsets in the metadata tree, where clients of Kafka 0.8 commit.",
)
@click.option("--no-lag", is_flag=True, help="Do not request members and offsets: faster if there are many groups.")
@click.option(
    "--sort",
    type=click.Choice(("group", "lag")),
    default="group",
    show_default=True,
    help="Order of the groups: by id, or by lag, the largest first.",
)
@click.option(
    "--watch",
    "every",
    metavar="SECONDS",
    type=click.FloatRange(0.1),
    help="Repeat at this interval until Ctrl-C.",
)
def list_(
    cluster: "Cluster",
    as_json: bool,
    states: tuple[str, ...],
    types: tuple[str, ...],
    no_lag: bool,
    sort: str,
    every: float | None,
) -> None:
    """List groups with their states, members and lag: the number of records after their committed offsets.

    The lag is "-" for a group that has committed no offset, and for one of a mirror, whose offsets are positions in another
    cluster. A group that also has offsets in the metadata tree has a second line of type Tree.
    """
    import sys

    from odradek.cli.framework.output import GroupedNumber, echo_json, print_table
    from odradek.cli.framework.output_pipe import pause

    titles = ["group", "state", "type", "protocol", "members", "lag", "coordinator"]
    while True:
        rows = _listed(cluster, states, types, not no_lag)
        if sort == "lag":
            rows.sort(key=lambda row: -1 if row["lag"] is None else row["lag"], reverse=True)
        if every is not None and not as_json and sys.stdout.isatty():
            click.clear()
        if as_json:
            echo_json(rows)
        else:
            counts = [row | {"lag": None if row["lag"] is None else GroupedNumber(row["lag"])} for row in rows]
            cells = [[row[title] for title in titles] for row in counts]
            print_table(titles, cells, "" if rows else _none_listed(cluster, states, types))
        if every is None:
            return
        sys.stdout.flush()
        pause(every)


def _listed(
    cluster: "Cluster", states: tuple[str, ...], types: tuple[str, ...], with_lag: bool
) -> list[dict[str, Any]]:
    """A row for each group, sorted by id; without `with_lag`, members and lag are None. Raises ClientError."""
    from odradek.clients import group_lags, tree_offsets
    from odradek.clients.groups import list_groups
    from odradek.mirror.keys import GROUP_PREFIX

    coordinated_types = [name for name in types if name != "Tree"]
    groups = list_groups(cluster, states, coordinated_types) if coordinated_types or not types else []
    in_tree = tree_offsets.groups(cluster) if not states and (not types or "Tree" in types) else []
    members: dict[str, int] = {}
    lags: dict[str, int | None] = {}
    tree_lags: dict[str, int | None] = {}
    if with_lag:
        members = group_lags.members(cluster, groups)
        own = [group for group in groups if not group.group_id.startswith(GROUP_PREFIX)]
        lags = group_lags.lags(cluster, group_lags.committed(cluster, own))
        tree_lags = group_lags.lags(cluster, tree_offsets.of_groups(cluster, in_tree))
    rows: list[dict[str, Any]] = [
        {"group": group.group_id, "state": group.state, "type": group.type, "protocol": group.protocol_type,
         "members": members.get(group.group_id), "lag": lags.get(group.group_id), "coordinator": group.coordinator}
        for group in groups
    ]  # fmt: skip
    rows += [
        {"group": name, "state": None, "type": "Tree", "protocol": None, "members": None, "lag": tree_lags.get(name),
         "coordinator": None}
        for name in in_tree
    ]  # fmt: skip
    return sorted(rows, key=lambda row: str(row["group"]))


def _none_listed(cluster: "Cluster", states: tuple[str, ...], types: tuple[str, ...]) -> str:
    """The text for an empty list: the states and types that the command looked for, and the number of other groups."""
    from odradek.cli.framework.output import count
    from odradek.clients import tree_offsets
    from odradek.clients.groups import list_groups

    if not states and not types:
        return "no groups"
    others = len({group.group_id for group in list_groups(cluster)}.union(tree_offsets.groups(cluster)))
    wanted = [f"in state {' or '.join(states)}"] if states else []
    wanted += [f"of type {' or '.join(types)}"] if types else []
    if states and types:
        return f"no groups {' '.join(wanted)} ({count(others, 'other group')})"
    return f"no groups {wanted[0]} ({count(others, 'group')} {'in other states' if states else 'of other types'})"


@group.command("describe")
@on_cluster
@GROUP_ARGUMENT
@click.option("--members", "only_members", is_flag=True, help="Show only the members.")
@click.option("--offsets", "only_offsets", is_flag=True, help="Show only the offsets.")
def describe(cluster: "Cluster", as_json: bool, group_id: str, only_members: bool, only_offsets: bool) -> None:
    """Show a group's members, and the committed offset and lag of each partition."""
    from odradek.cli.framework.output import echo_json
    from odradek.cli.group import view as group_view

    view = group_view.read_view(cluster, group_id, with_offsets=not only_members or only_offsets)
    if as_json:
        echo_json(group_view.as_json(view))
    else:
        group_view.show(view, members=not only_offsets or only_members)


@group.command("explain")
@on_cluster
@GROUP_ARGUMENT
@click.option("-n", "--last", type=click.IntRange(1), default=40, show_default=True, help="Maximum number of events.")
def explain(cluster: "Cluster", as_json: bool, group_id: str, last: int) -> None:
    """Show a group's recent events: which members joined and left, and why; and how long each rebalance took.

    An expelled member is one that the broker removed, for example because it sent no heartbeat. Only Odradek's brokers record
    these events; other brokers return an error.
    """
    from odradek.cli.framework.output import echo_json, print_table, span, when
    from odradek.cli.group.view import naming_similar
    from odradek.clients import groups

    with naming_similar(cluster, group_id):
        events = groups.explain(cluster, group_id)
        description = groups.describe(cluster, group_id)
    pending = groups.pending_offsets(cluster, group_id)
    summary = _summary(events, description, pending)
    if as_json:
        echo_json(
            {
                "group": group_id,
                "state": description.state,
                "summary": summary,
                "events": [event._asdict() for event in events[-last:]],
                "pending": [
                    {"topic": topic, "partition": partition} | offset._asdict()
                    for (topic, partition), offsets in sorted(pending.items())
                    for offset in offsets
                ],
            }
        )
        return
    for line in summary:
        echo(line)
    echo()
    rows = [
        [
            when(event.at_ms),
            event.kind,
            event.client or event.member,
            event.why,
            None if event.took_ms is None else span(event.took_ms),
        ]
        for event in events[-last:]
    ]
    titles = ["time", "event", "member", "reason", "duration"]
    print_table(titles, rows, "  no events: the group's coordinator has recorded none since it started")


def _summary(
    events: "list[Event]", description: "GroupDescription", pending: "dict[TopicPartition, list[PendingOffset]]"
) -> list[str]:
    """The group's state and a summary of its events, in sentences."""
    from collections import Counter

    from odradek.cli.framework.output import count, span

    lines = [f"Group {description.group_id} is {description.state} with {count(len(description.members), 'member')}."]
    if events:
        durations_ms = [event.took_ms for event in events if event.took_ms is not None]
        period = span(max(0, events[-1].at_ms - events[0].at_ms))
        if durations_ms:
            lines.append(
                f"The recorded events span {period}, in which {count(len(durations_ms), 'rebalance')} ended;"
                f" the longest took {span(max(durations_ms))}."
            )
        expulsions = [event for event in events if event.kind == "expelled"]
        for client, times in Counter(event.client or event.member for event in expulsions).most_common(3):
            why = next(event.why for event in reversed(expulsions) if (event.client or event.member) == client)
            lines.append(f"{client} was expelled {count(times, 'time')}; the last time: {why or 'no reason known'}.")
    for producer_id, offsets in Counter(offset.producer_id for of in pending.values() for offset in of).most_common(3):
        verb = "is" if offsets == 1 else "are"
        lines.append(
            f"{count(offsets, 'offset')} {verb} pending in a transaction of producer {producer_id}; consumers that require"
            " stable offsets wait for the end of the transaction."
        )
    if description.state == "PreparingRebalance":
        lines.append(
            "The group waits for its members to rejoin. Members that do not rejoin within their rebalance timeout are expelled."
        )
    elif description.state == "CompletingRebalance":
        lines.append("The group waits for its leader to send the assignment.")
    elif description.state == "Reconciling":
        moving = [member.client_id for member in description.members if member.wants not in (None, member.assigned)]
        lines.append(f"Members that still revoke or take over partitions: {', '.join(moving) or 'none now'}.")
    return lines


@group.command("delete")
@on_cluster
@click.argument("group_ids", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_groups)
@YES_OPTION
def delete(cluster: "Cluster", as_json: bool, group_ids: tuple[str, ...], yes: bool) -> None:
    """Delete groups without members, with their committed offsets, including those in the metadata tree."""
    from odradek.cli.framework.output import count, echo_json
    from odradek.cli.group.view import naming_similar
    from odradek.clients import groups, tree_offsets

    offsets = {}
    in_tree = {name: len(places) for name, places in tree_offsets.of_groups(cluster, group_ids).items()}
    for group_id in dict.fromkeys(group_ids):
        with naming_similar(cluster, group_id):
            description = groups.described_or_none(cluster, group_id, group_id in in_tree)
        if description is not None and description.members:
            fail(
                f"group '{group_id}' has {count(len(description.members), 'member')};"
                f" stop them first (`odradek group describe {group_id} --members` lists them)"
            )
        offsets[group_id] = in_tree.get(group_id, 0)
        if description is not None:
            offsets[group_id] += len(groups.fetch_offsets(cluster, group_id))
    listed = ", ".join(f"{name} ({count(number, 'committed offset')})" for name, number in offsets.items())
    confirm(f"This permanently deletes {listed}.", yes)
    for group_id in offsets:
        groups.delete(cluster, group_id)
        if not as_json:
            echo(f"deleted group {group_id}")
    if as_json:
        echo_json([{"group": name, "deleted": True, "offsets": number} for name, number in offsets.items()])


@group.command("reset-offsets")
@on_cluster
@GROUP_ARGUMENT
@click.option(
    "-t",
    "--topic",
    "chosen",
    metavar="TOPIC[:0,1]",
    multiple=True,
    help="Reset only this topic, or these partitions of it; repeatable (default: all partitions with committed offsets).",
)
@click.option(
    "--to",
    "position",
    metavar="WHERE",
    required=True,
    help="New position: earliest, latest, current (the committed offset), an offset, +N or -N from the committed offset,"
    " or a time: 2026-01-31T12:00, '1h ago'.",
)
@YES_OPTION
@DRY_RUN_OPTION
def reset_offsets(
    cluster: "Cluster", as_json: bool, group_id: str, chosen: tuple[str, ...], position: str, yes: bool, dry_run: bool
) -> None:
    """Change the committed offsets of a group that has no members.

    New offsets are limited to the range of offsets in each partition's log.
    """
    from odradek.cli.framework.output import count, echo_json, print_table
    from odradek.cli.group.reset import InvalidTargetError, parse_partitions, plan
    from odradek.clients import groups
    from odradek.clients.errors import hint_on

    exists = _exists(cluster, group_id, may_have_members=dry_run)
    similar = "" if exists else hint_on(group_id, lambda: groups.known_groups(cluster), "")
    if not exists and not chosen:
        fail(
            f"group '{group_id}' does not exist; {similar or '`odradek group list` shows all groups'}"
            f"{' To' if similar else '; to'} set the offsets of a new group, name its topics with --topic TOPIC"
        )
    committed = groups.fetch_offsets(cluster, group_id)
    try:
        places = parse_partitions(cluster, chosen) if chosen else sorted(committed)
        if not places:
            fail(f"group '{group_id}' has no committed offsets; name the topics to set them for with --topic TOPIC")
        rows = plan(cluster, places, committed, position)
    except InvalidTargetError as error:
        fail(error)
    changes = {
        (row["topic"], row["partition"]): groups.CommittedOffset(row["after"])
        for row in rows
        if row["after"] is not None and row["after"] != row["before"]
    }
    if changes and not exists:
        created = "would create it" if dry_run else "create it"
        warn(f"group '{group_id}' does not exist: the offsets {created}{f'; {similar}' if similar else ''}")
    if not as_json:
        titles = ["topic", "partition", "before", "after", "change"]
        print_table(titles, [[row[title] for title in titles] for row in rows], "nothing to reset")
    if changes and not dry_run:
        again = sum(max(0, (row["before"] or 0) - row["after"]) for row in rows if row["before"] is not None)
        skipped = sum(max(0, row["after"] - row["before"]) for row in rows if row["before"] is not None)
        effect = ", ".join(
            text for number, text in
            ((again, f"read {count(again, 'record')} again"), (skipped, f"skip {count(skipped, 'record')}")) if number
        )  # fmt: skip
        confirm(f"Group {group_id} will {effect or 'start at these offsets'}.", yes)
        refused = groups.commit_offsets(cluster, group_id, changes)
        if refused:
            (topic, index), code = next(iter(refused.items()))
            more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
            fail(f"the offsets of {topic}-{index}{more} were not reset: {code.message} ({code.name})")
    if as_json:
        echo_json({"group": group_id, "dry_run": dry_run, "offsets": rows})
    else:
        echo(f"{'would reset' if dry_run else 'reset'} {count(len(changes), 'partition')} of group {group_id}")


def _exists(cluster: "Cluster", group_id: str, may_have_members: bool) -> bool:
    """Whether the group exists, or may exist. Ends the command if members of the group would overwrite its new offsets."""
    from odradek.cli.framework.output import count
    from odradek.clients import groups, tree_offsets

    description = groups.described_or_none(cluster, group_id, in_tree=True)
    if description is None:
        return tree_offsets.may_have_offsets(cluster, group_id)
    if description.members and not may_have_members:
        fail(
            f"group '{group_id}' has {count(len(description.members), 'member')} whose commits would overwrite the new"
            " offsets; stop the members first, or add --dry-run to only show the new offsets"
        )
    return True
