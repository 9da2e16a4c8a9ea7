"""``odradek consume``: records of topics, from an offset, a time or where a group is, to the end or for ever.

In the process of the command; reads with confluent-kafka.
"""

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from broker.cli.failure import fail
from broker.cli.options import BOOTSTRAP_OPTION, TIMEOUT_OPTION, complete_groups, complete_topics, key_values

if TYPE_CHECKING:
    from broker.clients.cluster import Partition


@click.command("consume")
@BOOTSTRAP_OPTION
@TIMEOUT_OPTION
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics)
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    help="beginning, end, an offset, -N (the last N of each partition), a time (2026-01-31T12:00) or '1h ago';"
    " where the group is, or else the end.",
)
@click.option("--until", metavar="TIME", help="Leave out records of this time and later, and end there.")
@click.option(
    "-g",
    "--group",
    "group_id",
    metavar="GROUP",
    shell_complete=complete_groups,
    help="As a member of this group, which commits what was read.",
)
@click.option("-p", "--partition", "chosen", type=click.IntRange(0), multiple=True, help="Only this partition.")
@click.option("-n", "--max", "limit", type=click.IntRange(1), help="End after so many records.")
@click.option("-e", "--exit", "exit_at_end", is_flag=True, help="End at the end that the topics have now.")
@click.option(
    "-f",
    "--format",
    "form",
    default="value",
    show_default=True,
    metavar="FORMAT",
    help="value, key-value, json (a line each), raw (no line ends), or a template such as"
    " '{topic}-{partition}@{offset} {time} {key} {value} {headers}\\n'.",
)
@click.option("--json", "as_json", is_flag=True, help="As --format json.")
@click.option("--grep", metavar="REGEX", help="Only records whose key or value has this.")
@click.option("--uncommitted", is_flag=True, help="Also records of transactions that are not, or never, committed.")
@click.option("-X", "extra", metavar="KEY=VALUE", multiple=True, callback=key_values, help="A setting of librdkafka.")
def consume(
    servers: str,
    timeout: float,
    topics: tuple[str, ...],
    start: str | None,
    until: str | None,
    group_id: str | None,
    chosen: tuple[int, ...],
    limit: int | None,
    exit_at_end: bool,
    form: str,
    as_json: bool,
    grep: str | None,
    uncommitted: bool,
    extra: dict[str, str],
) -> None:
    """Read TOPICs, or those that match patterns such as 'orders-*'."""
    from broker.cli.client_library import client_config, library
    from broker.cli.reading import Ends, Reading, assignment, matching, parsed_start
    from broker.cli.record_format import formatter
    from broker.clients.cluster import Cluster
    from broker.clients.errors import ClientError

    if group_id is not None and chosen:
        raise click.UsageError("a group shares partitions out by itself; leave out --partition or --group")
    write = formatter("json" if as_json else form)
    pattern = _pattern(grep)
    confluent = library()
    now_ms = time.time_ns() // 1_000_000
    until_ms = None
    try:
        where = parsed_start(start, now_ms)
        if until is not None:
            until_ms = parsed_start(until, now_ms).time_ms
            if until_ms is None:
                raise ValueError(f"'{until}' is no time: write e.g. 2026-01-31T12:00 or '1h ago'")
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        with Cluster(servers, timeout) as cluster:
            partitions: list[Partition] = matching(cluster, topics, chosen)
            ends = Ends.of(cluster, partitions, not uncommitted) if exit_at_end or until_ms is not None else None
            assigned = None
            if group_id is None or start is not None:
                assigned = assignment(cluster, partitions, where)
            if group_id is not None and start is not None:
                _move_group(cluster, group_id, assigned or {})
            if group_id is not None and ends is not None:
                ends.skip_read(cluster, group_id)
    except ClientError as error:
        fail(error)
    settings = client_config(servers, extra) | {
        "enable.auto.commit": False,
        "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
        "fetch.wait.max.ms": 100,
        "enable.partition.eof": True,
        "group.id": group_id or "odradek",
        "auto.offset.reset": "earliest" if group_id is not None else "error",
    }
    try:
        consumer = confluent.Consumer(settings)
    except (confluent.KafkaException, ValueError, TypeError) as error:
        fail(f"librdkafka does not take these settings: {error}")
    if group_id is None:
        consumer.assign([confluent.TopicPartition(name, number, at) for (name, number), at in (assigned or {}).items()])
    else:
        consumer.subscribe(sorted({one.topic for one in partitions}))
    reading = Reading(confluent, consumer, write, pattern, limit, until_ms, ends, group_id is not None)
    try:
        reading.run(sys.stdout.buffer, timeout)
    except KeyboardInterrupt:
        pass  # how a person ends it
    finally:
        reading.finish()
    if reading.failure is not None:
        fail(reading.failure)


def _pattern(text: str | None) -> Any:
    if text is None:
        return None
    import re

    try:
        return re.compile(text.encode())
    except re.error as error:
        raise click.UsageError(f"--grep '{text}' is no regular expression: {error}") from None


def _move_group(cluster: Any, group_id: str, offsets: dict[tuple[str, int], int]) -> None:
    """With both --group and --from: the group is put there first."""
    from broker.clients import groups

    refused = groups.commit_offsets(cluster, group_id, {place: groups.Committed(at) for place, at in offsets.items()})
    if refused:
        fail(f"group '{group_id}' has members, so --from cannot move it; leave out --from, or stop them")
