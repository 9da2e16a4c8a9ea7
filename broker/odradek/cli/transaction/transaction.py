"""``odradek transaction``: list, describe, abort, hanging. Runs in the process of the command."""

from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import complain
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.framework.options import (
    DRY_RUN_OPTION,
    YES_OPTION,
    complete_topics,
    complete_transactional_ids,
    on_cluster,
    repeatable_choice,
)

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster
    from odradek.clients.transactions import TransactionDescription

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence")


class Duration(click.ParamType[int]):
    """A span of time on the command line, such as 15m; its value is in ms."""

    name = "duration"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        from odradek.cli.framework.values import duration_ms

        if isinstance(value, int):
            return value
        try:
            milliseconds = duration_ms(value)
        except ValueError as error:
            self.fail(str(error), parameter, context)
        if milliseconds < 0:
            self.fail(f"'{value}' is negative; write e.g. 15m", parameter, context)
        return milliseconds


@click.group(cls=LazyGroup)
def transaction() -> None:
    """List, describe and abort transactions, and find hanging ones."""


@transaction.command("list")
@on_cluster
@repeatable_choice("--state", "states", STATES, "transactional ids in this state; repeatable.")
@click.option(
    "--producer-id",
    "producer_ids",
    type=click.IntRange(0),
    multiple=True,
    help="List only the transactional id with this producer id; repeatable.",
)
@click.option(
    "--older-than",
    "older_than_ms",
    metavar="TIME",
    type=Duration(),
    help="List only transactions that have been open for longer than this, such as 15m or 90s; a plain number is in"
    " ms."
    " Needs brokers of Kafka 3.8 or newer, or Odradek.",
)
@click.option(
    "--match", "pattern", metavar="PATTERN", help="List only transactional ids that match, such as 'orders-*'."
)
def list_(
    cluster: "Cluster",
    as_json: bool,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    older_than_ms: int | None,
    pattern: str | None,
) -> None:
    """List transactional ids with their states and producers, and for how long their transactions have been open."""
    from odradek.cli.framework.output import echo_json, print_table, span
    from odradek.clients import transactions
    from odradek.clock import now_ms

    chosen = states or (() if older_than_ms is None else transactions.OPEN)
    listings = transactions.list_transactions(cluster, chosen, producer_ids, older_than_ms, pattern)
    open_ones = [listing for listing in listings if listing.state in transactions.OPEN]
    described = transactions.describe_listed(cluster, open_ones)
    now = now_ms()
    rows = []
    for listing in listings:
        description = described.get(listing.transactional_id)
        open_ms = None if description is None or description.started_ms < 0 else max(0, now - description.started_ms)
        rows.append({**listing._asdict(), "open_ms": open_ms})
    if as_json:
        echo_json(rows)
        return
    titles = ["transactional id", "state", "producer id", "coordinator", "open for"]
    cells = [
        [
            row["transactional_id"],
            row["state"],
            row["producer_id"],
            row["coordinator"],
            None if row["open_ms"] is None else span(row["open_ms"]),
        ]
        for row in rows
    ]
    filtered = bool(chosen or producer_ids or pattern is not None)
    print_table(titles, cells, "no transactional ids" + (" match" if filtered else ""))


@transaction.command("describe")
@on_cluster
@click.argument(
    "transactional_ids", metavar="ID...", nargs=-1, required=True, shell_complete=complete_transactional_ids
)
def describe(cluster: "Cluster", as_json: bool, transactional_ids: tuple[str, ...]) -> None:
    """Show the producer of transactional ids, and the age and the partitions of their transactions.

    Exit code 1 if an ID does not exist; the others are shown.
    """
    import sys

    from odradek.cli.framework.output import echo_json
    from odradek.clients import transactions
    from odradek.clients.errors import RefusedError

    descriptions, refusals = [], []
    for name in dict.fromkeys(transactional_ids):
        try:
            descriptions.append(transactions.describe(cluster, name))
        except RefusedError as error:
            refusals.append(error)
    if as_json and descriptions:
        echo_json([_as_dict(description) for description in descriptions])
    elif not as_json:
        for number, description in enumerate(descriptions):
            if number:
                echo()
            _show(description)
    for refusal in refusals:
        complain(refusal)
    if refusals:
        sys.exit(1)


def _as_dict(description: "TransactionDescription") -> dict[str, Any]:
    document = description._asdict()
    document["started_ms"] = None if description.started_ms < 0 else description.started_ms
    document["partitions"] = [{"topic": topic, "partition": number} for topic, number in description.partitions]
    return document


def _show(description: "TransactionDescription") -> None:
    from odradek.cli.framework.output import span, when
    from odradek.clock import now_ms

    echo(f"{description.transactional_id}: {description.state}, coordinator is broker {description.coordinator}")
    echo(f"  producer id {description.producer_id}, epoch {description.producer_epoch}")
    echo(f"  transaction timeout: {description.timeout_ms} ms ({span(description.timeout_ms)})")
    if description.started_ms >= 0:
        age = max(0, now_ms() - description.started_ms)
        echo(f"  open since {when(description.started_ms)} ({span(age)})")
    if description.partitions:
        label = "partitions" if description.state == "Ongoing" else "partitions without a marker"
        echo(f"  {label}: {', '.join(_name(*place) for place in description.partitions)}")


