"""``odradek produce``: sends lines or JSON from a file or standard input to a topic. Runs in the process of the command.

`sending` sends the records; with settings of librdkafka (`-X`), `library_sending` does.
"""

from collections.abc import Callable
from functools import wraps
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from odradek import codecs
from odradek.cli.command import HelpfulCommand
from odradek.cli.echo import echo
from odradek.cli.failure import fail, warn
from odradek.cli.interrupt import Interruption, interrupt_note
from odradek.cli.options import (
    BOOTSTRAP_OPTION,
    JSON_OPTION,
    TIMEOUT_OPTION,
    TOPIC_ARGUMENT,
    connection_to,
    fail_on_cluster,
    key_values,
)

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster, TopicInfo

Command = TypeVar("Command", bound=Callable[..., Any])
BATCH_BYTES = 1_000_000
"""The maximum size of a batch before compression, unless the topic's max.message.bytes is smaller."""
COMPRESSION_ADDS_BYTES = 100
"""The most by which compression can enlarge a batch of random bytes, in addition to 2 %."""
LONGEST_WAIT_FOR_TOPIC_S, RETRY_INTERVAL_S = 10.0, 0.1
ACKS = {"all": -1, "1": 1, "0": 0}


class ProduceOptions(NamedTuple):
    """The options about the records. :param acks: as on the command line."""

    form: str
    key: bytes | None
    separator: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None
    compression: str
    acks: str
    empty_is_null: bool


RECORD_OPTIONS = (
    click.option(
        "-f",
        "--format",
        "form",
        type=click.Choice(("lines", "json", "whole")),
        default="lines",
        show_default=True,
        help="lines: each line is a record. json: each line is a JSON object, as `odradek consume --json` writes it."
        " whole: the input is one record.",
    ),
    click.option("-k", "--key", help="Key of all records."),
    click.option(
        "-K",
        "--key-separator",
        metavar="TEXT",
        help="With -f lines: text between key and value in each line, e.g. ':' or '\\t'.",
    ),
    click.option(
        "-H",
        "--header",
        "headers",
        metavar="NAME=VALUE",
        multiple=True,
        callback=key_values,
        help="Add this header to all records; repeatable.",
    ),
    click.option(
        "-p",
        "--partition",
        type=click.IntRange(0),
        help="Send all records to this partition (default: chosen by the key).",
    ),
    click.option(
        "-z",
        "--compression",
        type=click.Choice(codecs.NAMES),
        default="none",
        show_default=True,
        help="Compression codec of the batches.",
    ),
    click.option(
        "--acks",
        type=click.Choice(tuple(ACKS)),
        default="all",
        show_default=True,
        help="Replicas that must acknowledge a record: all (in-sync replicas), 1 (the leader), or 0 (none).",
    ),
    click.option("--null", "empty_is_null", is_flag=True, help="Send empty values as null (tombstones)."),
)
"""The options that make up `ProduceOptions`, in the order of the help."""


def record_options(function: Command) -> Command:
    """Add `RECORD_OPTIONS`; the function receives them as `options`, a `ProduceOptions`."""

    @wraps(function)
    def run(
        form: str,
        key: str | None,
        key_separator: str | None,
        headers: dict[str, str],
        partition: int | None,
        compression: str,
        acks: str,
        empty_is_null: bool,
        **others: Any,
    ) -> Any:
        options = ProduceOptions(
            form,
            None if key is None else key.encode(),
            key_separator.encode().decode("unicode_escape").encode("latin-1") if key_separator else None,
            [(name, value.encode()) for name, value in headers.items()],
            partition,
            compression,
            acks,
            empty_is_null,
        )
        return function(options=options, **others)

    command: Any = run
    for option in reversed(RECORD_OPTIONS):
        command = option(command)
    return command


@click.command("produce", cls=HelpfulCommand)
@BOOTSTRAP_OPTION
@TIMEOUT_OPTION
@JSON_OPTION
@TOPIC_ARGUMENT
@click.argument("source", metavar="[FILE]", type=click.File("rb"), default="-")
@record_options
@click.option("--create", is_flag=True, help="Create the topic, with the brokers' defaults, if it does not exist.")
@click.option(
    "-X",
    "extra",
    metavar="KEY=VALUE",
    multiple=True,
    callback=key_values,
    help="Send with librdkafka, with this setting; repeatable (needs confluent-kafka; slower).",
)
def produce(
    servers: str,
    timeout: float,
    as_json: bool,
    topic: str,
    source: IO[bytes],
    options: ProduceOptions,
    create: bool,
    extra: dict[str, str],
) -> None:
    """Send records to TOPIC from FILE, by default from standard input.

    A TOPIC that does not exist is an error, also if the brokers' auto.create.topics.enable is true; --create creates it.
    --timeout limits the seconds without an acknowledgement; with -X, the seconds until each record is acknowledged.
    """
    from odradek.cli.output import count, echo_json
    from odradek.clients.errors import ClientError

    try:
        with connection_to(servers, timeout) as cluster:
            info = _topic(cluster, topic, create)
            if options.partition is not None and options.partition >= len(info.partitions):
                fail(f"topic '{topic}' has no partition {options.partition}; it has 0 to {len(info.partitions) - 1}")
            if extra:
                from odradek.cli.library_sending import send

                records, size = send(servers, timeout, topic, source, options, extra)
            else:
                records, size = _send(cluster, timeout, info, source, options)
    except ClientError as error:
        fail_on_cluster(error, servers)
    if as_json:
        echo_json({"topic": topic, "records": records, "bytes": size})
    else:
        committed = ", in one transaction, which was committed" if "transactional.id" in extra else ""
        echo(f"sent {count(records, 'record')} to {topic}{committed}", err=True)


