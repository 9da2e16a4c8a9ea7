"""``odradek topic``: create, list, describe, alter, delete, truncate. In the process of the command."""

import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.failure import fail
from odradek.cli.lazy import LazyGroup
from odradek.cli.options import (
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
    help="A setting of the topic; 7d or 512MiB will do for times and sizes.",
)


@click.group(cls=LazyGroup)
def topic() -> None:
    """Create, list, describe, alter, delete and empty topics."""


@topic.command("create")
@on_cluster
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option("-p", "--partitions", type=click.IntRange(1), help="How many; the broker's num.partitions if not given.")
@click.option(
    "-r", "--replication-factor", type=click.IntRange(1, 32767), help="Replicas; the broker's default if not given."
)
@click.option(
    "--assignment", metavar="1:2,2:3", help="Broker ids of each partition's replicas, partitions divided by commas."
)
@CONFIG_OPTION
@click.option("--if-not-exists", is_flag=True, help="Be content with a topic that is there.")
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
    from odradek.cli.config_change import similar_keys
    from odradek.cli.output import count, echo_json
    from odradek.cli.values import config_value
    from odradek.clients import topics as verbs
    from odradek.clients.errors import RefusedError
    from odradek.protocol.errors import ErrorCode

    placed = _assignment(assignment, partitions, replication_factor)
    settings = {key: config_value(key, value) for key, value in configs.items()}
    for name in topics:
        try:
            made = verbs.create(cluster, name, partitions or -1, replication_factor or -1, settings, placed, dry_run)
        except RefusedError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                hint = similar_keys(settings) if error.code == ErrorCode.INVALID_CONFIG else ""
                raise RefusedError(error.code, f"topic '{name}' was not created: {error.reason}{hint}") from None
            if not if_not_exists:
                fail(
                    f"there is a topic '{name}' already; `odradek topic describe {name}` shows it, --if-not-exists takes it"
                )
            told: dict[str, Any] = {"topic": name, "created": False}
        else:
            told = {"topic": name, "created": not dry_run, "dry_run": dry_run}
            told |= {"partitions": made.num_partitions, "replication_factor": made.replication_factor}
        if as_json:
            echo_json(told)
        elif "partitions" not in told:
            click.echo(f"topic {name} is there already")
        else:
            numbers = ""
            if told["partitions"] > 0:
                numbers = f" with {count(told['partitions'], 'partition')}, {count(told['replication_factor'], 'replica')} each"
            click.echo(f"{'would create' if dry_run else 'created'} topic {name}{numbers}")


def _assignment(text: str | None, partitions: int | None, replicas: int | None) -> list[list[int]]:
    if text is None:
        return []
    if partitions is not None or replicas is not None:
        raise click.UsageError("--assignment says how many partitions and replicas there are; leave out the numbers")
    try:
        return [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise click.UsageError(
            f"--assignment '{text}' is not like 1:2,2:3 (broker ids, a comma between partitions)"
        ) from None


@topic.command("list")
@on_cluster
@click.argument("patterns", metavar="[PATTERN]...", nargs=-1)
@click.option("--internal", is_flag=True, help="Also Kafka's own, such as __consumer_offsets.")
@click.option("--sizes", is_flag=True, help="With the bytes of their logs, if the brokers tell.")
def list_(cluster: "Cluster", as_json: bool, patterns: tuple[str, ...], internal: bool, sizes: bool) -> None:
    """List topics, all or those that match a pattern such as 'orders-*'."""
    from odradek.cli.output import echo_json, print_table, size
    from odradek.clients import topics as verbs

    found = [
        one
        for one in sorted(cluster.metadata().topics.values())
        if (internal or not one.internal or one.name in patterns) and _matches(one.name, patterns)
    ]
    sized = verbs.sizes(cluster, found) if sizes else None
    rows: list[dict[str, Any]] = []
    for one in found:
        rows.append(
            {
                "topic": one.name,
                "partitions": len(one.partitions),
                "replicas": max((len(part.replicas) for part in one.partitions), default=0),
                "health": _health(one),
                "internal": one.internal,
            }
        )
        if sizes:
            rows[-1]["bytes"] = (
                None if sized is None else sum(sized.get((one.name, p.number), 0) for p in one.partitions)
            )
    if as_json:
        echo_json(rows)
        return
    titles = ["topic", "partitions", "replicas", "health"]
    cells = [[row[title] for title in titles] + ([size(row["bytes"])] if sizes else []) for row in rows]
    print_table(titles + (["size"] if sizes else []), cells, "no topics" + (" match" if patterns else ""))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _health(one: "TopicInfo") -> str:
    lost = sum(part.leader < 0 for part in one.partitions)
    behind = sum(len(part.in_sync) < len(part.replicas) for part in one.partitions)
    if lost:
        return f"{lost} without leader"
    return f"{behind} under-replicated" if behind else "ok"


@topic.command("describe")
@on_cluster
@TOPICS_ARGUMENT
def describe(cluster: "Cluster", as_json: bool, topics: tuple[str, ...]) -> None:
    """Show partitions with leaders, replicas, offsets and sizes, and what is configured for the topic."""
    from odradek.cli.output import echo_json, print_table, size
    from odradek.clients import configs
    from odradek.clients import topics as verbs
    from odradek.config.readable import with_reading

    found = cluster.topics(topics)
    partitions = [part for one in found for part in one.partitions]
    starts = verbs.list_offsets(cluster, partitions, verbs.EARLIEST)
    ends = verbs.list_offsets(cluster, partitions, verbs.LATEST)
    sized = verbs.sizes(cluster, found)
    told: list[dict[str, Any]] = []
    for one in found:
        entries = configs.describe(cluster, configs.Resource("topic", one.name))
        own = {key: entry.value for key, entry in entries.items() if entry.source == configs.TOPIC_SOURCE}
        rows = []
        for part in one.partitions:
            place = one.name, part.number
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
                    "bytes": None if sized is None else sized.get(place),
                }
            )
        told.append({"topic": one.name, "id": _uuid(one.topic_id), "configs": own, "partitions": rows})
    if as_json:
        echo_json(told if len(told) > 1 else told[0])
        return
    for number, info in enumerate(told):
        if number:
            click.echo()
        click.echo(f"Topic {info['topic']}, id {info['id'] or '-'}")
        for key, value in sorted(info["configs"].items()):
            click.echo(f"  {key}={with_reading(key, value)}")
        titles = ["partition", "leader", "replicas", "in_sync", "start", "end", "records"]
        cells = [[row[title] for title in titles] + [size(row["bytes"])] for row in info["partitions"]]
        print_table([title.replace("_", " ") for title in titles] + ["size"], cells, "no partitions")


