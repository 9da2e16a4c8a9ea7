"""``odradek consume``: reads records of topics from an offset, a time or a group's position, up to an end or until Ctrl-C.

Runs in the process of the command. `direct_reading` reads the records; for a group, and with settings of librdkafka,
`group_reading` does.
"""

import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from odradek import clock
from odradek.cli.framework.command import HelpfulCommand
from odradek.cli.framework.failure import fail, warn
from odradek.cli.framework.interrupt import Interruption, interrupt_note, without_interruption
from odradek.cli.framework.options import (
    BOOTSTRAP_OPTION,
    TIMEOUT_OPTION,
    complete_groups,
    complete_topics,
    connection_to,
    fail_on_cluster,
    key_values,
)

if TYPE_CHECKING:
    from odradek.cli.records.reading import Ends, Selection, Start
    from odradek.clients.cluster import Cluster, Partition
    from odradek.topic_partition import TopicPartition

Command = Callable[..., Any]
READ_COMMITTED, READ_UNCOMMITTED = ISOLATION = ("read_committed", "read_uncommitted")


class ConsumeOptions(NamedTuple):
    """The options about the records to read."""

    selection: "Selection"
    start: "Start"
    start_is_given: bool
    group_id: str | None
    until_ms: int | None
    to_the_end: bool
    limit: int | None
    pattern: Any
    committed_only: bool


READ_OPTIONS = (
    click.option(
        "-r",
        "--regex",
        is_flag=True,
        help="Read each TOPIC and each --exclude as a regular expression that matches whole names: -r 'orders\\.(eu|us)'.",
    ),
    click.option(
        "--exclude",
        "excluded",
        metavar="PATTERN",
        multiple=True,
        help="Do not read topics that match this pattern, such as 'orders-tmp-*'; repeatable.",
    ),
    click.option(
        "--from",
        "start",
        metavar="WHERE",
        help="Start position: beginning, end, an offset, -N (the last N records of each partition), a time (2026-01-31T12:00)"
        " or '1h ago'. Default with --group: the group's committed offsets, or the beginning; without --group: the end.",
    ),
    click.option(
        "--until",
        metavar="TIME",
        help="Read each partition up to its first record of this time or later, then exit: 2026-01-31T12:00 or '1h ago'.",
    ),
    click.option(
        "-g",
        "--group",
        "group_id",
        metavar="GROUP",
        shell_complete=complete_groups,
        help="Read as a member of this group, and commit the offsets of the records written (needs confluent-kafka).",
    ),
    click.option(
        "-p",
        "--partition",
        "chosen",
        type=click.IntRange(0),
        multiple=True,
        help="Read only this partition; repeatable.",
    ),
    click.option("-n", "--max", "limit", type=click.IntRange(1), help="Exit after this number of records."),
    click.option(
        "-e", "--exit", "exit_at_end", is_flag=True, help="Exit when the current end of every partition is reached."
    ),
    click.option(
        "--grep", metavar="REGEX", help="Write only records whose key or value matches this regular expression."
    ),
    click.option(
        "--isolation",
        type=click.Choice(tuple(ISOLATION)),
        default=READ_COMMITTED,
        show_default=True,
        help="read_committed: skip records of aborted transactions, and read up to the first open transaction."
        " read_uncommitted: read all records.",
    ),
    click.option("--uncommitted", is_flag=True, help="Short for --isolation read_uncommitted."),
)
"""The options that make up `ConsumeOptions`, in the order of the help."""


def read_options(function: Command) -> Command:
    """Add `READ_OPTIONS`; the function receives them and the topics as `options`, a `ConsumeOptions`."""

    @wraps(function)
    def run(
        topics: tuple[str, ...],
        regex: bool,
        excluded: tuple[str, ...],
        start: str | None,
        until: str | None,
        group_id: str | None,
        chosen: tuple[int, ...],
        limit: int | None,
        exit_at_end: bool,
        grep: str | None,
        isolation: str,
        uncommitted: bool,
        **others: Any,
    ) -> Any:
        if group_id is not None and chosen:
            raise click.UsageError(
                "--partition cannot be used with --group, which assigns the partitions; leave out one of them"
            )
        where, until_ms = _period(start, until)
        options = ConsumeOptions(
            _selection(topics, regex, excluded, chosen),
            where,
            start is not None,
            group_id,
            until_ms,
            exit_at_end or until_ms is not None,
            limit,
            _pattern(grep),
            isolation == READ_COMMITTED and not uncommitted,
        )
        return function(options=options, **others)

    command: Command = run
    for option in reversed(READ_OPTIONS):
        command = option(command)
    return command


