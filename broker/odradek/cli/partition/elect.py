"""The work of ``odradek partition elect``: elects leaders, and prints what changed. Runs in the process of the command."""

from collections.abc import Collection, Mapping

from odradek.backoff import Waits
from odradek.cli.framework.echo import echo
from odradek.cli.framework.options import confirm
from odradek.cli.framework.output import abbreviate, cell, count, echo_json, print_table
from odradek.clients import elections
from odradek.clients.cluster import Cluster, Partition
from odradek.clients.elections import PREFERRED, UNCLEAN
from odradek.clients.errors import no_topic
from odradek.topic_partition import TopicPartition

SETTLE_S = 10.0
"""The longest time until the metadata shows the elected leaders, in seconds."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 0.5


def run(cluster: Cluster, as_json: bool, topics: Collection[str], unclean: bool, yes: bool, dry_run: bool) -> None:
    """Elect leaders. Raises ClientError; ends the command with exit code 1 if a leader could not be elected."""
    view = cluster.metadata()
    unknown = sorted(set(topics) - view.topics.keys())
    if unknown:
        raise no_topic(unknown[0], view.topics)
    election_type = UNCLEAN if unclean else PREFERRED
    wanted = [
        partition for partition in elections.candidates(view, election_type) if not topics or partition.topic in topics
    ]
    results: dict[TopicPartition, str | None] = {}
    leaders: Mapping[TopicPartition, int] = {}
    if wanted and not dry_run:
        if unclean:
            confirm(_question(wanted), yes)
        results = elections.elect(cluster, wanted, election_type)
        elected = {place for place, problem in results.items() if problem is None}
        leaders = _settled(cluster, [each for each in wanted if _place(each) in elected], unclean)
    _print(wanted, results, leaders, as_json, unclean, dry_run)
    if any(problem is not None for problem in results.values()):
        raise SystemExit(1)


def _question(partitions: list[Partition]) -> str:
    names = abbreviate(
        f"{partition.topic}-{partition.number} (in sync: {cell(partition.in_sync)})" for partition in partitions
    )
    return (
        f"This elects a leader for {count(len(partitions), 'partition')} without a leader among the live replicas, whether "
        f"they are in sync or not: {names}. Records that only the in-sync replicas have are lost for ever, also acknowledged "
        "ones: these replicas delete them when they return. Transactions and committed offsets in these partitions can be "
        "lost with them. If one of the in-sync brokers can be started, start it instead."
    )


def _settled(cluster: Cluster, elected: list[Partition], unclean: bool) -> Mapping[TopicPartition, int]:
    """The leaders, as soon as the metadata shows those that were elected."""
    backoff = Waits(FIRST_PAUSE_S, LONGEST_PAUSE_S, SETTLE_S)
    while True:
        leaders = elections.leaders(cluster.metadata())
        late = [
            each
            for each in elected
            if (leaders.get(_place(each), -1) < 0 if unclean else leaders.get(_place(each)) != each.replicas[0])
        ]
        if not late or not backoff.wait():
            return leaders


def _print(
    wanted: list[Partition],
    results: Mapping[TopicPartition, str | None],
    leaders: Mapping[TopicPartition, int],
    as_json: bool,
    unclean: bool,
    dry_run: bool,
) -> None:
    rows = [
        {
            "topic": each.topic,
            "partition": each.number,
            "replicas": list(each.replicas),
            "before": None if each.leader < 0 else each.leader,
            "after": _after(each, leaders, dry_run, unclean),
            "problem": results.get(_place(each)),
        }
        for each in wanted
    ]
    if as_json:
        echo_json({"dry_run": dry_run, "unclean": unclean, "elections": rows})
        return
    if not rows:
        echo(
            "nothing to elect: every partition has a leader"
            if unclean
            else "nothing to elect: every partition is led by its preferred leader"
        )
        return
    titles = ["topic", "partition", "replicas", "leader before", "leader after", "problem"]
    print_table(titles, [list(row.values()) for row in rows], "")
    failed = sum(row["problem"] is not None for row in rows)
    if dry_run:
        echo(f"would elect the leaders of {count(len(rows), 'partition')}; nothing was changed")
    else:
        failures = f", {failed} not" if failed else ""
        echo(f"{count(len(rows) - failed, 'leader')} elected{failures}")


def _after(partition: Partition, leaders: Mapping[TopicPartition, int], dry_run: bool, unclean: bool) -> int | None:
    if dry_run:
        return None if unclean else partition.replicas[0]
    leader = leaders.get(_place(partition), -1)
    return None if leader < 0 else leader


def _place(partition: Partition) -> TopicPartition:
    return partition.topic, partition.number
