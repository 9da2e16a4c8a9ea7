"""``odradek produce``: sends lines or JSON from a file or standard input to a topic. Runs in the process of the command.

`sending` sends the records; with settings of librdkafka (`-X`), `library_sending` does.
"""

from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from odradek import codecs
from odradek.cli.framework.command import HelpfulCommand
from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail, warn
from odradek.cli.framework.interrupt import Interruption, interrupt_note
from odradek.cli.framework.options import (
    BOOTSTRAP_OPTION,
    JSON_OPTION,
    TIMEOUT_OPTION,
    TOPIC_ARGUMENT,
    connection_to,
    fail_on_cluster,
    key_values,
)
from odradek.cli.records.produce_options import ACKS, ProduceOptions, record_options

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster, TopicInfo

Command = TypeVar("Command", bound=Callable[..., Any])
BATCH_BYTES = 1_000_000
"""The maximum size of a batch before compression, unless the topic's max.message.bytes is smaller."""
COMPRESSION_ADDS_BYTES = 100
"""The most by which compression can enlarge a batch of random bytes, in addition to 2 %."""
LONGEST_WAIT_FOR_TOPIC_S, RETRY_INTERVAL_S = 10.0, 0.1


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
    from odradek.cli.framework.output import count, echo_json
    from odradek.clients.errors import ClientError

    try:
        with connection_to(servers, timeout) as cluster:
            info = _topic(cluster, topic, create)
            if options.partition is not None and options.partition >= len(info.partitions):
                fail(f"topic '{topic}' has no partition {options.partition}; it has 0 to {len(info.partitions) - 1}")
            if extra:
                from odradek.cli.records.library_sending import send

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
    from odradek.cli.framework.output import count, input_progress
    from odradek.cli.records.sending import LONGEST_AFTER_SIGNAL_S, InputSender
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
    if source.isatty():
        echo(f"type the records of {info.name}, one in each line; Ctrl-D ends", err=True)
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
