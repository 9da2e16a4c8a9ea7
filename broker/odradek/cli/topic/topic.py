"""``odradek topic``: create, list, describe, alter, delete, truncate. Runs in the process of the command."""

from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from odradek import clock
from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.framework.options import (
    DRY_RUN_OPTION,
    TOPIC_ARGUMENT,
    TOPICS_ARGUMENT,
    YES_OPTION,
    complete_topic_settings,
    confirm,
    key_values,
    on_cluster,
)

if TYPE_CHECKING:
    from odradek.clients import freed_space
    from odradek.clients.cluster import Cluster, TopicInfo

CONFIG_OPTION = click.option(
    "-c",
    "--config",
    "configs",
    metavar="KEY=VALUE",
    multiple=True,
    callback=key_values,
    shell_complete=complete_topic_settings,
    help="Set a configuration key of the topic; durations and sizes may be written as 7d or 512MiB. Repeatable.",
)


@click.group(cls=LazyGroup)
def topic() -> None:
    """Create, list, describe, alter, truncate and delete topics."""


@topic.command("create")
@on_cluster
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "-p", "--partitions", type=click.IntRange(1), help="Number of partitions (default: the broker's num.partitions)."
)
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(1, 32767),
    help="Number of replicas of each partition (default: the broker's default.replication.factor).",
)
@click.option(
    "--assignment",
    metavar="1:2,2:3",
    help="Broker ids of the replicas of each partition: colons between replicas, commas between partitions.",
)
@CONFIG_OPTION
@click.option("--if-not-exists", is_flag=True, help="Do not fail if the topic already exists.")
@DRY_RUN_OPTION
def create(
    cluster: "Cluster",
    as_json: bool,
    topics: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    assignment: str | None,
    configs: dict[str, str],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create topics."""
    from odradek.cli.framework.config_change import similar_keys
    from odradek.cli.framework.output import count, echo_json
    from odradek.cli.framework.values import config_value
    from odradek.clients import topics as topic_requests
    from odradek.clients.errors import RefusedError
    from odradek.protocol.errors import ErrorCode

    replicas = _assignment(assignment, partitions, replication_factor)
    settings = {key: config_value(key, value) for key, value in configs.items()}
    for name in topics:
        try:
            created = topic_requests.create(
                cluster, name, partitions or -1, replication_factor or -1, settings, replicas, dry_run
            )
        except RefusedError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                hint = similar_keys(settings) if error.code == ErrorCode.INVALID_CONFIG else ""
                raise RefusedError(error.code, f"topic '{name}' was not created: {error.reason}{hint}") from None
            if not if_not_exists:
                fail(
                    f"topic '{name}' already exists; `odradek topic describe {name}` shows it, "
                    "and --if-not-exists ignores this error"
                )
            result: dict[str, Any] = {"topic": name, "created": False}
        else:
            result = {"topic": name, "created": not dry_run, "dry_run": dry_run}
            result |= {"partitions": created.num_partitions, "replication_factor": created.replication_factor}
        if as_json:
            echo_json(result)
        elif "partitions" not in result:
            echo(f"topic {name} already exists")
        else:
            numbers = ""
            if result["partitions"] > 0:
                replicas_each = count(result["replication_factor"], "replica")
                numbers = f" with {count(result['partitions'], 'partition')}, {replicas_each} each"
            echo(f"{'would create' if dry_run else 'created'} topic {name}{numbers}")


def _assignment(text: str | None, partitions: int | None, replicas: int | None) -> list[list[int]]:
    if text is None:
        return []
    if partitions is not None or replicas is not None:
        raise click.UsageError(
            "--assignment sets the partitions and replicas; leave out --partitions and --replication-factor"
        )
    try:
        return [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise click.UsageError(
            f"--assignment '{text}' is not of the form 1:2,2:3 (broker ids; colons between replicas, commas between partitions)"
        ) from None


@topic.command("list")
@on_cluster
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
@click.option("--internal", is_flag=True, help="Also list internal topics, such as __consumer_offsets.")
@click.option("--sizes", is_flag=True, help="Also show the size of each topic's log, if the brokers report it.")
def list_(cluster: "Cluster", as_json: bool, patterns: tuple[str, ...], internal: bool, sizes: bool) -> None:
    """List topics, all or those that match a pattern such as 'orders-*'."""
    from odradek.cli.framework.output import echo_json, print_table, size
    from odradek.clients import topics as topic_requests

    infos = [
        info
        for info in sorted(cluster.metadata().topics.values())
        if (internal or not info.internal or info.name in patterns) and _matches(info.name, patterns)
    ]
    log_sizes = topic_requests.sizes(cluster, infos) if sizes else None
    rows: list[dict[str, Any]] = []
    for info in infos:
        rows.append(
            {
                "topic": info.name,
                "partitions": len(info.partitions),
                "replicas": max((len(part.replicas) for part in info.partitions), default=0),
                "health": _health(info),
                "internal": info.internal,
            }
        )
        if sizes:
            rows[-1]["bytes"] = (
                None if log_sizes is None else sum(log_sizes.get((info.name, p.number), 0) for p in info.partitions)
            )
    if as_json:
        echo_json(rows)
        return
    titles = ["topic", "partitions", "replicas", "health"]
    cells = [[row[title] for title in titles] + ([size(row["bytes"])] if sizes else []) for row in rows]
    print_table(titles + (["size"] if sizes else []), cells, "no topics" + (" match" if patterns else ""))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _health(info: "TopicInfo") -> str:
    leaderless = sum(part.leader < 0 for part in info.partitions)
    under_replicated = sum(len(part.in_sync) < len(part.replicas) for part in info.partitions)
    if leaderless:
        return f"{leaderless} without leader"
    return f"{under_replicated} under-replicated" if under_replicated else "ok"


@topic.command("describe")
@on_cluster
@TOPICS_ARGUMENT
def describe(cluster: "Cluster", as_json: bool, topics: tuple[str, ...]) -> None:
    """Show the configuration of topics, and the leader, replicas, offsets and size of each partition."""
    from odradek.cli.framework.output import echo_json, print_table, size
    from odradek.clients import configs
    from odradek.clients import topics as topic_requests
    from odradek.config.readable import with_reading

    infos = cluster.topics(topics)
    partitions = [part for info in infos for part in info.partitions]
    starts = topic_requests.list_offsets(cluster, partitions, topic_requests.EARLIEST)
    ends = topic_requests.list_offsets(cluster, partitions, topic_requests.LATEST)
    log_sizes = topic_requests.sizes(cluster, infos)
    descriptions: list[dict[str, Any]] = []
    for info in infos:
        entries = configs.describe(cluster, configs.Resource("topic", info.name))
        own = {key: entry.value for key, entry in entries.items() if entry.source == configs.TOPIC_SOURCE}
        rows = []
        for part in info.partitions:
            place = info.name, part.number
            start = starts[place].offset if place in starts and not starts[place].error else None
            end = ends[place].offset if place in ends and not ends[place].error else None
            rows.append(
                {
                    "partition": part.number,
                    "leader": part.leader if part.leader >= 0 else None,
                    "replicas": list(part.replicas),
                    "in_sync": list(part.in_sync),
                    "start": start,
                    "end": end,
                    "records": None if start is None or end is None else end - start,
                    "bytes": None if log_sizes is None else log_sizes.get(place),
                }
            )
        descriptions.append({"topic": info.name, "id": _uuid(info.topic_id), "configs": own, "partitions": rows})
    if as_json:
        echo_json(descriptions if len(descriptions) > 1 else descriptions[0])
        return
    for number, description in enumerate(descriptions):
        if number:
            echo()
        echo(f"Topic {description['topic']}, id {description['id'] or '-'}")
        for key, value in sorted(description["configs"].items()):
            echo(f"  {key}={with_reading(key, value)}")
        titles = ["partition", "leader", "replicas", "in_sync", "start", "end", "records"]
        cells = [[row[title] for title in titles] + [size(row["bytes"])] for row in description["partitions"]]
        print_table([title.replace("_", " ") for title in titles] + ["size"], cells, "no partitions")


def _uuid(topic_id: bytes) -> str | None:
    """A topic id in Kafka's text form, URL-safe base64 without padding; None for the zero id."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(topic_id).decode().rstrip("=") if any(topic_id) else None


@topic.command("alter")
@on_cluster
@TOPIC_ARGUMENT
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    help="New total number of partitions, greater than the present number.",
)
@CONFIG_OPTION
@click.option(
    "--unset",
    metavar="KEY",
    multiple=True,
    help="Remove the topic's value of this key, so that the broker's default applies. Repeatable.",
)
@YES_OPTION
@DRY_RUN_OPTION
def alter(
    cluster: "Cluster",
    as_json: bool,
    topic: str,
    partitions: int | None,
    configs: dict[str, str],
    unset: tuple[str, ...],
    yes: bool,
    dry_run: bool,
) -> None:
    """Add partitions to a topic, or change its configuration.

    If a change of retention deletes records, the command shows how many and asks for confirmation.
    """
    from odradek.cli.framework.config_change import change
    from odradek.cli.framework.output import count, echo_json
    from odradek.clients import topics as topic_requests
    from odradek.clients.configs import Resource

    if partitions is None and not configs and not unset:
        raise click.UsageError("nothing to change: add --partitions, --config KEY=VALUE or --unset KEY")
    (now,) = cluster.topics([topic])
    result: dict[str, Any] = {"topic": topic, "dry_run": dry_run}
    if partitions is not None and partitions <= len(now.partitions):
        fail(
            f"topic '{topic}' has {count(len(now.partitions), 'partition')}; --partitions {partitions} is not greater, "
            "and partitions cannot be removed"
        )
    if configs or unset:
        result |= change(cluster, Resource("topic", topic), configs, unset, yes=yes, dry_run=dry_run, quiet=as_json)
    if partitions is not None:
        topic_requests.grow(cluster, topic, partitions, dry_run)
        result["partitions"] = partitions
        if not as_json:
            verb = "would have" if dry_run else "now has"
            echo(
                f"topic {topic} {verb} {count(partitions, 'partition')}; a key may map to another partition than before"
            )
    if as_json:
        echo_json(result)