def _name(topic: str, number: int) -> str:
    return f"{topic}-{number}"


@transaction.command("abort")
@on_cluster
@click.argument("transactional_id", metavar="[ID]", required=False, shell_complete=complete_transactional_ids)
@click.option(
    "-t",
    "--topic",
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="Topic of the partition with a hanging transaction.",
)
@click.option("-p", "--partition", type=click.IntRange(0), help="Number of the partition with a hanging transaction.")
@click.option(
    "--start-offset",
    type=click.IntRange(0),
    help="First offset of the transaction in the partition, as `odradek transaction hanging` prints it.",
)
@click.option(
    "--producer-id",
    type=click.IntRange(0),
    help="Producer id of the transaction, with --producer-epoch and --coordinator-epoch; instead of --start-offset, for"
    " brokers before Kafka 2.8. On newer brokers, the command refuses epochs that differ from those of the producer.",
)
@click.option("--producer-epoch", type=click.IntRange(0, 32767), help="Producer epoch of the transaction.")
@click.option(
    "--coordinator-epoch",
    type=click.IntRange(-1),
    help="Coordinator epoch of the producer's last marker in the partition; -1 if it has none.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Write the marker even if the partition belongs to the open transaction of a transactional id, or if the producer"
    " named with --producer-id has no open transaction in the partition.",
)
@DRY_RUN_OPTION
@YES_OPTION
def abort(
    cluster: "Cluster",
    as_json: bool,
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
    force: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Abort the open transaction of a transactional id, or a hanging transaction in one partition.

    With ID, its coordinator aborts the transaction in all partitions and fences the producer, which then fails with an error.
    With --topic and --partition, the leader of the partition writes an abort marker. Use this form only for hanging
    transactions: `odradek transaction hanging` finds them and prints the command.

    With --dry-run, the command makes the same checks, and prints the abort markers that would be written: the partition, the
    producer id, the producer epoch and the coordinator epoch of each.
    """
    from odradek.cli.transaction.abort import abort_id, abort_in_partition, found_at, named

    producer = (producer_id, producer_epoch, coordinator_epoch)
    if transactional_id is not None:
        if topic is not None or partition is not None or start_offset is not None or producer != (None, None, None):
            raise click.UsageError("give either ID, or --topic and --partition")
        abort_id(cluster, as_json, transactional_id, yes, dry_run)
        return
    if topic is not None and partition is None:
        raise click.UsageError("--partition is missing: give the number of the partition of the hanging transaction")
    if topic is None or partition is None:
        raise click.UsageError(
            "give the transactional ID, or --topic and --partition of a hanging transaction (`odradek transaction hanging`)"
        )
    if start_offset is not None and producer == (None, None, None):
        marker = found_at(cluster, (topic, partition), start_offset)
    elif (
        start_offset is None
        and producer_id is not None
        and producer_epoch is not None
        and coordinator_epoch is not None
    ):
        place = topic, partition
        marker = named(cluster, place, producer_id, producer_epoch, coordinator_epoch, force)
    elif start_offset is not None:
        raise click.UsageError(
            "give either --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch; not both"
        )
    else:
        raise click.UsageError("give --start-offset, or all of --producer-id, --producer-epoch and --coordinator-epoch")
    abort_in_partition(cluster, as_json, marker, force, yes, dry_run)


@transaction.command("hanging")
@on_cluster
@click.option(
    "-t",
    "--topic",
    "patterns",
    metavar="TOPIC",
    multiple=True,
    shell_complete=complete_topics,
    help="Look only at this topic, or at topics that match a pattern such as 'ord*'; repeatable.",
)
@click.option(
    "--broker-id",
    "broker_ids",
    type=click.IntRange(0),
    multiple=True,
    help="Look only at partitions that this broker leads; repeatable.",
)
@click.option(
    "--max-transaction-timeout",
    "limit_ms",
    metavar="TIME",
    type=Duration(),
    help="Look only at transactions whose producer last wrote longer ago than this, such as 20m; a plain number is in ms."
    " 0: look at all open transactions.  [default: the brokers' transaction.max.timeout.ms plus 5 minutes]",
)
def hanging(
    cluster: "Cluster", as_json: bool, patterns: tuple[str, ...], broker_ids: tuple[int, ...], limit_ms: int | None
) -> None:
    """Find transactions that are open in a partition although no coordinator will end them.

    The last stable offset of the partition cannot pass the first record of such a transaction: consumers with isolation
    level read_committed receive no records from it on, and the log is not compacted from it on. The command changes
    nothing; it prints the command that aborts each hanging transaction. It also reports the number of younger open
    transactions that belong to no open transaction of a transactional id; --max-transaction-timeout 0 lists them. Exit code
    1 if it finds a hanging transaction, or cannot check a partition.
    """
    from odradek.cli.transaction.search import search

    search(cluster, as_json, patterns, broker_ids, limit_ms)