def _topic(cluster: "Cluster", name: str, create: bool) -> "TopicInfo":
    """Return the topic. Ends the command if the topic has no leader. Raises ClientError, also if the topic does not exist.

    :param create: create the topic if it does not exist.
    """
    from odradek.backoff import Waits
    from odradek.clients.errors import RefusedError

    if name not in cluster.metadata([name]).topics:
        if not create:
            missing = cluster.no_topic(name)
            mark = "" if missing.reason.endswith("?") else ";"
            raise RefusedError(missing.code, f"{missing.reason}{mark} --create creates '{name}'")
        _create(cluster, name)
    backoff = Waits(RETRY_INTERVAL_S, RETRY_INTERVAL_S, min(cluster.timeout_s, LONGEST_WAIT_FOR_TOPIC_S))
    while True:
        info = cluster.metadata([name]).topics.get(name)
        if info is not None and any(part.leader >= 0 for part in info.partitions):
            return info
        if not backoff.wait():
            fail(f"no partition of topic '{name}' has a leader; `odradek doctor` looks for the cause")


def _create(cluster: "Cluster", name: str) -> None:
    """Create the topic with the brokers' defaults. Raises ClientError."""
    from odradek.clients import topics
    from odradek.clients.errors import RefusedError
    from odradek.protocol.errors import ErrorCode

    try:
        topics.create(cluster, name)
    except RefusedError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another client was faster
            raise RefusedError(error.code, f"topic '{name}' was not created: {error.reason}") from None
    else:
        echo(f"created topic {name}", err=True)


def _largest_batch(cluster: "Cluster", topic: str, compressed: bool) -> int:
    """The maximum size of a batch before compression: `BATCH_BYTES`, or the topic's limit if the broker reports a smaller
    one, reduced by what compression may add."""
    from odradek.clients import configs
    from odradek.clients.errors import ClientError

    key = "max.message.bytes"
    try:  # a client that may write need not be allowed to read the configuration
        may_read = cluster.may_describe_configs(topic)
        entries = configs.describe(cluster, configs.Resource("topic", topic), [key]) if may_read else {}
    except ClientError:
        return BATCH_BYTES
    value = entries[key].value if key in entries else None
    limit = int(value) if value else BATCH_BYTES
    if compressed:
        limit -= limit // 50 + COMPRESSION_ADDS_BYTES
    return min(BATCH_BYTES, max(limit, 0))


def _send(
    cluster: "Cluster", timeout: float, info: "TopicInfo", source: IO[bytes], options: ProduceOptions
) -> tuple[int, int]:
    """Send the input; return the number of records and the bytes of their keys and values.

    Ends the command if some records are not acknowledged. Raises ClientError.
    """
    from odradek._ext.records.line_batches import RecordBatches
    from odradek.cli.output import count, input_progress
    from odradek.cli.sending import LONGEST_AFTER_SIGNAL_S, InputSender
    from odradek.clients.errors import ClientError
    from odradek.clients.producing import OLDEST, Sender
    from odradek.storage.compression import compress

    codec = codecs.NAMES.index(options.compression)
    batches = RecordBatches(
        len(info.partitions),
        _largest_batch(cluster, info.name, compressed=codec != codecs.NONE),
        open_partitions=[part.number for part in info.partitions if part.leader >= 0],
        fixed=options.partition,
        key=options.key,
        separator=options.separator,
        empty_is_null=options.empty_is_null,
        headers=options.headers,
    )
    sender = Sender(
        cluster,
        info.name,
        len(info.partitions),
        ACKS[options.acks],
        timeout,
        seal=lambda builder, *producer: builder.finish(codec, compress, *producer),
        warn=warn,
        oldest=max(OLDEST, codecs.CODECS[codec].first_produce),
    )

    def so_far() -> str:
        unknown = batches.records - sender.acknowledged
        sent = f"{count(sender.acknowledged, 'record')} sent to {info.name}"
        return sent + (f", {unknown:,} more not acknowledged" if unknown else "")

    failure: str | None = None
    with (
        interrupt_note(so_far),
        Interruption(LONGEST_AFTER_SIGNAL_S) as interruption,
        input_progress("sending", source, "records") as advance,
    ):
        input_sender = InputSender(source, options.form, batches, sender, interruption, advance)
        try:
            input_sender.run()
            failure = input_sender.failure
        except ClientError as error:
            failure = str(error)
        if failure is None:
            interruption.check()
    if failure is not None:
        fail(f"{failure}; {so_far()}")
    return sender.acknowledged, batches.bytes