def _loss_with(cluster: "Cluster", name: str) -> str | None:
    """What is lost with an internal topic, in addition to its records; None for other topics."""
    from odradek.cli.framework.output import count
    from odradek.clients import groups, transactions
    from odradek.clients.errors import ClientError

    if name == "__transaction_state":
        ids, unfinished = "all transactional ids", "unfinished transactions"
        with suppress(ClientError):  # the question names no numbers if the coordinators do not answer
            listings = transactions.list_transactions(cluster)
            ids = count(len(listings), "transactional id")
            unfinished = count(sum(row.state in transactions.OPEN for row in listings), "unfinished transaction")
        return (
            f"With {name}, the cluster forgets {ids}, and former producers with these ids are no longer fenced; {unfinished}"
            " will hang, and consumers with isolation level read_committed stop there (`odradek transaction hanging`)."
        )
    if name == "__consumer_offsets":
        number = "all groups"
        with suppress(ClientError):
            number = count(len(groups.list_groups(cluster)), "group")
        return (
            f"With {name}, {number} will lose their members and committed offsets: consumers then begin at the position of"
            " their auto.offset.reset, and read records again or skip them."
        )
    return None


@topic.command("delete")
@on_cluster
@TOPICS_ARGUMENT
@click.option("--if-exists", is_flag=True, help="Do not fail if the topic does not exist.")
@YES_OPTION
@DRY_RUN_OPTION
def delete(
    cluster: "Cluster", as_json: bool, topics: tuple[str, ...], if_exists: bool, yes: bool, dry_run: bool
) -> None:
    """Delete topics with all their records. A TOPIC may be a pattern such as 'test-*'."""
    from odradek.cli.framework.output import count, echo_json
    from odradek.clients import topics as topic_requests
    from odradek.clients.errors import no_topic

    existing = cluster.metadata().topics
    names: list[str] = []
    for word in topics:
        matching = (
            [word]
            if word in existing
            else [name for name in sorted(existing) if fnmatchcase(name, word) and not existing[name].internal]
        )
        if not matching and not if_exists:
            raise no_topic(word, existing)
        names += [name for name in matching if name not in names]
    records = _records(cluster, [existing[name] for name in names])
    if dry_run or not names:
        if as_json:
            echo_json([{"topic": name, "deleted": False, "records": records[name]} for name in names])
        else:
            for name in names:
                echo(f"would delete topic {name} ({count(records[name], 'record')})")
        return
    listed = ", ".join(f"{name} ({count(records[name], 'record')})" for name in names[:5])
    if len(names) > 5:
        listed += f" and {len(names) - 5} more"
    losses = [] if yes else [loss for name in names if (loss := _loss_with(cluster, name)) is not None]
    confirm(" ".join([f"This permanently deletes {listed}.", *losses]), yes)
    outcome = topic_requests.delete(cluster, names)
    refused = [(name, reason) for name, reason in outcome.items() if reason is not None]
    if as_json:
        echo_json(
            [
                {"topic": name, "deleted": reason is None, "records": records[name], "error": reason}
                for name, reason in outcome.items()
            ]
        )
    else:
        for name, reason in outcome.items():
            if reason is None:
                echo(f"deleted topic {name}")
    if refused:
        fail("; ".join(f"topic '{name}' was not deleted: {reason}" for name, reason in refused))


