"""Sends the input of `odradek produce` with confluent-kafka, if settings of librdkafka (`-X`) are given.

Runs in the process of the command. Signals are deferred while librdkafka runs, because an exception in a callback would get
lost there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import IO, Any

from odradek.cli.framework.client_library import LONGEST_POLL_S, client_config, error_text, flush, library
from odradek.cli.framework.failure import fail
from odradek.cli.framework.interrupt import Interruption, interrupt_note, without_interruption
from odradek.cli.framework.output import count, input_progress
from odradek.cli.records.produce_options import ProduceOptions
from odradek.cli.records.record_json import InvalidRecordError, parse

POLL_EVERY = 1000
AFTER_SIGNAL_S = 5.0
"""How long the command waits for acknowledgements after the first signal."""
Arguments = dict[str, Any]
DEFAULT_TRANSACTION_TIMEOUT_MS = 60_000
"""librdkafka's default."""
SHORTEST_TRANSACTION_TIMEOUT_MS = 1000
"""librdkafka refuses shorter ones."""
NO_REASON = "librdkafka does not say why: without -X, this command shows the broker's last error"
FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


def send(
    servers: str, timeout: float, topic: str, source: IO[bytes], options: ProduceOptions, extra: dict[str, str]
) -> tuple[int, int]:
    """Send the input; return the number of records and the bytes of their keys and values.

    With the setting transactional.id, the whole input is one transaction. Ends the command if some records are not
    acknowledged.
    """
    confluent = library()
    settings = client_config(servers, extra) | {"compression.type": options.compression, "acks": options.acks}
    settings.setdefault("linger.ms", 5)
    if "transactional.id" in settings:
        _check_transaction(settings, int(timeout * 1000))
    settings.setdefault("message.timeout.ms", int(timeout * 1000))
    settings.setdefault("queue.buffering.max.messages", 200_000)
    try:
        producer = without_interruption(lambda: confluent.Producer(settings))
    except confluent.KafkaException as error:
        fail(f"librdkafka rejected the settings: {error_text(error.args[0])}; they are {_listed(extra)}")
    except (ValueError, TypeError) as error:
        fail(f"librdkafka rejected the settings: {error}")
    sender = LibrarySender(producer, topic, timeout)
    with interrupt_note(sender.so_far), Interruption() as interruption:
        try:
            with _transaction(producer, sender) if "transactional.id" in settings else nullcontext():
                _send_all(producer, sender, source, options, interruption)
        except confluent.KafkaException as error:
            fail(f"the transaction failed: {_transaction_error(error.args[0], settings)}; {sender.so_far()}")
    return sender.acknowledged, sender.size


def _listed(extra: dict[str, str]) -> str:
    """Settings as text; values of passwords are omitted."""
    return ", ".join(key if "password" in key or "secret" in key else f"{key}={value}" for key, value in extra.items())


def _check_transaction(settings: dict[str, Any], wait_ms: int) -> None:
    """Check the settings of a transaction, and set the defaults that depend on its timeout. Ends the command if one is wrong.

    :param wait_ms: how long records may remain without an acknowledgement.
    """
    if settings["acks"] not in ("all", "-1"):
        fail(f"a transaction needs --acks all, not --acks {settings['acks']}")
    value = settings.setdefault("transaction.timeout.ms", str(DEFAULT_TRANSACTION_TIMEOUT_MS))
    if not value.isdecimal() or int(value) < SHORTEST_TRANSACTION_TIMEOUT_MS:
        fail(
            f"transaction.timeout.ms={value} is not valid: give a number of milliseconds,"
            f" {SHORTEST_TRANSACTION_TIMEOUT_MS} or more"
        )
    message = settings.setdefault("message.timeout.ms", str(min(wait_ms, int(value))))
    if message.isdecimal() and int(message) > int(value):
        fail(
            f"message.timeout.ms={message} is longer than transaction.timeout.ms={value}: make it shorter, or leave it out"
        )


def _transaction_error(error: Any, settings: dict[str, Any]) -> str:
    """A failure of a transaction. A producer whose transaction timed out receives the error of a fenced producer."""
    if error.name() == "INVALID_TRANSACTION_TIMEOUT":
        from odradek.clients import transactions

        return (
            f"transaction.timeout.ms={settings['transaction.timeout.ms']} is longer than {transactions.MAX_TIMEOUT_KEY} of the"
            f" broker, by default {transactions.DEFAULT_MAX_TIMEOUT_MS}: add -X transaction.timeout.ms=... with a shorter time"
        )
    if error.name() in FENCED:
        return (
            f"another producer has used transactional.id={settings['transactional.id']}, or the transaction took longer than"
            f" transaction.timeout.ms={settings['transaction.timeout.ms']} ({error.name().lstrip('_')})"
        )
    return error_text(error)


