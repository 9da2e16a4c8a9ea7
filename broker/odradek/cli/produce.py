"""``odradek produce``: lines or JSON from a file or standard input to a topic. In the process of the command.

`sending` does the work; with settings of librdkafka (`-X`) it is `library_sending`.
"""

import sys
from typing import IO, TYPE_CHECKING, NamedTuple

import click

from odradek.cli.failure import fail, warn
from odradek.cli.interrupt import Interruption, noting
from odradek.cli.options import BOOTSTRAP_OPTION, JSON_OPTION, TIMEOUT_OPTION, TOPIC_ARGUMENT, key_values

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster, TopicInfo

BATCH_BYTES = 1_000_000
"""The most that a batch has before it is compressed, unless the topic takes less."""
COMPRESSION_ADDS_BYTES = 100
"""Besides 2 %: the most by which compression makes a batch of random bytes larger."""
LONGEST_WAIT_FOR_TOPIC_S, LOOK_EVERY_S = 10.0, 0.1
ACKS = {"all": -1, "1": 1, "0": 0}


class Given(NamedTuple):
    """What the options say about the records. :param acks: as on the command line."""

    form: str
    key: bytes | None
    separator: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None
    compression: str
    acks: str
    empty_is_null: bool


@click.command("produce")
@BOOTSTRAP_OPTION
@TIMEOUT_OPTION
@JSON_OPTION
@TOPIC_ARGUMENT
@click.argument("source", metavar="[FILE]", type=click.File("rb"), default="-")
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(("lines", "json", "whole")),
    default="lines",
    show_default=True,
    help="A record a line, a line of JSON a record (as consume writes them), or the whole input as one record.",
)
@click.option("-k", "--key", help="The key of all records.")
@click.option("-K", "--key-separator", metavar="TEXT", help="What divides key and value in a line, e.g. ':' or '\\t'.")
@click.option(
    "-H",
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    callback=key_values,
    help="A header of all records.",
)
@click.option("-p", "--partition", type=click.IntRange(0), help="Into this partition; by key if not given.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(("none", "gzip", "snappy", "lz4", "zstd")),
    default="none",
    show_default=True,
)
@click.option(
    "--acks",
    type=click.Choice(tuple(ACKS)),
    default="all",
    show_default=True,
    help="Which replicas must have a record before it counts as sent: all in-sync replicas, 1 (the leader), or 0 (no replica).",
)
@click.option("--null", "empty_is_null", is_flag=True, help="An empty value is null: a tombstone.")
@click.option(
    "-X",
    "extra",
    metavar="KEY=VALUE",
    multiple=True,
    callback=key_values,
    help="A setting of librdkafka, which then sends the records (needs confluent-kafka; slower).",
)
def produce(
    servers: str,
    timeout: float,
    as_json: bool,
    topic: str,
    source: IO[bytes],
    form: str,
    key: str | None,
    key_separator: str | None,
    headers: dict[str, str],
    partition: int | None,
    compression: str,
    acks: str,
    empty_is_null: bool,
    extra: dict[str, str],
) -> None:
    """Send the lines of FILE or standard input to TOPIC."""
    from odradek.cli.output import count, echo_json
    from odradek.clients.cluster import Cluster
    from odradek.clients.errors import ClientError

    separator = key_separator.encode().decode("unicode_escape").encode("latin-1") if key_separator else None
    given = Given(
        form,
        None if key is None else key.encode(),
        separator,
        [(name, value.encode()) for name, value in headers.items()],
        partition,
        compression,
        acks,
        empty_is_null,
    )
    try:
        with Cluster(servers, timeout) as cluster:
            info = _topic(cluster, topic)
            if partition is not None and partition >= len(info.partitions):
                fail(f"topic '{topic}' has no partition {partition}; it has 0 to {len(info.partitions) - 1}")
            if extra:
                from odradek.cli.library_sending import send

                records, size = send(servers, timeout, topic, source, given, extra)
            else:
                records, size = _send(cluster, timeout, info, source, given)
    except ClientError as error:
        fail(error)
    if as_json:
        echo_json({"topic": topic, "records": records, "bytes": size})
    else:
        click.echo(f"sent {count(records, 'record')} to {topic}", err=True)


