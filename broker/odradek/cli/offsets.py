"""``odradek offsets migrate``: committed offsets from where old consumers keep them to where new ones do, and back.

In the process of the command. The metadata tree (`/consumers/<group>/offsets`, OffsetCommit and OffsetFetch of version 0) and
`__consumer_offsets` (later versions) know nothing of each other. While consumers of both kinds run, the larger offset of a
partition is the newer one, as for old consumers with `dual.commit.enabled`: an offset is never put back, unless --overwrite.
"""

import time
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.failure import fail
from odradek.cli.interrupt import noting
from odradek.cli.lazy import LazyGroup
from odradek.cli.options import DRY_RUN_OPTION, complete_groups, on_cluster

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster
    from odradek.clients.groups import Place
    from odradek.protocol.errors import ErrorCode


@click.group(cls=LazyGroup)
def offsets() -> None:
    """Move committed offsets between where old and new consumers keep them."""


@offsets.command("migrate")
@on_cluster
@click.argument("group_ids", metavar="GROUP...", nargs=-1, shell_complete=complete_groups)
@click.option("--all", "all_groups", is_flag=True, help="All groups that have offsets in the metadata tree.")
@click.option(
    "--to",
    "target",
    type=click.Choice(("log", "tree", "both")),
    required=True,
    help="log: __consumer_offsets, where consumers of today look. tree: /consumers/GROUP/offsets, where those of before"
    " 0.9 look. both: each gets what the other has newer.",
)
@click.option("--overwrite", is_flag=True, help="Also put an offset back to a smaller one.")
@click.option(
    "--every",
    type=click.FloatRange(0.05),
    metavar="SECONDS",
    help="Go on until Ctrl-C, while consumers of both kinds run.",
)
@click.option("--rounds", type=click.IntRange(1), help="With --every: so many times.")
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
    """Copy the committed offsets of groups from the metadata tree to __consumer_offsets, or back, or both ways."""
    from odradek.cli.output import count, echo_json, progress

    if overwrite and target == "both":
        raise click.UsageError("--overwrite needs one direction: --to log or --to tree")
    group_ids = _chosen(cluster, group_ids, all_groups)
    left = 1 if every is None else rounds
    copied = 0
    with noting(lambda: f"{count(copied, 'offset')} had been copied"):
        while True:
            rows: list[dict[str, Any]] = []
            with progress("migrating", len(group_ids), "groups", hidden=as_json or len(group_ids) < 2) as advance:
                for group_id in dict.fromkeys(group_ids):
                    theirs = _migrate(cluster, group_id, target, overwrite, dry_run)
                    copied += sum(row["outcome"] == "copied" for row in theirs)
                    rows += theirs
                    advance()
            refused = [row for row in rows if row["outcome"] not in ("copied", "would copy", "equal", "newer there")]
            if as_json:
                echo_json(rows)
            elif every is None or any(row["outcome"] == "copied" for row in rows) or refused:
                _print(rows)
            if left is not None:
                left -= 1
            if left == 0:
                if refused:
                    fail(f"{count(len(refused), 'offset')} could not be copied: {refused[0]['outcome']}")
                return
            time.sleep(every or 0)


def _print(rows: list[dict[str, Any]]) -> None:
    from odradek.cli.output import print_table

    titles = ["group", "topic", "partition", "tree", "log", "to", "outcome"]
    print_table(titles, [[row[title] for title in titles] for row in rows], "no committed offsets on that side")


def _chosen(cluster: "Cluster", group_ids: tuple[str, ...], all_groups: bool) -> tuple[str, ...]:
    from odradek.cli.output import count
    from odradek.clients import tree_offsets

    if bool(group_ids) == all_groups:
        present = tree_offsets.groups(cluster)
        named = f": {', '.join(present[:10])}{', ...' if len(present) > 10 else ''}" if present else ""
        raise click.UsageError(
            f"name groups, or give --all for all in the metadata tree (there {'is' if len(present) == 1 else 'are'}"
            f" {count(len(present), 'group')}{named})"
        )
    return tuple(tree_offsets.groups(cluster)) if all_groups else group_ids


def _migrate(cluster: "Cluster", group_id: str, target: str, overwrite: bool, dry_run: bool) -> list[dict[str, Any]]:
    """A row for each partition that the group committed on the side, or sides, to copy from. Raises ClientError."""
    from odradek.clients import groups, tree_offsets

    places = [
        (one.name, part.number)
        for one in cluster.metadata().topics.values()
        if not one.internal
        for part in one.partitions
    ]
    tree = tree_offsets.fetch(cluster, group_id, places)
    log = {place: one.offset for place, one in groups.fetch_offsets(cluster, group_id).items()}
    to_log: dict[Place, int] = {}
    to_tree: dict[Place, int] = {}
    rows: list[dict[str, Any]] = []
    for place in sorted({*tree, *log}):
        ours, theirs = tree.get(place), log.get(place)
        source, other = (theirs, ours) if target == "tree" else (ours, theirs)
        if target == "both":
            to = "log" if (ours if ours is not None else -1) >= (theirs if theirs is not None else -1) else "tree"
            source, other = (ours, theirs) if to == "log" else (theirs, ours)
        else:
            to = target
        if source is None:
            continue
        outcome = (
            "equal"
            if source == other
            else "newer there"
            if other is not None and other > source and not overwrite
            else "copied"
        )
        if outcome == "copied":
            (to_log if to == "log" else to_tree)[place] = source
            outcome = "would copy" if dry_run else "copied"
        row: dict[str, Any] = {"group": group_id, "topic": place[0], "partition": place[1], "tree": ours, "log": theirs}
        rows.append(row | {"to": to, "outcome": outcome})
    if dry_run:
        return rows
    refused: dict[tuple[str, Place], ErrorCode] = {}
    if to_log:
        told = groups.commit_offsets(cluster, group_id, {place: groups.Committed(at) for place, at in to_log.items()})
        refused |= {("log", place): code for place, code in told.items()}
    if to_tree:
        told = tree_offsets.commit(cluster, group_id, to_tree)
        refused |= {("tree", place): code for place, code in told.items()}
    for row in rows:
        code = refused.get((row["to"], (row["topic"], row["partition"])))
        if code is not None and row["outcome"] == "copied":
            row["outcome"] = _why(code)
    return rows


def _why(code: "ErrorCode") -> str:
    from odradek.protocol.errors import ErrorCode

    if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
        return "the group has members, who commit there themselves"
    return f"{code.message} ({code.name})"
