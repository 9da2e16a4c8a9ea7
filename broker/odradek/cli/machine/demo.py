"""``odradek demo``: sends real files through a broker, reads them back, and compares every byte.

Runs in the process of the command; the broker is its child, on a free port with a temporary directory. The corpus is the
sources and documents of the installed Python. Each line (with its line end) is a record, whose key is the file. For each
file, the lines must come back unchanged and in order. confluent-kafka writes; kafka-python reads, with assigned partitions.
"""

import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from odradek.cli.framework.client_library import LONGEST_POLL_S, flush
from odradek.cli.framework.echo import echo
from odradek.cli.framework.interrupt import Interruption, without_interruption
from odradek.testing import Broker, BrokerError

INSTALL = "pip install 'confluent-kafka>=2.5' 'kafka-python>=2.1' (Odradek's extra `demo`)"

TOPIC = "python-files"
SUFFIXES = frozenset({".py", ".pyi", ".txt", ".rst", ".md", ".html", ".xml", ".h", ".c", ".cfg", ".toml"})
_STALL_SECONDS = 30.0

Corpus = dict[str, list[bytes]]


class DemoError(Exception):
    """The demo failed; one line."""


def collect(root: Path, limit_bytes: int) -> Corpus:
    """The lines of each file, in the order of the paths. A file that would exceed the limit, or is empty, is skipped.

    Raises DemoError if there is no file.
    """
    corpus: Corpus = {}
    size = 0
    for path in sorted(root.rglob("*")):
        if path.suffix not in SUFFIXES or "site-packages" in path.parts or not path.is_file():
            continue
        data = path.read_bytes()
        if data and size + len(data) <= limit_bytes:
            size += len(data)
            corpus[str(path.relative_to(root))] = data.splitlines(keepends=True)
    if not corpus:
        raise DemoError(f"no source files of Python found in {root}")
    return corpus


def compare(corpus: Corpus, received: Corpus) -> None:
    """Raise a DemoError that names the first file whose lines differ, are missing, or are too many."""
    for name, lines in corpus.items():
        read = received.get(name, [])
        if read == lines:
            continue
        at = next((n for n, (sent, back) in enumerate(zip(lines, read, strict=False)) if sent != back), None)
        if at is None:
            raise DemoError(f"{name}: sent {len(lines)} records, read {len(read)}")
        raise DemoError(f"{name}: record {at} was sent as {lines[at]!r} and read as {read[at]!r}")
    unknown = sorted(received.keys() - corpus.keys())
    if unknown:
        raise DemoError(f"read records that were not sent, with the key {unknown[0]!r}")