def _topic(cluster: "Cluster", name: str) -> "TopicInfo":
    """The topic, created if the broker creates topics by itself. Ends the command if there is none. Raises ClientError."""
    import time

    deadline = time.monotonic() + min(cluster.timeout_s, LONGEST_WAIT_FOR_TOPIC_S)
    if name not in cluster.metadata([name]).topics and not _is_created_by_itself(cluster):
        fail(f"there is no topic '{name}'; `odradek topic create {name}` makes it")
    while True:
        found = cluster.metadata([name], create=True).topics.get(name)
        if found is not None and any(part.leader >= 0 for part in found.partitions):
            return found
        if time.monotonic() > deadline:
            fail(f"topic '{name}' has no partition with a leader; `odradek doctor` looks for the reason")
        time.sleep(LOOK_EVERY_S)


def _is_created_by_itself(cluster: "Cluster") -> bool:
    from odradek.clients import configs

    key = "auto.create.topics.enable"
    found = configs.describe(cluster, configs.Resource("broker", str(min(cluster.view().brokers))), [key])
    return key in found and found[key].value == "true"


def _largest_batch(cluster: "Cluster", topic: str, compressed: bool) -> int:
    """The topic's limit, if the broker shows it and it is below our own; less where compression may add to the size."""
    from odradek.clients import configs
    from odradek.clients.errors import ClientError

    key = "max.message.bytes"
    try:
        found = configs.describe(cluster, configs.Resource("topic", topic), [key])
    except ClientError:  # it may be forbidden to look; producing is not
        return BATCH_BYTES
    value = found[key].value if key in found else None
    limit = int(value) if value else BATCH_BYTES
    if compressed:
        limit -= limit // 50 + COMPRESSION_ADDS_BYTES
    return min(BATCH_BYTES, max(limit, 0))


def _send(cluster: "Cluster", timeout: float, info: "TopicInfo", source: IO[bytes], given: Given) -> tuple[int, int]:
    """Records acknowledged, and bytes of their keys and values. Ends the command if some are not. Raises ClientError."""
    from odradek._ext.records.line_batches import RecordBatches
    from odradek.cli.output import count, progress
    from odradek.cli.sending import LONGEST_AFTER_SIGNAL_S, Sending
    from odradek.clients.errors import ClientError
    from odradek.clients.producing import FIRST_WITH_ZSTD, OLDEST, Sender
    from odradek.storage.compression import CODEC_NAMES, NONE, ZSTD, compress

    codec = CODEC_NAMES.index(given.compression)
    batches = RecordBatches(
        len(info.partitions),
        _largest_batch(cluster, info.name, compressed=codec != NONE),
        open_partitions=[part.number for part in info.partitions if part.leader >= 0],
        fixed=given.partition,
        key=given.key,
        separator=given.separator,
        empty_is_null=given.empty_is_null,
        headers=given.headers,
    )
    sender = Sender(
        cluster,
        info.name,
        len(info.partitions),
        ACKS[given.acks],
        timeout,
        seal=lambda builder, *producer: builder.finish(codec, compress, *producer),
        warn=warn,
        oldest=FIRST_WITH_ZSTD if codec == ZSTD else OLDEST,
    )

    def so_far() -> str:
        unknown = batches.records - sender.acknowledged
        said = f"{count(sender.acknowledged, 'record')} sent to {info.name}"
        return said + (f", {unknown:,} more not acknowledged" if unknown else "")

    failure: str | None = None
    with (
        noting(so_far),
        Interruption(LONGEST_AFTER_SIGNAL_S) as interruption,
        progress("sending", None, "records", hidden=sys.stdin.isatty()) as advance,
    ):
        sending = Sending(source, given.form, batches, sender, interruption, advance)
        try:
            sending.run()
            failure = sending.failure
        except ClientError as error:
            failure = str(error)
        if failure is None:
            interruption.check()
    if failure is not None:
        fail(f"{failure}; {so_far()}")
    return sender.acknowledged, batches.bytes
