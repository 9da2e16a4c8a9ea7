"""``odradek mirror check``: the mirror's file, both clusters of each flow, and what a worker would create."""

import sys
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.command import HelpfulCommand
from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import complain, warn
from odradek.cli.framework.options import JSON_OPTION
from odradek.cli.framework.output import count, echo_json, print_table
from odradek.cli.mirror.mirror import flow_options, load_flows

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster
    from odradek.mirror.following import Plan, TopicPlan
    from odradek.mirror.names import Edge
    from odradek.mirror.settings import FlowSettings

TITLES = ["topic", "copy", "partitions", "action"]


@click.command(cls=HelpfulCommand)
@flow_options
@JSON_OPTION
def check(
    file: str, targets: tuple[str, ...], sources: tuple[str, ...], overrides: tuple[str, ...], as_json: bool
) -> None:
    """Check FILE and the clusters of its flows, and show which topics would be mirrored.

    Nothing is changed: the target only validates the topics that a worker would create. Exit code 1 if a flow cannot
    run or a topic cannot be mirrored.
    """
    settings, edges = load_flows(file, targets, sources, overrides)
    documents = [_examine(flow, edges) for flow in settings.flows]
    if as_json:
        echo_json({"file": file, "notes": list(settings.notes), "flows": documents})
    else:
        for document in documents:
            _print(document)
    sys.exit(int(any(document["errors"] for document in documents)))


def _examine(flow: "FlowSettings", edges: "list[Edge]") -> dict[str, Any]:
    """What is known of a flow. `errors` has a sentence for each obstacle."""
    from odradek.clients.errors import ClientError
    from odradek.mirror.following import FlowError, Following
    from odradek.mirror.status import Stopped, read

    document: dict[str, Any] = {"flow": flow.name, "group": flow.group_id, "topics": [], "warnings": [], "errors": []}
    try:
        with flow.source.connect() as source, flow.target.connect() as target:
            following = Following(flow, edges, source, target)
            plan = following.plan()
            following.check_rights()
            following.check_reverse(plan)
            following.try_out(plan)
            _check_copies(flow, plan, target)
            plan.warnings += following.acls_left_out(plan)
            rows = read(flow, edges, source, target, Stopped()).partitions
    except (FlowError, ClientError) as error:
        document["errors"].append(f"{flow.name}: {error}")
        return document
    return document | _described(flow, plan, {row.source[0]: row.stopped for row in rows if row.stopped})


def _check_copies(flow: "FlowSettings", plan: "Plan", target: "Cluster") -> None:
    """Refuse topics whose copies have records, but no positions."""
    from odradek.mirror.routes import EARLIEST
    from odradek.mirror.starting import check_copies

    options = flow.lane_options
    if options.append or options.start != EARLIEST:
        return
    copies = {topic.target: topic for topic in plan.topics if topic.present and topic.source.name not in plan.refused}
    places = [
        (copy, number) for copy, topic in copies.items() for number in range(min(topic.partitions, topic.present))
    ]
    for (copy, _), reason in sorted(check_copies(target, flow.group_id, places).items()):
        plan.refused.setdefault(copies[copy].source.name, reason)


def _described(flow: "FlowSettings", plan: "Plan", stopped: dict[str, str]) -> dict[str, Any]:
    return {
        "source_cluster": plan.source_cluster,
        "target_cluster": plan.target_cluster,
        "topics": [
            {
                "topic": topic.source.name,
                "copy": topic.target,
                "partitions": topic.partitions,
                "copy_partitions": topic.present,
                "action": _action(topic),
            }
            for topic in plan.topics
            if topic.source.name not in plan.refused
        ],
        "warnings": [f"{flow.name}: {line}" for line in plan.warnings],
        "errors": [
            f"{flow.name}: topic '{topic}': {reason}" for topic, reason in sorted((stopped | plan.refused).items())
        ],
    }


def _action(topic: "TopicPlan") -> str:
    if topic.present == 0:
        return "create"
    return f"add {topic.partitions - topic.present}" if topic.present < topic.partitions else "exists"


def _print(document: dict[str, Any]) -> None:
    found = count(len(document["topics"]), "topic") if "source_cluster" in document else "cannot run"
    echo(f"{document['flow']}: {found}, group {document['group']}")
    rows = [[topic["topic"], topic["copy"], topic["partitions"], topic["action"]] for topic in document["topics"]]
    if rows:
        print_table(TITLES, rows, "")
    for line in document["warnings"]:
        warn(line)
    for line in document["errors"]:
        complain(line)