def _send_all(
    producer: Any, sender: "LibrarySender", source: IO[bytes], options: ProduceOptions, interruption: Interruption
) -> None:
    """Send the input and wait for the acknowledgements. Ends the command if some records are not acknowledged."""
    from confluent_kafka import KafkaException

    try:
        with input_progress("sending", source, "records") as advance:
            sender.run(source, options, interruption, advance)
    except InvalidRecordError as error:
        flush(producer, sender.timeout, interruption, AFTER_SIGNAL_S)
        fail(f"line {sender.read + 1} of the input is not valid: {error}; {sender.so_far()}")
    except KafkaException as error:
        fail(f"record {sender.read + 1} was not sent: {error_text(error.args[0])}; {sender.so_far()}")
    interruption.check()
    if sender.failures:
        why = sender.failures[0]
        if "MSG_TIMED_OUT" in why:
            why += f"; {NO_REASON}"
        fail(f"sending failed for {count(len(sender.failures), 'record')}: {why}; {sender.so_far()}")
    if len(producer):
        fail(f"some records were not acknowledged within {sender.timeout:g} s; {NO_REASON}; {sender.so_far()}")


@contextmanager
def _transaction(producer: Any, sender: "LibrarySender") -> Iterator[None]:
    """Commit a transaction at the end of the context; abort it if the context ends by an exception, for example that of `fail`.

    Raises KafkaException.
    """
    producer.init_transactions(sender.timeout)
    producer.begin_transaction()
    sender.outcome = "in a transaction that was not committed"
    try:
        yield
    except BaseException:
        with suppress(Exception):  # without this abort, the coordinator aborts the transaction after its timeout
            producer.abort_transaction(sender.timeout)
        raise
    producer.commit_transaction(sender.timeout)
    sender.outcome = ""


class LibrarySender:
    """Reads records from an input and sends them with librdkafka.

    :param timeout: seconds to wait for the last acknowledgements.
    :ivar outcome: the outcome of the transaction of the records, for messages; "" without a transaction, or after its commit.
    """

    def __init__(self, producer: Any, topic: str, timeout: float) -> None:
        self._producer = producer
        self._topic = topic
        self.timeout = timeout
        self.outcome = ""
        self.read = self.acknowledged = self.size = 0
        self.failures: list[str] = []

    def so_far(self) -> str:
        """How many records were sent, and how many more are not acknowledged."""
        unknown = self.read - self.acknowledged
        sent = f"{count(self.acknowledged, 'record')} sent to {self._topic}"
        sent += f", {unknown:,} more not acknowledged" if unknown else ""
        return f"{sent}, {self.outcome}" if self.outcome else sent

    def run(
        self, source: IO[bytes], options: ProduceOptions, interruption: Interruption, advance: Callable[[int], None]
    ) -> None:
        """Send until the end of the input, a signal, or a failed record; then wait for the acknowledgements.

        Raises InvalidRecordError, KafkaException.
        """
        records = _records(source, options)
        while not interruption.signalled and not self.failures and (record := _next(records, interruption)) is not None:
            value = None if options.empty_is_null and not record["value"] else record["value"]
            key = options.key if options.key is not None else record["key"]
            arguments = _arguments(record, options) | {"on_delivery": self._delivered}
            self._send(value, key, arguments, interruption)
            self.read += 1
            self.size += len(value or b"") + len(key or b"")
            if self.read % POLL_EVERY == 0:
                self._producer.poll(0)
                advance(POLL_EVERY)
        flush(self._producer, self.timeout, interruption, AFTER_SIGNAL_S)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failures.append(error_text(error))

    def _send(self, value: bytes | None, key: bytes | None, arguments: Arguments, interruption: Interruption) -> None:
        """Queue a record, waiting while the queue is full; return without it after a failed record or a signal."""
        while not self.failures and not interruption.signalled:
            try:
                self._producer.produce(self._topic, value, key, **arguments)
                return
            except BufferError:
                self._producer.poll(LONGEST_POLL_S)


def _next(records: Iterator[dict[str, Any]], interruption: Interruption) -> dict[str, Any] | None:
    """The next record; None at the end of the input, or if a signal arrives while waiting for input."""
    try:
        with interruption.at_once():
            return next(records, None)
    except KeyboardInterrupt:
        return None


def _arguments(record: dict[str, Any], options: ProduceOptions) -> Arguments:
    arguments: Arguments = {}
    if options.partition is not None:
        arguments["partition"] = options.partition
    if record.get("timestamp") is not None:
        arguments["timestamp"] = record["timestamp"]
    headers = options.headers + record.get("headers", [])
    if headers:
        arguments["headers"] = headers
    return arguments


def _records(source: IO[bytes], options: ProduceOptions) -> Iterator[dict[str, Any]]:
    """The records of the input. Raises InvalidRecordError."""
    if options.form == "whole":
        yield {"key": None, "value": source.read()}
        return
    for line in source:
        if options.form == "json":
            if line.strip():
                yield parse(line)
            continue
        value = line.removesuffix(b"\n").removesuffix(b"\r")
        key = None
        if options.separator is not None:
            key, separator, value = value.partition(options.separator)
            if not separator:
                raise InvalidRecordError(f"the line has no {options.separator.decode()!r} between key and value")
        yield {"key": key, "value": value}
