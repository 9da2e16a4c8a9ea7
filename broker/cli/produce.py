"""``odradek produce``: lines or JSON from a file or standard input to a topic. In the process of the command."""

import sys
from collections.abc import Iterator
from typing import IO, Any

import click

from broker.cli.failure import fail
from broker.cli.options import BOOTSTRAP_OPTION, JSON_OPTION, TIMEOUT_OPTION, TOPIC_ARGUMENT, key_values

POLL_EVERY = 1000
BATCH_BYTES = 1 << 20


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
    type=click.Choice(("all", "1", "0")),
    default="all",
    show_default=True,
    help="Who has it before it counts.",
)
@click.option("--null", "empty_is_null", is_flag=True, help="An empty value is null: a tombstone.")
@click.option("-X", "extra", metavar="KEY=VALUE", multiple=True, callback=key_values, help="A setting of librdkafka.")
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
    from broker.cli.client_library import client_config, in_words, library
    from broker.cli.output import count, echo_json, progress
    from broker.cli.record_json import NotARecord

    _require_topic(servers, timeout, topic)
    confluent = library()
    settings = client_config(servers, extra) | {"compression.type": compression, "acks": acks, "linger.ms": 5}
    settings.setdefault("message.timeout.ms", int(timeout * 1000))
    settings |= {"queue.buffering.max.messages": 200_000}
    failures: list[str] = []
    sent = acknowledged = size = 0

    def delivered(error: Any, message: Any) -> None:
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            failures.append(in_words(error))

    try:
        producer = confluent.Producer(settings)
    except (confluent.KafkaException, ValueError, TypeError) as error:
        fail(f"librdkafka does not take these settings: {error}")
    common = [(name, value.encode()) for name, value in headers.items()]
    separator = key_separator.encode().decode("unicode_escape").encode("latin-1") if key_separator else None
    with progress("sending", None, "records", hidden=sys.stdin.isatty()) as advance:
        try:
            for record in _records(source, form, separator):
                value = None if empty_is_null and not record["value"] else record["value"]
                options: dict[str, Any] = {"on_delivery": delivered}
                if partition is not None:
                    options["partition"] = partition
                if record.get("timestamp") is not None:
                    options["timestamp"] = record["timestamp"]
                pairs = common + record.get("headers", [])
                if pairs:
                    options["headers"] = pairs
                chosen = key.encode() if key is not None else record["key"]
                _send(producer, topic, value, chosen, options, failures)
                sent += 1
                size += len(value or b"") + len(chosen or b"")
                if sent % POLL_EVERY == 0:
                    producer.poll(0)
                    advance(POLL_EVERY)
                if failures:
                    break
        except NotARecord as error:
            producer.flush(timeout)
            fail(f"line {sent + 1} of the input was not sent: {error}; {count(acknowledged, 'record')} before it were")
        except confluent.KafkaException as error:
            fail(f"record {sent + 1} was not sent: {in_words(error.args[0])}")
        unsent = producer.flush(timeout)
    if failures:
        fail(f"{count(len(failures), 'record')} of {sent:,} were not taken: {failures[0]}")
    if unsent:
        fail(f"{count(unsent, 'record')} of {sent:,} were not acknowledged within {timeout:g} s; --timeout allows more")
    if as_json:
        echo_json({"topic": topic, "records": acknowledged, "bytes": size})
    else:
        click.echo(f"sent {count(acknowledged, 'record')} to {topic}", err=True)


def _require_topic(servers: str, timeout: float, topic: str) -> None:
    """Fail at once for a broker that is not there or a topic that is not: librdkafka would try until the time is over.

    Where the broker creates topics by itself a missing one is left to it.
    """
    from broker.clients import configs
    from broker.clients.cluster import Cluster
    from broker.clients.errors import ClientError

    try:
        with Cluster(servers, timeout) as cluster:
            if topic in cluster.metadata([topic]).topics:
                return
            node = min(cluster.view().brokers)
            key = "auto.create.topics.enable"
            found = configs.describe(cluster, configs.Resource("broker", str(node)), [key])
            if key in found and found[key].value == "true":
                return
    except ClientError as error:
        fail(error)
    fail(f"there is no topic '{topic}'; `odradek topic create {topic}` makes it")


def _records(source: IO[bytes], form: str, separator: bytes | None) -> Iterator[dict[str, Any]]:
    """Raises NotARecord for a line that is none."""
    from broker.cli.record_json import NotARecord, parse

    if form == "whole":
        yield {"key": None, "value": source.read()}
        return
    for line in source:
        if form == "json":
            if line.strip():
                yield parse(line)
            continue
        value = line.removesuffix(b"\n").removesuffix(b"\r")
        key = None
        if separator is not None:
            key, found, value = value.partition(separator)
            if not found:
                raise NotARecord(f"it has no {separator.decode()!r} between key and value")
        yield {"key": key, "value": value}


def _send(producer: Any, topic: str, value: bytes | None, key: bytes | None, options: Any, failures: list[str]) -> None:
    """Waits while the queue is full; gives up when a record failed meanwhile."""
    while not failures:
        try:
            producer.produce(topic, value, key, **options)
            return
        except BufferError:
            producer.poll(1.0)