def _records(cluster: "Cluster", topics: "list[TopicInfo]") -> dict[str, int]:
    """The number of offsets between the log start offset and the log end offset of each topic."""
    from odradek.clients import topics as topic_requests

    partitions = [part for info in topics for part in info.partitions]
    starts = topic_requests.list_offsets(cluster, partitions, topic_requests.EARLIEST)
    ends = topic_requests.list_offsets(cluster, partitions, topic_requests.LATEST)
    return {
        info.name: sum(
            max(0, ends[place].offset - starts[place].offset)
            for place in ((info.name, part.number) for part in info.partitions)
            if place in starts and place in ends
        )
        for info in topics
    }


@topic.command("truncate")
@on_cluster
@TOPIC_ARGUMENT
@click.option(
    "-p",
    "--partition",
    "chosen",
    type=click.IntRange(0),
    multiple=True,
    help="Delete records of this partition only; repeatable.",
)
@click.option("--before-offset", type=click.IntRange(0), help="Delete only records below this offset.")
@click.option(
    "--before-time",
    metavar="TIME",
    help="Delete only records before this time: 2026-01-31T12:00, -7d, or ms since 1970.",
)
@YES_OPTION
@DRY_RUN_OPTION
def truncate(
    cluster: "Cluster",
    as_json: bool,
    topic: str,
    chosen: tuple[int, ...],
    before_offset: int | None,
    before_time: str | None,
    yes: bool,
    dry_run: bool,
) -> None:
    """Delete the records of a topic, all of them or only the oldest. The topic and its configuration are kept.

    Offsets are not reused: new records follow the deleted ones. Brokers delete whole segment files, some minutes later; the
    command prints how much disk space becomes free.
    """
    from odradek.cli.framework.config_change import print_freed
    from odradek.cli.framework.output import count, echo_json, print_table
    from odradek.clients import topics as topic_requests

    plan = _truncation(cluster, topic, chosen, before_offset, before_time)
    total = sum(row["records"] for row in plan)
    changes = {(topic, row["partition"]): row["new_start"] for row in plan if row["records"]}
    space = _space_of(cluster, topic, plan) if changes else None
    if not dry_run and changes:
        confirm(f"This permanently deletes {count(total, 'record')} of topic {topic}.", yes)
        topic_requests.delete_records(cluster, changes)
    if as_json:
        result = {"topic": topic, "records": total, "dry_run": dry_run, "partitions": plan}
        if space is not None:
            freed, rules = space
            result["space"] = rules._asdict() | {"bytes_at_least": freed.at_least, "bytes_at_most": freed.at_most}
        echo_json(result)
        return
    titles = ["partition", "start", "new_start", "end", "records"]
    print_table([title.replace("_", " ") for title in titles], [[row[title] for title in titles] for row in plan], "")
    echo(f"{'would delete' if dry_run else 'deleted'} {count(total, 'record')} of topic {topic}")
    if space is not None:
        print_freed(*space)


