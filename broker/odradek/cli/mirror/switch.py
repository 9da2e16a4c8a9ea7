"""``odradek mirror switch``: moves a consumer group from one cluster of a mirror to another (odradek.mirror.switch).

Runs in the process of the command, in one thread.
"""

from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.command import HelpfulCommand
from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail, warn
from odradek.cli.framework.options import DRY_RUN_OPTION, JSON_OPTION, Span, complete_paths
from odradek.cli.mirror.mirror import load_flows

if TYPE_CHECKING:
    from odradek.mirror.settings import ClusterSettings, FlowSettings, MirrorSettings
    from odradek.mirror.switch import Move, Plan, Switch, SwitchFlow

TITLES = ["topic", "partition", "offset", "to topic", "to offset", "before", "remark"]


@click.command(cls=HelpfulCommand)
@click.argument("group_id", metavar="GROUP")
@click.argument("file", shell_complete=complete_paths)
@click.option("--from", "from_alias", metavar="ALIAS", help="Alias of the cluster in which the group is now.")
@click.option("--to", "to_alias", metavar="ALIAS", help="Alias of the cluster to which the group moves.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Span(),
    default="1m",
    show_default=True,
    help="How long to wait until the group has no members and the mirror has copied what the group has read.",
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace the offsets that the group has in the cluster of --to, even if they are larger.",
)
@click.option(
    "--allow-repeats",
    is_flag=True,
    help="Move the group even if an offset is not exact; the group may then read records twice.",
)
@click.option(
    "--source-lost",
    is_flag=True,
    help="The cluster of --from is lost: use the newest checkpoints in the cluster of --to. The group may read records twice.",
)
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Set one key; overrides FILE. Repeatable.")
@DRY_RUN_OPTION
@JSON_OPTION
def switch(
    group_id: str,
    file: str,
    from_alias: str | None,
    to_alias: str | None,
    timeout_s: float,
    overwrite: bool,
    allow_repeats: bool,
    source_lost: bool,
    overrides: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Move the consumer group GROUP to another cluster of the mirror in FILE, without losing or repeating a record.

    Stop the members of the group first, and let the mirror run. The command waits until the mirror has copied what the
    group has read, finds in the other cluster the first record that the group has not read, and commits its offset there. Then
    start the members on the other cluster. To move the group back, exchange --from and --to. If FILE has only one flow, both
    can be omitted: the group moves from its source to its target. Exit code 1 if the group cannot be moved.

    If the cluster of --from is lost, --source-lost moves the group with the checkpoints that the mirror has written in the
    cluster of --to. No record in this cluster is skipped; the command shows how many records the group may read twice.
    `odradek mirror groups` lists the groups that have checkpoints.
    """
    from odradek.cli.mirror.lost import check_source, switch_lost
    from odradek.clients.errors import ClientError
    from odradek.mirror.switch import Switch

    settings, _ = load_flows(file, (), (), overrides, notes=False)
    here, there = _ends(settings, from_alias, to_alias)
    if source_lost:
        switch_lost(_flow(settings, here.alias, there.alias), group_id, overwrite, dry_run, as_json)
        return
    flows = _flows(settings, here.alias, there.alias)
    try:
        with here.connect() as first, there.connect() as second:
            check_source(first, settings, here.alias, there.alias)
            moving = Switch(group_id, first, second, here.alias, there.alias, flows, timeout_s, warn)
            plan = moving.plan(stopped=not dry_run)
            if not as_json:
                _print(plan, here.alias, there.alias)
            refusal = _refusal(moving, plan, overwrite, allow_repeats)
            if not dry_run and refusal is None:
                moving.execute(plan)
    except ClientError as error:
        fail(error)
    if as_json:
        _echo_document(plan, here.alias, there.alias, not dry_run and refusal is None, refusal)
    if refusal is not None:
        fail(f"{refusal}; nothing was committed")
    if not as_json:
        _print_end(plan, there.alias, dry_run)


def _ends(
    settings: "MirrorSettings", from_alias: str | None, to_alias: str | None
) -> "tuple[ClusterSettings, ClusterSettings]":
    """The clusters of --from and --to; ends the command if the file does not have them."""
    if from_alias is None and to_alias is None and len(settings.flows) == 1:
        return settings.flows[0].source, settings.flows[0].target
    if from_alias is None or to_alias is None:
        flows = ", ".join(flow.name for flow in settings.flows)
        fail(f"name the clusters with --from ALIAS and --to ALIAS; the flows of {settings.file} are {flows}", 2)
    for option, alias in (("--from", from_alias), ("--to", to_alias)):
        if alias not in settings.clusters:
            fail(
                f"{option} {alias} is not a cluster of {settings.file}; its clusters are {', '.join(settings.clusters)}",
                2,
            )
    return settings.clusters[from_alias], settings.clusters[to_alias]


def _flows(settings: "MirrorSettings", here: str, there: str) -> "list[SwitchFlow]":
    """The flows between two clusters, in both directions; ends the command if there are none."""
    from odradek.mirror.switch import SwitchFlow

    flows = [SwitchFlow.of(flow) for flow in settings.flows if {flow.source.alias, flow.target.alias} == {here, there}]
    if not flows:
        known = ", ".join(flow.name for flow in settings.flows)
        fail(f"{settings.file} has no flow between '{here}' and '{there}'; its flows are {known}", 2)
    return flows


def _flow(settings: "MirrorSettings", here: str, there: str) -> "FlowSettings":
    """The flow from one cluster to the other; ends the command if there is none."""
    found = next((flow for flow in settings.flows if (flow.source.alias, flow.target.alias) == (here, there)), None)
    if found is None:
        known = ", ".join(flow.name for flow in settings.flows)
        fail(
            f"{settings.file} has no flow '{here}->{there}', whose checkpoints --source-lost needs in '{there}'; its flows are"
            f" {known}",
            2,
        )
    return found


def _refusal(moving: "Switch", plan: "Plan", overwrite: bool, allow_repeats: bool) -> str | None:
    from odradek.mirror.switch import SwitchError

    try:
        moving.check(plan, overwrite, allow_repeats)
    except SwitchError as error:
        return str(error)
    return None


def _remark(move: "Move") -> str:
    if not move.exact:
        return f"may repeat records: {move.note}"
    return "end of the mirrored records" if move.end else ""


def _print(plan: "Plan", here: str, there: str) -> None:
    from odradek.cli.framework.output import print_table

    echo(f"group {plan.group_id} from {here} to {there}")
    rows = [[*move.twin.here, move.offset, move.twin.there[0], move.translated, move.before, _remark(move)]
            for move in plan.moves]  # fmt: skip
    print_table(TITLES, rows, "")
    for (topic, number), offset in sorted(plan.unmoved.items()):
        warn(f"{topic}-{number} is not mirrored between {here} and {there}: its offset {offset} is not moved")


def _print_end(plan: "Plan", there: str, dry_run: bool) -> None:
    from odradek.cli.framework.output import count

    topics = ", ".join(sorted({move.twin.there[0] for move in plan.moves}))
    partitions = count(len(plan.moves), "partition")
    if dry_run:
        echo(f"would commit the offsets of {partitions} in {there}; nothing was changed")
    else:
        echo(f"committed the offsets of {partitions} in {there}; its members must read {topics} there")


def _echo_document(plan: "Plan", here: str, there: str, committed: bool, refusal: str | None) -> None:
    from odradek.cli.framework.output import echo_json

    rows: list[dict[str, Any]] = [
        {
            "topic": move.twin.here[0],
            "partition": move.twin.here[1],
            "offset": move.offset,
            "to_topic": move.twin.there[0],
            "to_offset": move.translated,
            "before": move.before,
            "exact": move.exact,
            "end": move.end,
        }
        for move in plan.moves
    ]
    unmoved = [
        {"topic": topic, "partition": number, "offset": offset}
        for (topic, number), offset in sorted(plan.unmoved.items())
    ]
    echo_json(
        {
            "group": plan.group_id,
            "from": here,
            "to": there,
            "committed": committed,
            "refused": refusal,
            "partitions": rows,
            "not_mirrored": unmoved,
        }
    )
