"""``odradek partition``: explain. Runs in the process of the command."""

import re
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.lazy import LazyGroup
from odradek.cli.options import on_cluster

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster, Partition
    from odradek.clients.partitions import Explained

NAME = re.compile(r"(?P<topic>.+)-(?P<number>[0-9]+)")


@click.group(cls=LazyGroup)
def partition() -> None:
    """Explain the state of single partitions."""


@partition.command("explain")
@on_cluster
@click.argument("name", metavar="TOPIC-PARTITION")
def explain(cluster: "Cluster", as_json: bool, name: str) -> None:
    """Show what each broker with a replica of a partition knows: roles, epochs, offsets, who is in sync, and what the high
    watermark waits for.

    TOPIC-PARTITION is the name of a topic, a dash and the number of the partition: orders-0.
    """
    from odradek.cli.output import echo_json
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


def _show(name: str, info: "Partition", answers: "list[Explained]") -> None:
    from odradek.cli.failure import warn
    from odradek.cli.output import print_table
    from odradek.clients import partitions

    leader = f"leader is broker {info.leader}" if info.leader >= 0 else "has no leader"
    click.echo(
        f"Partition {name}: {leader}, epoch {info.leader_epoch}, replicas {_ids(info.replicas)}, in sync {_ids(info.in_sync)}"
    )
    click.echo()
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
                click.echo(f"broker {answer.broker_id}: {sentence}")
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