def _selection(topics: tuple[str, ...], regex: bool, excluded: tuple[str, ...], chosen: tuple[int, ...]) -> "Selection":
    """The topics to read. Raises UsageError for an invalid regular expression."""
    from odradek.cli.records.reading import Selection

    for option, words in (("--regex", topics), ("--exclude", excluded)) if regex else ():
        for word in words:
            _compiled(option, word, word)
    return Selection(topics, regex, excluded, chosen)


def _period(start: str | None, until: str | None) -> "tuple[Start, int | None]":
    """The start position that --from names, and the time of --until in ms since 1970. Raises UsageError."""
    from odradek.cli.records.reading import parsed_start

    now_ms = clock.now_ms()
    try:
        where = parsed_start(start, now_ms)
        if until is None:
            return where, None
        until_ms = parsed_start(until, now_ms).time_ms
        if until_ms is None:
            raise ValueError(f"'{until}' is not a time: write e.g. 2026-01-31T12:00 or '1h ago'")
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return where, until_ms


@click.command("consume", cls=HelpfulCommand)
@BOOTSTRAP_OPTION
@TIMEOUT_OPTION
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics)
@read_options
@click.option(
    "-f",
    "--format",
    "form",
    metavar="FORMAT",
    help="Output format: value, key-value, topic-value or json (one line per record), raw (values without line ends), or a"
    " template such as '{topic}-{partition}@{offset} {time} {key} {value} {headers}\\n'. Default: value; topic-value if several"
    " topics can match.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Write each record as one line of JSON (short for --format json)."
)
@click.option(
    "-X",
    "extra",
    metavar="KEY=VALUE",
    multiple=True,
    callback=key_values,
    help="Read with librdkafka, with this setting; repeatable (needs confluent-kafka; slower).",
)
def consume(
    servers: str, timeout: float, options: ConsumeOptions, form: str | None, as_json: bool, extra: dict[str, str]
) -> None:
    """Read records from TOPICs. A TOPIC may be a pattern such as 'orders-*', or with --regex a regular expression. Neither of
    them matches internal topics.

    Without --exit, --until and --max, the command reads until Ctrl-C, or until the reader of its output ends; at most 5 s after
    they were created, it also reads new partitions, and new topics that match, from the beginning. With --exit or --until, it
    fails if no records arrive for --timeout seconds.
    """
    from odradek.cli.records.record_format import printer

    with_library = options.group_id is not None or bool(extra)
    read = _read_with_library if with_library else _read_directly
    default = "topic-value" if options.selection.may_be_several else "value"
    if not (options.start_is_given or options.group_id is not None) and sys.stdout.isatty():
        what = "nothing is read" if options.to_the_end else "waiting for new records"
        warn(f"{what}, because --from is not given and the default is the end; --from beginning reads what is there")
    read(servers, timeout, options, printer("json" if as_json else form or default), extra)


def _read_directly(servers: str, timeout: float, options: ConsumeOptions, printer: Any, _: Any) -> None:
    from odradek.cli.framework.output import count
    from odradek.cli.records.direct_reading import DirectConsumer, output_to, record_reader
    from odradek.cli.records.reading import NewPartitions, assignment, keeping, matching
    from odradek.clients.errors import ClientError
    from odradek.clients.fetching import Fetcher

    try:
        with (
            connection_to(servers, timeout) as cluster,
            connection_to(servers, timeout) as looking,
            Interruption() as interruption,
        ):
            with interruption.at_once():
                partitions = matching(cluster, options.selection)
                ends = _ends(cluster, partitions, options)
                positions = assignment(cluster, partitions, options.start)
            write = output_to(sys.stdout.fileno(), interruption)
            keep = keeping(options.pattern, interruption)
            reader = record_reader(printer, write, keep, options.limit, options.until_ms, options.committed_only)
            fetcher = Fetcher(cluster, positions, options.committed_only, warn)
            created = NewPartitions(looking, options.selection, partitions)
            consumer = DirectConsumer(fetcher, reader, positions, ends, created.look if ends is None else dict)
            with interrupt_note(lambda: f"{count(consumer.records, 'record')} read"):
                consumer.run(interruption, timeout)
                interruption.check()
    except ClientError as error:
        fail_on_cluster(error, servers)


