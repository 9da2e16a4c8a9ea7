"""``odradek partition``: explain, move, moves, elect. Runs in the process of the command."""

import re
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.echo import echo
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.framework.options import (
    BOOTSTRAP_OPTION,
    DRY_RUN_OPTION,
    JSON_OPTION,
    YES_OPTION,
    Span,
    complete_topics,
    on_cluster,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.clients.cluster import Cluster, Partition
    from odradek.clients.partitions import Explained

RESPONSE_S = 30.0
"""How long `move` and `moves` wait for a response of a broker, in seconds."""
NAME = re.compile(r"(?P<topic>.+)-(?P<number>[0-9]+)")


def _broker_ids(context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Parse the value of --to (a callback for click). Raises BadParameter."""
    words = [] if text is None else [word.strip() for word in text.split(",")]
    if not all(word.isdigit() for word in words):
        raise click.BadParameter(f"'{text}' is not a list of broker ids, such as 4,5,6", context, parameter)
    return tuple(dict.fromkeys(map(int, words)))


def _rate(context: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Parse the value of --throttle (a callback for click). Raises BadParameter."""
    from odradek.cli.framework.values import size_bytes

    if text is None:
        return None
    try:
        rate = size_bytes(text.removesuffix("/s"))
    except ValueError:
        rate = 0
    if rate < 1:
        raise click.BadParameter(f"'{text}' is not a rate: write e.g. 50MB or 50MB/s", context, parameter)
    return rate


TOPICS_OPTION = click.option(
    "-t",
    "--topic",
    "topics",
    metavar="TOPIC",
    multiple=True,
    shell_complete=complete_topics,
    help="Only partitions of this topic. Repeatable. Default: all topics, also internal ones.",
)
LIMIT_OPTION = click.option(
    "--timeout",
    "timeout_s",
    metavar="SPAN",
    type=Span(),
    help="With --wait, the longest time to wait: 2h, 30m, or a number of seconds. Default: without a limit.",
)


@click.group(cls=LazyGroup)
def partition() -> None:
    """Explain the state of partitions, move them to other brokers, and elect their leaders."""


@partition.command("explain")
@on_cluster
@click.argument("name", metavar="TOPIC-PARTITION")
def explain(cluster: "Cluster", as_json: bool, name: str) -> None:
    """Show what each broker with a replica of a partition knows: roles, epochs, offsets, who is in sync, and what the high
    watermark waits for.

    TOPIC-PARTITION is the name of a topic, a dash and the number of the partition: orders-0.
    """
    from odradek.cli.framework.output import echo_json
    from odradek.clients import partitions

    match = NAME.fullmatch(name)
    if match is None:
        raise click.UsageError(f"'{name}' is not the name of a partition: give TOPIC-NUMBER, such as orders-0")
    info, answers = partitions.explain(cluster, match["topic"], int(match["number"]))
    if as_json:
        echo_json(
            {"topic": info.topic, "partition": info.number} | {"brokers": [_as_dict(answer) for answer in answers]}
        )
        return
    _show(name, info, answers)


@partition.command("move")
@BOOTSTRAP_OPTION
@click.option(
    "--off",
    metavar="ID",
    type=click.IntRange(0),
    multiple=True,
    help="Move all replicas off this broker, which may be down. Repeatable.",
)
@click.option(
    "--balance",
    is_flag=True,
    help="Give all brokers the same number of replicas and of preferred leaders, with as few copies as possible.",
)
@click.option(
    "--to",
    metavar="ID,...",
    callback=_broker_ids,
    help="Only these brokers receive replicas; with --balance, only these are balanced. Default: all registered brokers.",
)
@TOPICS_OPTION
@click.option(
    "--throttle",
    metavar="SIZE",
    callback=_rate,
    help="Limit the copying to this rate per second at each broker, e.g. 50MB. Replaces rates that were set before.",
)
@DRY_RUN_OPTION
@YES_OPTION
@click.option("--wait", is_flag=True, help="Wait until all replicas have moved, then remove the throttle.")
@LIMIT_OPTION
@JSON_OPTION
def move(servers: str, off: tuple[int, ...], balance: bool, **options: Any) -> None:
    """Move replicas of partitions to other brokers: off a broker that will be removed, or evenly to all brokers.

    A new replica takes the place of the one that it replaces, on a broker in another rack than the other replicas if there is
    one, and there on the broker with the fewest replicas. Other replicas stay where they are. Records stay available: the
    former replica is deleted when the new one is in sync. The controller moves the replicas, also if this command ends before.
    """
    from odradek.cli.partition.move import Options, run

    if bool(off) == balance:
        raise click.UsageError("use either --off ID, to empty a broker, or --balance")
    to: tuple[int, ...] = options["to"]
    if both := sorted(set(off) & set(to)):
        raise click.UsageError(f"broker {both[0]} is in --off and in --to")
    _check_limit(options["wait"], options["timeout_s"])
    options["topics"] = frozenset(options["topics"])
    _connected(
        servers,
        lambda cluster: run(cluster, Options(off=frozenset(off), balance=balance, **options)),
    )


@partition.command("moves")
@BOOTSTRAP_OPTION
@TOPICS_OPTION
@click.option("--cancel", is_flag=True, help="Cancel the reassignments and remove their throttles.")
@click.option("--finish", is_flag=True, help="Remove the throttles of reassignments that have ended.")
@click.option("--wait", is_flag=True, help="Wait until the reassignments have ended, then remove their throttles.")
@LIMIT_OPTION
@DRY_RUN_OPTION
@YES_OPTION
@JSON_OPTION
def moves(
    servers: str,
    topics: tuple[str, ...],
    cancel: bool,
    finish: bool,
    wait: bool,
    timeout_s: float | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """List the reassignments in progress: the new replicas, how many bytes they have, and how far they are behind.

    With --cancel, --finish or --wait, the command also removes the throttled rates of the brokers, unless --topic is given or
    topics still have throttled replicas.
    """
    from odradek.cli.partition import reassignments

    if cancel and (finish or wait):
        raise click.UsageError("--cancel removes the throttles too, and waits: leave out --finish and --wait")
    if dry_run and not cancel:
        raise click.UsageError("--dry-run is for --cancel only")
    _check_limit(wait, timeout_s)

    def work(cluster: "Cluster") -> None:
        reassignments.check(cluster, topics)
        if cancel:
            reassignments.cancel(cluster, as_json, topics, yes, dry_run)
        elif finish or wait:
            reassignments.finish(cluster, as_json, topics, wait, timeout_s)
        else:
            reassignments.show(cluster, as_json, topics)

    _connected(servers, work)


@partition.command("elect")
@on_cluster
@TOPICS_OPTION
@click.option(
    "--unclean",
    is_flag=True,
    help="Elect a live replica that is not in sync, for partitions without a leader. Acknowledged records may be lost.",
)
@DRY_RUN_OPTION
@YES_OPTION
def elect(cluster: "Cluster", as_json: bool, topics: tuple[str, ...], unclean: bool, dry_run: bool, yes: bool) -> None:
    """Elect the preferred leader, the first of its replicas, of each partition that another broker leads.

    Exit code 1 if a leader could not be elected, because its broker is down or its replica is not in sync.
    """
    from odradek.cli.partition.elect import run

    run(cluster, as_json, topics, unclean, yes, dry_run)


def _check_limit(wait: bool, timeout_s: float | None) -> None:
    if timeout_s is not None and not wait:
        raise click.UsageError("--timeout limits the wait: add --wait")


def _connected(servers: str, work: "Callable[[Cluster], None]") -> None:
    """Call `work` with a cluster; a ClientError ends the command."""
    from odradek.cli.framework.options import connection_to, fail_on_cluster, unanswered_changes_note
    from odradek.clients.errors import ClientError

    try:
        with connection_to(servers, RESPONSE_S) as cluster, unanswered_changes_note(cluster):
            work(cluster)
    except ClientError as error:
        fail_on_cluster(error, servers)


def _show(name: str, info: "Partition", answers: "list[Explained]") -> None:
    from odradek.cli.framework.failure import warn
    from odradek.cli.framework.output import print_table
    from odradek.clients import partitions

    leader = f"leader is broker {info.leader}" if info.leader >= 0 else "has no leader"
    echo(
        f"Partition {name}: {leader}, epoch {info.leader_epoch}, replicas {_ids(info.replicas)}, in sync {_ids(info.in_sync)}"
    )
    echo()
    titles = [
        "broker",
        "role",
        "log",
        "epoch",
        "start",
        "high watermark",
        "end",
        "fetched ms ago",
        "caught up ms ago",
        "in sync",
    ]
    rows = []
    leading = next(
        (answer.facts for answer in answers if answer.facts is not None and answer.facts.role == "leader"), None
    )
    followers = {} if leading is None else {follower.broker_id: follower for follower in leading.followers}
    for answer in answers:
        facts, follower = answer.facts, followers.get(answer.broker_id)
        if facts is None:
            if follower is not None:
                rows.append(
                    [answer.broker_id, None, None, None, follower.log_start_offset, None, follower.log_end_offset]
                )
            continue
        rows.append(
            [
                answer.broker_id,
                facts.role,
                facts.state,
                facts.leader_epoch,
                facts.log_start_offset,
                facts.high_watermark,
                facts.log_end_offset,
            ]
        )
    for row in rows:
        follower = followers.get(row[0])
        row += [None, None] if follower is None else [_time(follower.fetched_ms_ago), _time(follower.caught_up_ms_ago)]
        row.append(row[0] in (info.in_sync if leading is None else leading.in_sync_replicas))
    print_table(titles, rows, "no broker with a replica answered")
    for answer in answers:
        if answer.facts is not None:
            for sentence in partitions.findings(answer.facts):
                echo(f"broker {answer.broker_id}: {sentence}")
        elif answer.problem is not None:
            warn(f"broker {answer.broker_id}: {answer.problem}")


def _time(milliseconds: int) -> int | None:
    return None if milliseconds < 0 else milliseconds


def _ids(broker_ids: Any) -> str:
    return ",".join(map(str, broker_ids)) or "none"


def _as_dict(answer: "Explained") -> dict[str, Any]:
    from odradek.clients import partitions

    facts = answer.facts
    document: dict[str, Any] = {"broker": answer.broker_id, "problem": answer.problem}
    if facts is None:
        return document
    fields = (
        "state role leader_id leader_epoch partition_epoch controller_epoch leader_epoch_start recovering log_start_offset "
        "log_end_offset high_watermark min_in_sync_replicas replicas adding_replicas removing_replicas in_sync_replicas "
        "maximal_in_sync in_sync_state in_sync_ms fetch_error lost_tail "
        "lost_tail_bytes lost_tail_end published_leader published_epoch published_in_sync"
    )
    document |= {field: getattr(facts, field) for field in fields.split()}
    document["failing_tasks"] = [
        {"task": failing.task, "reason": failing.reason, "since_ms": failing.since_ms}
        for failing in facts.failing_tasks
    ]
    document["followers"] = [
        {
            "broker": follower.broker_id,
            "alive": follower.alive,
            "broker_epoch": follower.broker_epoch,
            "log_end_offset": follower.log_end_offset,
            "log_start_offset": follower.log_start_offset,
            "fetched_ms_ago": _time(follower.fetched_ms_ago),
            "caught_up_ms_ago": _time(follower.caught_up_ms_ago),
        }
        for follower in facts.followers
    ]
    return document | {"findings": list(partitions.findings(facts))}