def _uuid(topic_id: bytes) -> str | None:
    """As Kafka writes ids: base64 for URLs without padding; None for none."""
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(topic_id).decode().rstrip("=") if any(topic_id) else None


@topic.command("alter")
@on_cluster
@TOPIC_ARGUMENT
@click.option("-p", "--partitions", type=click.IntRange(1), help="How many in all, more than now.")
@CONFIG_OPTION
@click.option("--unset", metavar="KEY", multiple=True, help="Give a setting back to the default.")
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
    """Add partitions, change settings. What a setting would delete is said first."""
    from odradek.cli.config_change import change
    from odradek.cli.output import count, echo_json
    from odradek.clients import topics as verbs
    from odradek.clients.configs import Resource

    if partitions is None and not configs and not unset:
        raise click.UsageError("nothing to change: give --partitions, --config KEY=VALUE or --unset KEY")
    (now,) = cluster.topics([topic])
    told: dict[str, Any] = {"topic": topic, "dry_run": dry_run}
    if partitions is not None and partitions <= len(now.partitions):
        fail(f"topic '{topic}' has {count(len(now.partitions), 'partition')}; --partitions can only make it more")
    if configs or unset:
        told |= change(cluster, Resource("topic", topic), configs, unset, yes=yes, dry_run=dry_run, quiet=as_json)
    if partitions is not None:
        verbs.grow(cluster, topic, partitions, dry_run)
        told["partitions"] = partitions
        if not as_json:
            verb = "would have" if dry_run else "has now"
            click.echo(
                f"topic {topic} {verb} {count(partitions, 'partition')}; keys may go to other partitions than before"
            )
    if as_json:
        echo_json(told)


@topic.command("delete")
@on_cluster
@TOPICS_ARGUMENT
@click.option("--if-exists", is_flag=True, help="Be content with a topic that is not there.")
@YES_OPTION
@DRY_RUN_OPTION
def delete(
    cluster: "Cluster", as_json: bool, topics: tuple[str, ...], if_exists: bool, yes: bool, dry_run: bool
) -> None:
    """Delete topics with all their records; patterns such as 'test-*' will do."""
    from odradek.cli.output import count, echo_json
    from odradek.clients import topics as verbs

    there = cluster.metadata().topics
    names: list[str] = []
    for word in topics:
        matching = (
            [word] if word in there else [n for n in sorted(there) if fnmatchcase(n, word) and not there[n].internal]
        )
        if not matching and not if_exists:
            fail(f"there is no topic '{word}'; `odradek topic list` shows what there is")
        names += [name for name in matching if name not in names]
    records = _records(cluster, [there[name] for name in names])
    if dry_run or not names:
        if as_json:
            echo_json([{"topic": name, "deleted": False, "records": records[name]} for name in names])
        else:
            for name in names:
                click.echo(f"would delete topic {name} ({count(records[name], 'record')})")
        return
    listed = ", ".join(f"{name} ({count(records[name], 'record')})" for name in names[:5])
    if len(names) > 5:
        listed += f" and {len(names) - 5} more"
    confirm(f"This deletes {listed} for good.", yes)
    outcome = verbs.delete(cluster, names)
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
                click.echo(f"deleted topic {name}")
    if refused:
        fail("; ".join(f"topic '{name}' was not deleted: {reason}" for name, reason in refused))


