"""What `odradek produce` does with its input where settings of librdkafka were given: confluent-kafka sends the records.

In the process of the command. A signal is held back while librdkafka works, where an exception in a callback would get lost.
"""

import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

from odradek.cli.client_library import LONGEST_POLL_S, client_config, flush, in_words, library
from odradek.cli.failure import fail
from odradek.cli.interrupt import Interruption, noting
from odradek.cli.output import count, progress
from odradek.cli.produce import Given
from odradek.cli.record_json import NotARecord, parse

POLL_EVERY = 1000
AFTER_SIGNAL_S = 5.0
"""How long answers are waited for after the first signal."""
Options = dict[str, Any]


def send(
    servers: str, timeout: float, topic: str, source: IO[bytes], given: Given, extra: dict[str, str]
) -> tuple[int, int]:
    """Records acknowledged, and bytes of their keys and values. Ends the command if some are not."""
    confluent = library()
    settings = client_config(servers, extra) | {"compression.type": given.compression, "acks": given.acks}
    settings.setdefault("linger.ms", 5)
    settings.setdefault("message.timeout.ms", int(timeout * 1000))
    settings.setdefault("queue.buffering.max.messages", 200_000)
    try:
        producer = confluent.Producer(settings)
    except (confluent.KafkaException, ValueError, TypeError) as error:
        fail(f"librdkafka does not take these settings: {error}")
    sending = LibrarySending(producer, topic, timeout)
    with noting(sending.so_far), Interruption() as interruption:
        try:
            with progress("sending", None, "records", hidden=sys.stdin.isatty()) as advance:
                sending.run(source, given, interruption, advance)
        except NotARecord as error:
            flush(producer, timeout, interruption, AFTER_SIGNAL_S)
            fail(f"line {sending.read + 1} of the input was not sent: {error}; {sending.so_far()}")
        except confluent.KafkaException as error:
            fail(f"record {sending.read + 1} was not sent: {in_words(error.args[0])}; {sending.so_far()}")
        interruption.check()
    if sending.failures:
        fail(f"{count(len(sending.failures), 'record')} were refused: {sending.failures[0]}; {sending.so_far()}")
    if len(producer):
        fail(f"not everything was acknowledged within {timeout:g} s; --timeout allows more; {sending.so_far()}")
    return sending.acknowledged, sending.size


class LibrarySending:
    """:param timeout: in seconds, for the last acknowledgements."""

    def __init__(self, producer: Any, topic: str, timeout: float) -> None:
        self._producer = producer
        self._topic = topic
        self._timeout = timeout
        self.read = self.acknowledged = self.size = 0
        self.failures: list[str] = []

    def so_far(self) -> str:
        """What was done."""
        unknown = self.read - self.acknowledged
        said = f"{count(self.acknowledged, 'record')} sent to {self._topic}"
        return said + (f", {unknown:,} more not acknowledged" if unknown else "")

    def run(self, source: IO[bytes], given: Given, interruption: Interruption, advance: Callable[[int], None]) -> None:
        """Until the input's end, a signal, or a record that is refused; then until all are answered.

        Raises NotARecord, KafkaException.
        """
        records = _records(source, given)
        while not interruption.wanted and not self.failures and (record := _next(records, interruption)) is not None:
            value = None if given.empty_is_null and not record["value"] else record["value"]
            key = given.key if given.key is not None else record["key"]
            self._send(value, key, _options(record, given) | {"on_delivery": self._delivered}, interruption)
            self.read += 1
            self.size += len(value or b"") + len(key or b"")
            if self.read % POLL_EVERY == 0:
                self._producer.poll(0)
                advance(POLL_EVERY)
        flush(self._producer, self._timeout, interruption, AFTER_SIGNAL_S)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(in_words(error))

    def _send(self, value: bytes | None, key: bytes | None, options: Options, interruption: Interruption) -> None:
        """Waits while the queue is full; gives up when a record was refused meanwhile, or a signal has come."""
        while not self.failures and not interruption.wanted:
            try:
                self._producer.produce(self._topic, value, key, **options)
                return
            except BufferError:
                self._producer.poll(LONGEST_POLL_S)


def _next(records: Iterator[dict[str, Any]], interruption: Interruption) -> dict[str, Any] | None:
    """The next record; None at the end, or if a signal comes while the input is waited for."""
    try:
        with interruption.at_once():
            return next(records, None)
    except KeyboardInterrupt:
        return None


def _options(record: dict[str, Any], given: Given) -> Options:
    options: Options = {}
    if given.partition is not None:
        options["partition"] = given.partition
    if record.get("timestamp") is not None:
        options["timestamp"] = record["timestamp"]
    headers = given.headers + record.get("headers", [])
    if headers:
        options["headers"] = headers
    return options


def _records(source: IO[bytes], given: Given) -> Iterator[dict[str, Any]]:
    """Raises NotARecord for a line that is none."""
    if given.form == "whole":
        yield {"key": None, "value": source.read()}
        return
    for line in source:
        if given.form == "json":
            if line.strip():
                yield parse(line)
            continue
        value = line.removesuffix(b"\n").removesuffix(b"\r")
        key = None
        if given.separator is not None:
            key, found, value = value.partition(given.separator)
            if not found:
                raise NotARecord(f"it has no {given.separator.decode()!r} between key and value")
        yield {"key": key, "value": value}