def _read_with_library(
    servers: str, timeout: float, options: ConsumeOptions, printer: Any, extra: dict[str, str]
) -> None:
    from odradek.cli.framework.client_library import client_config, library
    from odradek.cli.framework.output import count
    from odradek.cli.records.direct_reading import output_to
    from odradek.cli.records.group_reading import GroupConsumer
    from odradek.cli.records.reading import NewPartitions, keeping
    from odradek.clients.errors import ClientError

    confluent = library()
    partitions, assigned, ends = _start(servers, timeout, options)
    settings = client_config(servers, extra) | {
        "enable.auto.commit": False,
        "isolation.level": READ_COMMITTED if options.committed_only else READ_UNCOMMITTED,
        "fetch.wait.max.ms": 100,
        "enable.partition.eof": True,
        "group.id": options.group_id or extra.get("group.id", "odradek"),
        "auto.offset.reset": "earliest" if options.group_id is not None else "error",
    }
    try:
        consumer = without_interruption(lambda: confluent.Consumer(settings))
    except (confluent.KafkaException, ValueError, TypeError) as error:
        fail(f"librdkafka rejected the settings: {error}")
    in_group = options.group_id is not None
    read = _subscription(confluent, consumer, in_group)
    read({(part.topic, part.number): 0 for part in partitions} if in_group else assigned)
    interruption = Interruption()
    keep = keeping(options.pattern, interruption)
    group_consumer = GroupConsumer(
        confluent, consumer, printer, keep, options.limit, options.until_ms, ends, commits=in_group
    )
    try:
        with (
            interrupt_note(
                lambda: f"{count(group_consumer.records, 'record')} read{' and committed' if in_group else ''}"
            ),
            connection_to(servers, timeout) as cluster,
            interruption,
        ):
            created = NewPartitions(cluster, options.selection, partitions)

            def follow() -> None:
                with interruption.at_once():
                    new = created.look() if ends is None else {}
                if new:
                    read(new)

            try:
                group_consumer.run(output_to(sys.stdout.fileno(), interruption), interruption, timeout, follow)
            finally:
                group_consumer.finish()
            if group_consumer.failure is None:
                interruption.check()
    except ClientError as error:
        fail_on_cluster(error, servers)
    if group_consumer.failure is not None:
        fail(group_consumer.failure)


def _subscription(confluent: Any, consumer: Any, in_group: bool) -> "Callable[[dict[TopicPartition, int]], None]":
    """A function that lets the consumer also read partitions from these offsets on; in a group, their topics."""
    subscribed: set[str] = set()

    def read(places: "dict[TopicPartition, int]") -> None:
        if not in_group:
            consumer.incremental_assign([confluent.TopicPartition(*place, offset) for place, offset in places.items()])
        elif new := {name for name, _ in places} - subscribed:
            subscribed.update(new)
            consumer.subscribe(sorted(subscribed))

    return read


def _start(
    servers: str, timeout: float, options: ConsumeOptions
) -> "tuple[list[Partition], dict[TopicPartition, int], Ends | None]":
    """The partitions to read, their start offsets (empty for a group without --from), and their ends.

    With both --group and --from, changes the committed offsets of the group. Ends the command on errors.
    """
    from odradek.cli.records.reading import assignment, matching
    from odradek.clients.errors import ClientError

    try:
        with connection_to(servers, timeout) as cluster:
            partitions = matching(cluster, options.selection)
            ends = _ends(cluster, partitions, options)
            assigned: dict[TopicPartition, int] = {}
            if options.group_id is None or options.start_is_given:
                assigned = assignment(cluster, partitions, options.start)
            if options.group_id is not None and options.start_is_given:
                _move_group(cluster, options.group_id, assigned)
            if options.group_id is not None and ends is not None:
                ends.skip_read(cluster, options.group_id)
    except ClientError as error:
        fail_on_cluster(error, servers)
    return partitions, assigned, ends


def _ends(cluster: "Cluster", partitions: "list[Partition]", options: ConsumeOptions) -> "Ends | None":
    """The offsets at which reading ends, or None. Prints a warning for each partition that is not read to its end because of an
    open transaction. Raises ClientError."""
    from odradek.cli.framework.output import count
    from odradek.cli.records.reading import Ends, hidden

    if not options.to_the_end:
        return None
    ends = Ends.of(cluster, partitions, options.committed_only)
    if options.committed_only:
        for (name, number), offsets in hidden(cluster, partitions).items():
            warn(
                f"{name}-{number} is read up to its last stable offset, {count(offsets, 'offset')} before its end, because of"
                f" an open transaction; --isolation {READ_UNCOMMITTED} reads to the end"
            )
    return ends


def _pattern(text: str | None) -> Any:
    return None if text is None else _compiled("--grep", text, text.encode())


def _compiled(option: str, text: str, pattern: str | bytes) -> Any:
    """The regular expression, for bytes or for text. Raises UsageError."""
    import re

    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise click.UsageError(f"{option} '{text}' is not a valid regular expression: {error}") from None


def _move_group(cluster: Any, group_id: str, offsets: "dict[TopicPartition, int]") -> None:
    """Commit the start offsets for the group, for --group with --from. Ends the command if the group has members."""
    from odradek.clients import groups

    commits = {place: groups.CommittedOffset(offset) for place, offset in offsets.items()}
    refused = groups.commit_offsets(cluster, group_id, commits)
    if refused:
        fail(
            f"group '{group_id}' has members, so --from cannot change its offsets; leave out --from, or stop the members"
        )
