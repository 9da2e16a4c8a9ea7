"""``odradek offsets migrate``: copies committed offsets between the metadata tree and `__consumer_offsets`.

Runs in the process of the command. The metadata tree (`/consumers/<group>/offsets`, OffsetCommit and OffsetFetch version 0)
and `__consumer_offsets` (later versions) are independent of each other. While consumers of both kinds run, the larger offset
of a partition is taken as the newer one, as old consumers with `dual.commit.enabled` do. The command never replaces an offset
by a smaller one, except with --overwrite.
"""

from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.failure import fail
from odradek.cli.framework.interrupt import interrupt_note
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.framework.options import DRY_RUN_OPTION, complete_groups, on_cluster

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster
    from odradek.protocol.errors import ErrorCode
    from odradek.topic_partition import TopicPartition


@click.group(cls=LazyGroup)
def offsets() -> None:
    """Copy committed offsets between the metadata tree (old consumers) and __consumer_offsets (newer consumers)."""


@offsets.command("migrate")
@on_cluster
@click.argument("group_ids", metavar="GROUP...", nargs=-1, shell_complete=complete_groups)
@click.option("--all", "all_groups", is_flag=True, help="Migrate all groups that have offsets in the metadata tree.")
@click.option(
    "--to",
    "target",
    type=click.Choice(("log", "tree", "both")),
    required=True,
    help="Where to copy to. log: __consumer_offsets, which consumers since 0.9 use. tree: /consumers/GROUP/offsets, which"
    " consumers before 0.9 use. both: the larger offset of a partition is copied to the other side.",
)
@click.option("--overwrite", is_flag=True, help="Also replace an offset by a smaller one. Not with --to both.")
@click.option(
    "--every",
    type=click.FloatRange(0.05),
    metavar="SECONDS",
    help="Repeat at this interval until Ctrl-C, while consumers of both kinds run.",
)
@click.option("--rounds", type=click.IntRange(1), help="With --every: exit after this number of rounds.")
@DRY_RUN_OPTION
def migrate(
    cluster: "Cluster",
    as_json: bool,
    group_ids: tuple[str, ...],
    all_groups: bool,
    target: str,
    overwrite: bool,
    every: float | None,
    rounds: int | None,
    dry_run: bool,
) -> None:
    """Copy the committed offsets of groups from the metadata tree to __consumer_offsets, back, or in both directions.

    An offset is not replaced by a smaller one, except with --overwrite.
    """
    from odradek.cli.framework.output import count, echo_json, progress
    from odradek.cli.framework.output_pipe import pause

    if overwrite and target == "both":
        raise click.UsageError("--overwrite needs one direction: --to log or --to tree")
    group_ids = _chosen(cluster, group_ids, all_groups, must_exist=every is None)
    remaining = 1 if every is None else rounds
    copied = 0
    with interrupt_note(lambda: f"{count(copied, 'offset')} had been copied"):
        while True:
            rows: list[dict[str, Any]] = []
            with progress("migrating", len(group_ids), "groups", hidden=as_json or len(group_ids) < 2) as advance:
                for group_id in dict.fromkeys(group_ids):
                    group_rows = _migrate(cluster, group_id, target, overwrite, dry_run)
                    copied += sum(row["outcome"] == "copied" for row in group_rows)
                    rows += group_rows
                    advance()
            refused = [row for row in rows if row["outcome"] not in ("copied", "would copy", "equal", "newer there")]
            if as_json:
                echo_json(rows)
            elif every is None or any(row["outcome"] == "copied" for row in rows) or refused:
                _print(rows)
            if remaining is not None:
                remaining -= 1
            if remaining == 0:
                if refused:
                    fail(f"{count(len(refused), 'offset')} could not be copied: {refused[0]['outcome']}")
                return
            pause(every or 0)


def _print(rows: list[dict[str, Any]]) -> None:
    from odradek.cli.framework.output import print_table

    titles = ["group", "topic", "partition", "tree", "log", "to", "outcome"]
    print_table(titles, [[row[title] for title in titles] for row in rows], "no committed offsets to copy")


def _chosen(cluster: "Cluster", group_ids: tuple[str, ...], all_groups: bool, must_exist: bool) -> tuple[str, ...]:
    """The groups to migrate. Raises UsageError, RefusedError for a group that does not exist, ClientError."""
    from odradek.cli.framework.output import count
    from odradek.cli.group.view import naming_similar
    from odradek.clients import groups, tree_offsets

    if bool(group_ids) == all_groups:
        present = tree_offsets.groups(cluster)
        named = f": {', '.join(present[:10])}{', ...' if len(present) > 10 else ''}" if present else ""
        raise click.UsageError(
            "name the groups, or add --all for all groups in the metadata tree"
            f" (it has {count(len(present), 'group')}{named})"
        )
    if all_groups:
        return tuple(tree_offsets.groups(cluster))
    if must_exist:
        in_tree = tree_offsets.of_groups(cluster, group_ids)
        for group_id in group_ids:
            with naming_similar(cluster, group_id):
                groups.described_or_none(cluster, group_id, group_id in in_tree)
    return group_ids


def _migrate(cluster: "Cluster", group_id: str, target: str, overwrite: bool, dry_run: bool) -> list[dict[str, Any]]:
    """Copy one group's offsets; a row for each partition with an offset on a side to copy from. Raises ClientError."""
    from odradek.clients import groups, tree_offsets

    places = [
        (info.name, part.number)
        for info in cluster.metadata().topics.values()
        if not info.internal
        for part in info.partitions
    ]
    tree = tree_offsets.fetch(cluster, group_id, places)
    log = {place: committed.offset for place, committed in groups.fetch_offsets(cluster, group_id).items()}
    to_log: dict[TopicPartition, int] = {}
    to_tree: dict[TopicPartition, int] = {}
    rows: list[dict[str, Any]] = []
    for place in sorted({*tree, *log}):
        in_tree, in_log = tree.get(place), log.get(place)
        to = target
        if target == "both":
            to = "log" if (in_tree if in_tree is not None else -1) >= (in_log if in_log is not None else -1) else "tree"
        source, destination = (in_tree, in_log) if to == "log" else (in_log, in_tree)
        if source is None:
            continue
        outcome = (
            "equal"
            if source == destination
            else "newer there"
            if destination is not None and destination > source and not overwrite
            else "copied"
        )
        if outcome == "copied":
            (to_log if to == "log" else to_tree)[place] = source
            outcome = "would copy" if dry_run else "copied"
        row: dict[str, Any] = {"group": group_id, "topic": place[0], "partition": place[1]}
        rows.append(row | {"tree": in_tree, "log": in_log, "to": to, "outcome": outcome})
    if dry_run:
        return rows
    refused: dict[tuple[str, TopicPartition], ErrorCode] = {}
    if to_log:
        commits = {place: groups.CommittedOffset(offset) for place, offset in to_log.items()}
        refused |= {("log", place): code for place, code in groups.commit_offsets(cluster, group_id, commits).items()}
    if to_tree:
        refused |= {("tree", place): code for place, code in tree_offsets.commit(cluster, group_id, to_tree).items()}
    for row in rows:
        code = refused.get((row["to"], (row["topic"], row["partition"])))
        if code is not None and row["outcome"] == "copied":
            row["outcome"] = _reason(code)
    return rows


def _reason(code: "ErrorCode") -> str:
    from odradek.protocol.errors import ErrorCode

    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
        return "the group has members, which commit their own offsets"
    return f"{code.message} ({code.name})"
