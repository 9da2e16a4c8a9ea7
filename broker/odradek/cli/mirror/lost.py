"""``odradek mirror groups``, ``odradek mirror switch --source-lost``: when a cluster is lost (odradek.mirror.lost_source).

Runs in the process of the command, in one thread. Only the target of the flow must answer.
"""

import time
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.command import HelpfulCommand
from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail, warn
from odradek.cli.framework.options import JSON_OPTION
from odradek.cli.mirror.mirror import flow_options, load_flows

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster
    from odradek.mirror.lost_source import LostMove, LostPlan
    from odradek.mirror.settings import FlowSettings, MirrorSettings

PROBE_S = 3.0
"""How long the source may take to show that it is not lost."""
TITLES = ["topic", "partition", "source offset", "checkpoint", "to offset", "before", "may repeat", "remark"]


@click.command(cls=HelpfulCommand)
@flow_options
@JSON_OPTION
def groups(
    file: str, targets: tuple[str, ...], sources: tuple[str, ...], overrides: tuple[str, ...], as_json: bool
) -> None:
    """List the consumer groups that have checkpoints, without their source.

    These are the groups that `odradek mirror switch --source-lost` can move if the source of the flow is lost. The age is
    that of the group's newest checkpoint; a worker writes a checkpoint only when the offset of the group has changed.
    """
    from odradek.clients.errors import ClientError
    from odradek.mirror.checkpoints import has_members
    from odradek.mirror.lost_source import newest_checkpoints
    from odradek.mirror.switch import SwitchFlow

    settings, _ = load_flows(file, targets, sources, overrides, notes=False)
    rows: list[dict[str, Any]] = []
    try:
        for flow in settings.flows:
            with flow.target.connect() as target:
                for group_id, found in sorted(newest_checkpoints(target, SwitchFlow.of(flow)).items()):
                    rows.append(
                        {
                            "flow": flow.name,
                            "group": group_id,
                            "topics": sorted({topic for topic, _ in found}),
                            "partitions": len(found),
                            "checkpoint_ms": max(newest.written_ms for newest in found.values()),
                            "members_in_target": has_members(target, group_id),
                        }
                    )
    except ClientError as error:
        fail(error)
    _print_groups(rows, as_json)


def _print_groups(rows: list[dict[str, Any]], as_json: bool) -> None:
    from odradek.cli.framework.output import echo_json, print_table

    if as_json:
        echo_json({"groups": rows})
        return
    titles = ["flow", "group", "topics", "partitions", "checkpoint", "members in target"]
    cells = [[*list(row.values())[:4], _age(row["checkpoint_ms"]), row["members_in_target"]] for row in rows]
    print_table(titles, cells, "no group has checkpoints")


def switch_lost(flow: "FlowSettings", group_id: str, overwrite: bool, dry_run: bool, as_json: bool) -> None:
    """Move a group to the target of the flow with the checkpoints there; print what was done. Ends the command on errors."""
    from odradek.clients.errors import ClientError
    from odradek.mirror.lost_source import LostSource
    from odradek.mirror.switch import SwitchFlow

    if _answers(flow):
        warn(
            f"'{flow.source.alias}' answers: if it still has its records and groups, repeat the command without --source-lost, "
            "which finds the exact offsets"
        )
    try:
        with flow.target.connect() as target:
            moving = LostSource(group_id, target, SwitchFlow.of(flow))
            plan = moving.plan(overwrite, stopped=not dry_run)
            if not as_json:
                _print(plan, flow)
            written = 0 if dry_run else moving.execute(plan)
    except ClientError as error:
        fail(error)
    if as_json:
        _echo_document(plan, flow, not dry_run)
    else:
        _print_end(plan, flow, dry_run, written)


def _answers(flow: "FlowSettings") -> bool:
    from odradek.clients.errors import ClientError

    try:
        with flow.source.connect(timeout_s=PROBE_S) as source:
            source.view()
    except ClientError:
        return False
    return True


def check_source(source: "Cluster", settings: "MirrorSettings", here: str, there: str) -> None:
    """End the command if the cluster of the group cannot be reached, and name the option for a lost one if it can help."""
    from odradek.clients.errors import NoBootstrapServerError

    try:
        source.view()
    except NoBootstrapServerError as error:
        flows = [flow for flow in settings.flows if (flow.source.alias, flow.target.alias) == (here, there)]
        if not flows:
            fail(f"cannot reach '{here}': {error}")
        fail(
            f"cannot reach '{here}': {error}; if the cluster is lost, --source-lost moves the group with the newest"
            f" checkpoints in '{there}'"
        )


def _age(written_ms: int) -> str:
    from odradek.cli.framework.output import span

    seconds = max(0, int(time.time() * 1000) - written_ms) // 1000
    return f"{span(seconds * 1000)} ago" if seconds else "0 s ago"


def _row(move: "LostMove") -> list[Any]:
    newest = move.newest
    upstream, age = (None, None) if newest is None else (newest.checkpoint.upstream, _age(newest.written_ms))
    return [*move.place, upstream, age, move.translated, move.before, move.repeats, move.note]


def _print(plan: "LostPlan", flow: "FlowSettings") -> None:
    from odradek.cli.framework.output import print_table

    here, there = flow.source.alias, flow.target.alias
    echo(f"group {plan.group_id} from {here} (lost) to {there}")
    print_table(TITLES, [_row(move) for move in plan.moves], "")
    for topic, number in plan.missing:
        warn(f"{topic}-{number} has a checkpoint, but {there} does not have the partition")
    warn(
        f"'{here}' was not read: members of the group that still run there, offsets that the group committed after the "
        f"checkpoints, and records that the mirror had not copied are unknown"
    )


def _print_end(plan: "LostPlan", flow: "FlowSettings", dry_run: bool, written: int) -> None:
    from odradek.cli.framework.output import GroupedNumber, count

    there = flow.target.alias
    repeats = GroupedNumber(sum(move.repeats for move in plan.moves))
    bound = f"at most {repeats} records are read twice, and none is skipped"
    if dry_run:
        echo(f"would commit offsets in {there}; {bound}; nothing was changed")
        return
    names = ", ".join(sorted({topic for topic, _ in (move.place for move in plan.moves)}))
    echo(
        f"committed the offsets of {count(written, 'partition')} in {there}; its members must read {names} there; {bound}"
    )


def _echo_document(plan: "LostPlan", flow: "FlowSettings", committed: bool) -> None:
    from odradek.cli.framework.output import echo_json

    rows = [
        {
            "to_topic": move.place[0],
            "partition": move.place[1],
            "offset": None if move.newest is None else move.newest.checkpoint.upstream,
            "checkpoint_ms": None if move.newest is None else move.newest.written_ms,
            "to_offset": move.translated,
            "before": move.before,
            "kept": move.kept,
            "may_repeat": move.repeats,
            "note": move.note,
        }
        for move in plan.moves
    ]
    echo_json(
        {
            "group": plan.group_id,
            "from": flow.source.alias,
            "to": flow.target.alias,
            "source_lost": True,
            "committed": committed,
            "may_repeat": sum(move.repeats for move in plan.moves),
            "partitions": rows,
            "missing": [{"topic": topic, "partition": number} for topic, number in plan.missing],
        }
    )