def produce(bootstrap_servers: str, corpus: Corpus) -> float:
    """Send the corpus with confluent-kafka and wait for the acknowledgements; return the seconds taken.

    Raises DemoError.
    """
    from confluent_kafka import Producer

    failures: list[str] = []

    def acknowledged(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(f"a record of {message.key().decode()} was not delivered: {error}")

    settings = {
        "bootstrap.servers": bootstrap_servers,
        "enable.idempotence": True,
        "linger.ms": 5,
        "log_level": 0,  # a demo that is interrupted stops its broker while the client is connected
        "queue.buffering.max.messages": 1_000_000,
        "message.timeout.ms": int(_STALL_SECONDS * 1000),
    }
    producer = without_interruption(lambda: Producer(settings))
    began = time.monotonic()
    with Interruption() as interruption:  # an exception in `acknowledged` would go through librdkafka
        for name, lines in corpus.items():
            key = name.encode()
            for number, line in enumerate(lines):
                _send(producer, key, line, acknowledged, interruption)
                if number % 1000 == 0:
                    producer.poll(0)
                    interruption.check()
        unsent = flush(producer, _STALL_SECONDS, interruption)
        interruption.check()
    if failures or unsent:
        raise DemoError(
            failures[0] if failures else f"{unsent} records were not acknowledged within {_STALL_SECONDS:g} s"
        )
    return time.monotonic() - began


def _send(producer: Any, key: bytes, line: bytes, acknowledged: Any, interruption: Interruption) -> None:
    """Queue a record, waiting while the queue is full. Raises DemoError after `_STALL_SECONDS` without progress."""
    last_progress = time.monotonic()
    while True:
        try:
            producer.produce(TOPIC, line, key, on_delivery=acknowledged)
            return
        except BufferError:
            interruption.check()
            if producer.poll(LONGEST_POLL_S):
                last_progress = time.monotonic()
            elif time.monotonic() - last_progress > _STALL_SECONDS:
                raise DemoError(f"nothing was acknowledged for {_STALL_SECONDS:g} s") from None


def consume(bootstrap_servers: str, partitions: int, records: int) -> tuple[Corpus, float]:
    """Read the topic from its beginning with kafka-python; return the lines by key, and the seconds taken.

    Reads up to the end offsets that the broker returns, whose sum must be ``records``. Raises DemoError.
    """
    from kafka.errors import KafkaError

    received: Corpus = {}
    began = time.monotonic()
    try:
        for record in _records(bootstrap_servers, partitions, records):
            received.setdefault(record.key.decode(), []).append(record.value)
    except KafkaError as error:
        raise DemoError(f"consume failed: {error!r}") from None
    return received, time.monotonic() - began


def _records(bootstrap_servers: str, partitions: int, expected: int) -> Iterator[Any]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=10_000,
        max_partition_fetch_bytes=4 << 20,
    )
    try:
        assignment = [TopicPartition(TOPIC, number) for number in range(partitions)]
        consumer.assign(assignment)
        consumer.seek_to_beginning(*assignment)
        ends = consumer.end_offsets(assignment)
        if sum(ends.values()) != expected:
            raise DemoError(f"sent {expected} records, the end offsets add up to {sum(ends.values())}")
        last_progress = time.monotonic()
        while any(consumer.position(partition) < ends[partition] for partition in assignment):
            batches = consumer.poll(timeout_ms=1000)
            if batches:
                last_progress = time.monotonic()
            elif time.monotonic() - last_progress > _STALL_SECONDS:
                raise DemoError(f"no records arrived for {_STALL_SECONDS:g} s before the end of the topic was reached")
            for batch in batches.values():
                yield from batch
    finally:
        consumer.close()


def run_demo(limit_bytes: int, partitions: int) -> None:
    """Run the demo, and print a line for each step. Raises DemoError."""
    try:
        import confluent_kafka
        import kafka
    except ImportError as error:
        raise DemoError(f"the demo needs {error.name}, which is not installed: {INSTALL}") from None
    root = Path(sysconfig.get_paths()["stdlib"])
    corpus = collect(root, limit_bytes)
    records = sum(map(len, corpus.values()))
    size = sum(len(line) for lines in corpus.values() for line in lines)
    echo(f"corpus    {len(corpus):,} files of {root}: {records:,} records, {size / 1e6:.1f} MB")
    try:
        with Broker(topics={TOPIC: partitions}) as broker:
            echo(f"broker    process {broker.pid} on {broker.bootstrap_servers}, ready in {broker.start_seconds:.2f} s")
            seconds = produce(broker.bootstrap_servers, corpus)
            _print_rates("produced", records, size, seconds, f"confluent-kafka {confluent_kafka.__version__}, acks=all")
            received, seconds = consume(broker.bootstrap_servers, partitions, records)
            client = f"kafka-python {kafka.__version__}, all in Python, limits this rate, not the broker"
            _print_rates("consumed", records, size, seconds, client)
            compare(corpus, received)
            echo(f"compared  {records:,} records: every byte and the order within each file are equal")
            echo(
                f"memory    {broker.pss_bytes() / 1e6:.1f} MB in {len(broker.process_ids())} processes (proportional set size)"
            )
            began = time.monotonic()
            broker.stop()
            echo(f"stopped   in {time.monotonic() - began:.2f} s")
    except BrokerError as error:
        raise DemoError(error) from None


def _print_rates(step: str, records: int, size: int, seconds: float, client: str) -> None:
    rates = f"{size / 1e6 / seconds:.1f} MB/s, {records / seconds:,.0f} records/s"
    echo(f"{step}  {records:,} records in {seconds:.2f} s: {rates} ({client})")