def _records(cluster: "Cluster", topics: "list[TopicInfo]") -> dict[str, int]:
    """How many offsets lie between start and end of each topic."""
    from odradek.clients import topics as verbs

    partitions = [part for one in topics for part in one.partitions]
    starts = verbs.list_offsets(cluster, partitions, verbs.EARLIEST)
    ends = verbs.list_offsets(cluster, partitions, verbs.LATEST)
    return {
        one.name: sum(
            max(0, ends[place].offset - starts[place].offset)
            for place in ((one.name, part.number) for part in one.partitions)
            if place in starts and place in ends
        )
        for one in topics
    }


@topic.command("truncate")
@on_cluster
@TOPIC_ARGUMENT
@click.option("-p", "--partition", "chosen", type=click.IntRange(0), multiple=True, help="Of this partition only.")
@click.option("--before-offset", type=click.IntRange(0), help="Only records before this offset.")
@click.option(
    "--before-time", metavar="TIME", help="Only records before a time: 2026-01-31T12:00, -7d, or ms since 1970."
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
    """Delete the records of a topic, all or the oldest; the topic, its settings and its offsets stay.

    Files are deleted by whole segments, some minutes later; the command prints how much space that frees.
    """
    from odradek.cli.config_change import print_freed
    from odradek.cli.output import count, echo_json, print_table
    from odradek.clients import topics as verbs

    plan = _truncation(cluster, topic, chosen, before_offset, before_time)
    total = sum(row["records"] for row in plan)
    changes = {(topic, row["partition"]): row["new_start"] for row in plan if row["records"]}
    space = _space_of(cluster, topic, plan) if changes else None
    if not dry_run and changes:
        confirm(f"This deletes {count(total, 'record')} of topic {topic} for good.", yes)
        verbs.delete_records(cluster, changes)
    if as_json:
        told = {"topic": topic, "records": total, "dry_run": dry_run, "partitions": plan}
        if space is not None:
            freed, rules = space
            told["space"] = rules._asdict() | {"bytes_at_least": freed.at_least, "bytes_at_most": freed.at_most}
        echo_json(told)
        return
    titles = ["partition", "start", "new_start", "end", "records"]
    print_table([title.replace("_", " ") for title in titles], [[row[title] for title in titles] for row in plan], "")
    click.echo(f"{'would delete' if dry_run else 'deleted'} {count(total, 'record')} of topic {topic}")
    if space is not None:
        print_freed(*space)


def _truncation(
    cluster: "Cluster", topic: str, chosen: tuple[int, ...], before_offset: int | None, before_time: str | None
) -> list[dict[str, int]]:
    """What is deleted from each partition. Ends the command where the options do not fit. Raises ClientError."""
    from odradek.clients import topics as verbs

    if before_offset is not None and before_time is not None:
        raise click.UsageError("give only one of --before-offset and --before-time")
    (info,) = cluster.topics([topic])
    unknown = sorted(set(chosen) - {part.number for part in info.partitions})
    if unknown:
        fail(f"topic '{topic}' has no partition {unknown[0]}; it has 0 to {len(info.partitions) - 1}")
    partitions = [part for part in info.partitions if not chosen or part.number in chosen]
    starts = verbs.list_offsets(cluster, partitions, verbs.EARLIEST)
    ends = verbs.list_offsets(cluster, partitions, verbs.LATEST)
    wanted = {place: found.offset for place, found in ends.items()}
    if before_time is not None:
        at_times = verbs.list_offsets(cluster, partitions, parsed_time(before_time))
        wanted = {place: found.offset if found.offset >= 0 else wanted[place] for place, found in at_times.items()}
    elif before_offset is not None:
        wanted = {place: min(before_offset, end) for place, end in wanted.items()}
    return [
        {
            "partition": index,
            "start": starts[name, index].offset,
            "new_start": max(offset, starts[name, index].offset),
            "end": ends[name, index].offset,
            "records": max(0, offset - starts[name, index].offset),
        }
        for (name, index), offset in sorted(wanted.items())
    ]


def _space_of(
    cluster: "Cluster", topic: str, plan: list[dict[str, int]]
) -> "tuple[freed_space.FreedSpace, freed_space.SpaceRules] | None":
    """What the truncation frees; None where the brokers do not tell sizes. Raises ClientError."""
    from odradek.clients import freed_space
    from odradek.clients import topics as verbs

    sizes = verbs.sizes(cluster, cluster.topics([topic]))
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
    """An option's time; a wrong one is a wrong command line."""
    from odradek.cli.values import time_ms

    try:
        return time_ms(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
