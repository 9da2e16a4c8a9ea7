"""``odradek group``: list, describe, explain, reset-offsets, delete. In the process of the command."""

from typing import TYPE_CHECKING, Any

import click

from odradek.cli.failure import fail
from odradek.cli.lazy import LazyGroup
from odradek.cli.options import DRY_RUN_OPTION, GROUP_ARGUMENT, YES_OPTION, complete_groups, confirm, on_cluster

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster
    from odradek.clients.groups import Event, GroupDescription

STATES = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Assigning", "Reconciling")


@click.group(cls=LazyGroup)
def group() -> None:
    """List, describe, explain, reset and delete consumer groups."""


@group.command("list")
@on_cluster
@click.option(
    "--state", "states", type=click.Choice(STATES, case_sensitive=False), multiple=True, help="Only in this state."
)
@click.option(
    "--type",
    "types",
    type=click.Choice(("Classic", "Consumer", "Tree"), case_sensitive=False),
    multiple=True,
    help="Only of this protocol. Tree: groups that keep offsets in the metadata tree, as clients of Kafka 0.8 do.",
)
def list_(cluster: "Cluster", as_json: bool, states: tuple[str, ...], types: tuple[str, ...]) -> None:
    """List groups with their states; a group that also keeps offsets in the metadata tree has a second line."""
    from odradek.cli.output import echo_json, print_table
    from odradek.clients import tree_offsets
    from odradek.clients.groups import list_groups

    of_coordinators = [one for one in types if one != "Tree"]
    found = list_groups(cluster, states, of_coordinators) if of_coordinators or not types else []
    rows: list[dict[str, Any]] = [
        {"group": one.group_id, "state": one.state, "type": one.type, "protocol": one.protocol_type,
         "coordinator": one.coordinator}
        for one in found
    ]  # fmt: skip
    if not states and (not types or "Tree" in types):
        empty = {"state": None, "type": "Tree", "protocol": None, "coordinator": None}
        rows += [{"group": name, **empty} for name in tree_offsets.groups(cluster)]
        rows.sort(key=lambda row: str(row["group"]))
    if as_json:
        echo_json(rows)
        return
    titles = ["group", "state", "type", "protocol", "coordinator"]
    print_table(titles, [[row[title] for title in titles] for row in rows], "no groups")


@group.command("describe")
@on_cluster
@GROUP_ARGUMENT
@click.option("--members", "only_members", is_flag=True, help="Only the members.")
@click.option("--offsets", "only_offsets", is_flag=True, help="Only the offsets.")
def describe(cluster: "Cluster", as_json: bool, group_id: str, only_members: bool, only_offsets: bool) -> None:
    """Show a group's members, and how far each partition was read."""
    from odradek.cli import group_view
    from odradek.cli.output import echo_json

    shown = group_view.look(cluster, group_id, with_offsets=not only_members or only_offsets)
    if as_json:
        echo_json(group_view.as_json(shown))
    else:
        group_view.show(shown, members=not only_offsets or only_members)


@group.command("explain")
@on_cluster
@GROUP_ARGUMENT
@click.option("-n", "--last", type=click.IntRange(1), default=40, show_default=True, help="So many events.")
def explain(cluster: "Cluster", as_json: bool, group_id: str, last: int) -> None:
    """Tell what happened to a group lately: who came, who went and why, how long rebalances took."""
    from odradek.cli.output import echo_json, print_table, span, when
    from odradek.clients import groups

    events = groups.explain(cluster, group_id)
    found = groups.describe(cluster, group_id)
    summary = _summary(events, found)
    if as_json:
        echo_json(
            {
                "group": group_id,
                "state": found.state,
                "summary": summary,
                "events": [event._asdict() for event in events[-last:]],
            }
        )
        return
    for line in summary:
        click.echo(line)
    click.echo()
    rows = [
        [
            when(one.at_ms),
            one.kind,
            one.client or one.member,
            one.why,
            None if one.took_ms is None else span(one.took_ms),
        ]
        for one in events[-last:]
    ]
    print_table(["when", "what", "who", "why", "took"], rows, "  its coordinator remembers nothing; it began lately")


