"""``odradek consume``: records of topics, from an offset, a time or where a group is, to the end or for ever.

In the process of the command. `direct_reading` does the work; for a group, and with settings of librdkafka, `group_reading`.
"""

import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from odradek.cli.failure import fail, warn
from odradek.cli.interrupt import Interruption, noting
from odradek.cli.options import BOOTSTRAP_OPTION, TIMEOUT_OPTION, complete_groups, complete_topics, key_values

if TYPE_CHECKING:
    from odradek.cli.reading import Ends, Place, Start
    from odradek.clients.cluster import Partition


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
@click.option("--until", metavar="TIME", help="End each partition before its first record of this time or later.")
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
@click.option(
    "-X",
    "extra",
    metavar="KEY=VALUE",
    multiple=True,
    callback=key_values,
    help="A setting of librdkafka, which then reads the records (needs confluent-kafka; slower), as it does for a group.",
)
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
    from odradek.cli.reading import parsed_start
    from odradek.cli.record_format import printer

    if group_id is not None and chosen:
        raise click.UsageError("a group shares partitions out by itself; leave out --partition or --group")
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
    wanted = Wanted(
        topics,
        chosen,
        where,
        start is not None,
        group_id,
        until_ms,
        exit_at_end or until_ms is not None,
        limit,
        _pattern(grep),
        not uncommitted,
    )
    with_library = group_id is not None or bool(extra)
    read = _read_with_library if with_library else _read_directly
    read(servers, timeout, wanted, printer("json" if as_json else form), extra)


class Wanted(NamedTuple):
    """What the options say about the records to read."""

    topics: tuple[str, ...]
    chosen: tuple[int, ...]
    start: "Start"
    start_is_given: bool
    group_id: str | None
    until_ms: int | None
    to_the_end: bool
    limit: int | None
    pattern: Any
    committed_only: bool


def _read_directly(servers: str, timeout: float, wanted: Wanted, printer: Any, _: Any) -> None:
    from odradek.cli.direct_reading import DirectReading, output_to, record_reader
    from odradek.cli.output import count
    from odradek.cli.reading import Ends, assignment, matching
    from odradek.clients.cluster import Cluster
    from odradek.clients.errors import ClientError
    from odradek.clients.fetching import Fetcher

    try:
        with Cluster(servers, timeout) as cluster, Interruption() as interruption:
            with interruption.at_once():
                partitions = matching(cluster, wanted.topics, wanted.chosen)
                ends = Ends.of(cluster, partitions, wanted.committed_only) if wanted.to_the_end else None
                positions = assignment(cluster, partitions, wanted.start)
            write = output_to(sys.stdout.fileno(), interruption)
            reader = record_reader(printer, write, wanted.pattern, wanted.limit, wanted.until_ms, wanted.committed_only)
            reading = DirectReading(Fetcher(cluster, positions, wanted.committed_only, warn), reader, positions, ends)
            with noting(lambda: f"{count(reading.records, 'record')} read"):
                reading.run(interruption, timeout)
                interruption.check()
    except ClientError as error:
        fail(error)


def _read_with_library(servers: str, timeout: float, wanted: Wanted, printer: Any, extra: dict[str, str]) -> None:
    from odradek.cli.client_library import client_config, library
    from odradek.cli.direct_reading import output_to
    from odradek.cli.group_reading import GroupReading
    from odradek.cli.output import count

    confluent = library()
    partitions, assigned, ends = _begin(servers, timeout, wanted)
    settings = client_config(servers, extra) | {
        "enable.auto.commit": False,
        "isolation.level": "read_committed" if wanted.committed_only else "read_uncommitted",
        "fetch.wait.max.ms": 100,
        "enable.partition.eof": True,
        "group.id": wanted.group_id or "odradek",
        "auto.offset.reset": "earliest" if wanted.group_id is not None else "error",
    }
    try:
        consumer = confluent.Consumer(settings)
    except (confluent.KafkaException, ValueError, TypeError) as error:
        fail(f"librdkafka does not take these settings: {error}")
    if wanted.group_id is None:
        consumer.assign([confluent.TopicPartition(name, number, at) for (name, number), at in assigned.items()])
    else:
        consumer.subscribe(sorted({one.topic for one in partitions}))
    in_group = wanted.group_id is not None
    reading = GroupReading(
        confluent, consumer, printer, wanted.pattern, wanted.limit, wanted.until_ms, ends, commits=in_group
    )
    with (
        noting(lambda: f"{count(reading.records, 'record')} read{' and committed' if in_group else ''}"),
        Interruption() as interruption,
    ):
        try:
            reading.run(output_to(sys.stdout.fileno(), interruption), interruption, timeout)
        finally:
            reading.finish()
        if reading.failure is None:
            interruption.check()
    if reading.failure is not None:
        fail(reading.failure)


def _begin(servers: str, timeout: float, wanted: Wanted) -> "tuple[list[Partition], dict[Place, int], Ends | None]":
    """What to read, from where without a group, and to where. Moves the group if both --group and --from are given."""
    from odradek.cli.reading import Ends, assignment, matching
    from odradek.clients.cluster import Cluster
    from odradek.clients.errors import ClientError

    try:
        with Cluster(servers, timeout) as cluster:
            partitions = matching(cluster, wanted.topics, wanted.chosen)
            ends = Ends.of(cluster, partitions, wanted.committed_only) if wanted.to_the_end else None
            assigned: dict[Place, int] = {}
            if wanted.group_id is None or wanted.start_is_given:
                assigned = assignment(cluster, partitions, wanted.start)
            if wanted.group_id is not None and wanted.start_is_given:
                _move_group(cluster, wanted.group_id, assigned)
            if wanted.group_id is not None and ends is not None:
                ends.skip_read(cluster, wanted.group_id)
    except ClientError as error:
        fail(error)
    return partitions, assigned, ends


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
    from odradek.clients import groups

    refused = groups.commit_offsets(cluster, group_id, {place: groups.Committed(at) for place, at in offsets.items()})
    if refused:
        fail(f"group '{group_id}' has members, so --from cannot move it; leave out --from, or stop them")
