"""``odradek mirror status``: workers, positions and lags of the flows of a mirror's file."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.command import HelpfulCommand
from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import complain, fail, warn
from odradek.cli.framework.options import JSON_OPTION
from odradek.cli.framework.output import GroupedNumber, count, echo_json, print_table
from odradek.cli.mirror.mirror import flow_options, load_flows
from odradek.http_request import HttpError, request

if TYPE_CHECKING:
    from odradek.mirror.status import FlowStatus, PartitionRow

TOPIC_TITLES = ["topic", "copy", "partitions", "lag", "stopped"]
PARTITION_TITLES = ["topic", "partition", "copy", "lane", "position", "end", "lag", "stopped"]
WORKER_TITLES = ["worker", "host", "lanes"]
_LARGEST_PAGE = 1 << 26
_LIMIT_S = 10.0


@click.command(cls=HelpfulCommand)
@flow_options
@click.option("--partitions", is_flag=True, help="Show a row for each partition instead of each topic.")
@click.option(
    "--metrics",
    "addresses",
    metavar="HOST:PORT",
    multiple=True,
    help="Read the reasons of stopped partitions from a worker with this odradek.mirror.metrics.listener. Repeatable.",
)
@JSON_OPTION
def status(
    file: str,
    targets: tuple[str, ...],
    sources: tuple[str, ...],
    overrides: tuple[str, ...],
    partitions: bool,
    addresses: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the workers, positions and lags of FILE's flows.

    The positions are read from the target and the end offsets from the source, so no worker needs to run. The column
    STOPPED shows why partitions are not mirrored, with the offset in the source, as a worker stored it with the position;
    reasons that it could not store are known only to the worker, see --metrics. Exit code 1 if a flow cannot be read.
    """
    from odradek.clients.errors import ClientError
    from odradek.mirror.following import FlowError
    from odradek.mirror.status import Stopped, read

    settings, edges = load_flows(file, targets, sources, overrides, notes=False)
    stopped = Stopped(_pages(addresses))
    failed = False
    documents = []
    for flow in settings.flows:
        try:
            with flow.source.connect() as source, flow.target.connect() as target:
                found = read(flow, edges, source, target, stopped)
        except (FlowError, ClientError) as error:
            complain(f"{flow.name}: {error}")
            failed = True
            continue
        documents.append(as_document(found))
        if not as_json:
            _print(found, partitions)
    if as_json:
        echo_json({"file": file, "flows": documents})
    sys.exit(int(failed))


def _pages(addresses: Iterable[str]) -> list[str]:
    """The metrics of workers; ends the command if one cannot be read."""
    pages = []
    for address in addresses:
        url = f"http://{address.removeprefix('http://').partition('/')[0]}/metrics"
        try:
            response = request(url, limit_s=_LIMIT_S, largest=_LARGEST_PAGE)
        except HttpError as error:
            fail(
                f"cannot read the metrics of {address}: {error}; --metrics needs the "
                "odradek.mirror.metrics.listener of a running worker"
            )
        if response.status != 200:
            fail(f"cannot read the metrics of {address}: HTTP status {response.status}")
        pages.append(response.body.decode("utf-8", "replace"))
    return pages


def as_document(found: "FlowStatus") -> dict[str, Any]:
    """The state of a flow as a JSON object."""
    return {
        "flow": found.flow,
        "group": found.group_id,
        "state": found.state,
        "lanes": found.lanes,
        "lag": _sum(found.partitions),
        "workers": [worker._asdict() for worker in found.workers],
        "partitions": [
            {
                "topic": row.source[0],
                "partition": row.source[1],
                "copy": row.target[0],
                "lane": row.lane,
                "position": row.position,
                "end": row.end,
                "lag": row.lag,
                "stopped": row.stopped or None,
            }
            for row in found.partitions
        ],
        "not_mirrored": found.refused,
        "warnings": found.warnings,
    }


def _sum(rows: "Iterable[PartitionRow]") -> int:
    return sum(row.lag or 0 for row in rows)


def _print(found: "FlowStatus", partitions: bool) -> None:
    workers = count(len(found.workers), "worker") if found.workers else "no worker runs"
    lag = count(_sum(found.partitions), "record")
    echo(f"{found.flow}: {workers}, {count(len(found.partitions), 'partition')}, lag {lag}, group {found.group_id}")
    if found.workers:
        print_table(WORKER_TITLES, [[worker.name, worker.host, worker.lanes] for worker in found.workers], "")
    if partitions:
        print_table(PARTITION_TITLES, [_partition_cells(row) for row in found.partitions], "no topic is mirrored")
    else:
        print_table(TOPIC_TITLES, _topic_cells(found.partitions), "no topic is mirrored")
    for topic, reason in sorted(found.refused.items()):
        warn(f"{found.flow}: topic '{topic}' is not mirrored: {reason}")
    for line in found.warnings:
        warn(f"{found.flow}: {line}")


def _partition_cells(row: "PartitionRow") -> list[Any]:
    lag = None if row.lag is None else GroupedNumber(row.lag)
    return [*row.source, row.target[0], row.lane, row.position, row.end, lag, row.stopped]


def _topic_cells(rows: "list[PartitionRow]") -> list[list[Any]]:
    by_topic: dict[tuple[str, str], list[PartitionRow]] = {}
    for row in rows:
        by_topic.setdefault((row.source[0], row.target[0]), []).append(row)
    return [
        [
            *names,
            len(parts),
            GroupedNumber(_sum(parts)),
            "; ".join(sorted({row.stopped for row in parts if row.stopped})),
        ]
        for names, parts in by_topic.items()
    ]