def _truncation(
    cluster: "Cluster", topic: str, chosen: tuple[int, ...], before_offset: int | None, before_time: str | None
) -> list[dict[str, int]]:
    """A row for each partition with the new log start offset. Ends the command on wrong options. Raises ClientError."""
    from odradek.clients import topics as topic_requests

    if before_offset is not None and before_time is not None:
        raise click.UsageError("give only one of --before-offset and --before-time")
    (info,) = cluster.topics([topic])
    unknown = sorted(set(chosen) - {part.number for part in info.partitions})
    if unknown:
        fail(f"topic '{topic}' has no partition {unknown[0]}; it has 0 to {len(info.partitions) - 1}")
    partitions = [part for part in info.partitions if not chosen or part.number in chosen]
    starts = topic_requests.list_offsets(cluster, partitions, topic_requests.EARLIEST)
    ends = topic_requests.list_offsets(cluster, partitions, topic_requests.LATEST)
    new_starts = {place: end.offset for place, end in ends.items()}
    if before_time is not None:
        at_times = topic_requests.list_offsets(cluster, partitions, parsed_time(before_time))
        new_starts = {place: at.offset if at.offset >= 0 else new_starts[place] for place, at in at_times.items()}
    elif before_offset is not None:
        new_starts = {place: min(before_offset, end) for place, end in new_starts.items()}
    return [
        {
            "partition": index,
            "start": starts[name, index].offset,
            "new_start": max(offset, starts[name, index].offset),
            "end": ends[name, index].offset,
            "records": max(0, offset - starts[name, index].offset),
        }
        for (name, index), offset in sorted(new_starts.items())
    ]


def _space_of(
    cluster: "Cluster", topic: str, plan: list[dict[str, int]]
) -> "tuple[freed_space.FreedSpace, freed_space.SpaceRules] | None":
    """The disk space that the truncation frees; None if the brokers do not report log sizes. Raises ClientError."""
    from odradek.clients import freed_space
    from odradek.clients import topics as topic_requests

    sizes = topic_requests.sizes(cluster, cluster.topics([topic]))
    if sizes is None:
        return None
    rules = freed_space.space_rules(cluster, topic)
    return freed_space.total(
        [
            freed_space.freed_by_deletion(
                rules, sizes.get((topic, row["partition"]), 0), row["start"], row["new_start"], row["end"]
            )
            for row in plan
        ]
    ), rules


def parsed_time(text: str) -> int:
    """The time of an option, in ms since 1970. Raises UsageError."""
    from odradek.cli.framework.values import time_ms

    try:
        return time_ms(text, clock.now_ms())
    except ValueError as error:
        raise click.UsageError(str(error)) from None