def _summary(events: "list[Event]", found: "GroupDescription") -> list[str]:
    """What the events come to, in sentences."""
    from collections import Counter

    from odradek.cli.output import count, span

    lines = [f"Group {found.group_id} is {found.state} with {count(len(found.members), 'member')}."]
    if events:
        lasted = [one.took_ms for one in events if one.took_ms is not None]
        over = span(max(0, events[-1].at_ms - events[0].at_ms))
        if lasted:
            lines.append(
                f"{count(len(lasted), 'rebalance')} ended within {over}; the longest took {span(max(lasted))}."
            )
        expelled = Counter(one.client or one.member for one in events if one.kind == "expelled")
        for who, times in expelled.most_common(3):
            why = next(
                one.why for one in reversed(events) if one.kind == "expelled" and (one.client or one.member) == who
            )
            lines.append(f"{who} was expelled {count(times, 'time')}; the last time: {why or 'no reason known'}.")
    if found.state == "PreparingRebalance":
        lines.append("It waits for members to join again; who does not within its rebalance time-out will be expelled.")
    elif found.state == "CompletingRebalance":
        lines.append("It waits for its leader to send the assignment.")
    elif found.state == "Reconciling":
        behind = [one.client_id for one in found.members if one.wants not in (None, one.assigned)]
        lines.append(f"Members still give up or take over partitions: {', '.join(behind) or 'nobody by now'}.")
    return lines


@group.command("delete")
@on_cluster
@click.argument("group_ids", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_groups)
@YES_OPTION
def delete(cluster: "Cluster", as_json: bool, group_ids: tuple[str, ...], yes: bool) -> None:
    """Delete groups without members, with their committed offsets, also those in the metadata tree."""
    from odradek.cli.group_view import described_or_none
    from odradek.cli.output import count, echo_json
    from odradek.clients import groups, tree_offsets

    offsets = {}
    in_tree = {name: len(places) for name, places in tree_offsets.of_groups(cluster, group_ids).items()}
    for group_id in dict.fromkeys(group_ids):
        found = described_or_none(cluster, group_id, group_id in in_tree)
        if found is not None and found.members:
            fail(
                f"group '{group_id}' has {count(len(found.members), 'member')};"
                f" stop them first (`odradek group describe {group_id} --members` shows who)"
            )
        offsets[group_id] = in_tree.get(group_id, 0)
        if found is not None:
            offsets[group_id] += len(groups.fetch_offsets(cluster, group_id))
    listed = ", ".join(f"{name} ({count(number, 'committed offset')})" for name, number in offsets.items())
    confirm(f"This deletes {listed}.", yes)
    for group_id in offsets:
        groups.delete(cluster, group_id)
        if not as_json:
            click.echo(f"deleted group {group_id}")
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
    help="Of this topic, or these partitions of it; all that were committed if not given.",
)
@click.option(
    "--to",
    "target",
    metavar="WHERE",
    required=True,
    help="earliest, latest, current, an offset, +N or -N records from here, or a time: 2026-01-31T12:00, '1h ago'.",
)
@YES_OPTION
@DRY_RUN_OPTION
def reset_offsets(
    cluster: "Cluster", as_json: bool, group_id: str, chosen: tuple[str, ...], target: str, yes: bool, dry_run: bool
) -> None:
    """Have a group without members read on from elsewhere."""
    from odradek.cli.output import count, echo_json, print_table
    from odradek.cli.reset import NoTarget, chosen_places, planned
    from odradek.clients import groups

    if not dry_run:
        _refuse_members(cluster, group_id)
    committed = groups.fetch_offsets(cluster, group_id)
    try:
        places = chosen_places(cluster, chosen) if chosen else sorted(committed)
        if not places:
            fail(f"group '{group_id}' has committed nothing; say with --topic TOPIC where it shall begin")
        rows = planned(cluster, places, committed, target)
    except NoTarget as error:
        fail(error)
    changes = {
        (row["topic"], row["partition"]): groups.Committed(row["after"])
        for row in rows
        if row["after"] is not None and row["after"] != row["before"]
    }
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
        confirm(f"Group {group_id} will {effect or 'begin there'}.", yes)
        refused = groups.commit_offsets(cluster, group_id, changes)
        if refused:
            (topic, index), code = next(iter(refused.items()))
            fail(f"{topic}-{index} and {len(refused) - 1} more were not reset: {code.message} ({code.name})")
    if as_json:
        echo_json({"group": group_id, "dry_run": dry_run, "offsets": rows})
    else:
        click.echo(f"{'would reset' if dry_run else 'reset'} {count(len(changes), 'partition')} of group {group_id}")


def _refuse_members(cluster: "Cluster", group_id: str) -> None:
    """A group with members keeps its offsets to itself; one that there is not yet may begin anywhere."""
    from odradek.cli.output import count
    from odradek.clients import groups
    from odradek.clients.errors import RefusedError
    from odradek.protocol.errors import ErrorCode

    try:
        found = groups.describe(cluster, group_id)
    except RefusedError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if found.members:
        fail(
            f"group '{group_id}' has {count(len(found.members), 'member')} who would commit over it; stop them first,"
            " or look at what would be done with --dry-run"
        )
