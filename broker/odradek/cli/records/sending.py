"""Sends the input of `odradek produce`, as lines, JSON or one record, in batches to the leaders of a topic.

Runs in the process of the command, in one thread, which waits for input and responses at the same time. A batch is sent when
it is full, when the input pauses, or when the batch has waited for `LONGEST_LINGER_S`. With librdkafka (`-X`),
`library_sending` is used instead.
"""

import os
import time
from collections.abc import Callable
from typing import IO

from odradek._ext.records.line_batches import MissingSeparatorError, RecordBatches
from odradek.cli.framework.interrupt import Interruption
from odradek.cli.records.record_json import InvalidRecordError, parse
from odradek.clients.producing import Sender
from odradek.clients.wire import Readable, which_readable
from odradek.clock import now_ms

CHUNK_BYTES = 1 << 20
MOST_WAITING_BYTES = 16 << 20
"""Limit of the bytes that are batched or not acknowledged; above it no input is read."""
MOST_LINE_BYTES = 100 << 20
"""Limit of a line, or of an input that is one record: the largest request that a broker accepts
(`socket.request.max.bytes`)."""
LINGER_S, LONGEST_LINGER_S = 0.005, 0.05
"""How long a batch may wait to become full: while the input pauses, and while input arrives."""
AFTER_SIGNAL_S = 5.0
"""How long the command waits for responses after the first signal."""
LONGEST_AFTER_SIGNAL_S = 6.0
"""How long after the first signal the command ends even if it is blocked sending to a broker that does not read."""


class Input:
    """Reads a file, a pipe or a terminal in whole lines."""

    def __init__(self, source: IO[bytes]) -> None:
        self._descriptor = source.fileno()
        self._rest = bytearray()
        self.ended = False

    def fileno(self) -> int:
        """A descriptor that is readable at input and at its end."""
        return self._descriptor

    def read(self) -> bytes | bytearray:
        """The complete lines that have arrived; once `ended`, the last one may lack its line end. Raises InvalidRecordError."""
        try:
            chunk = os.read(self._descriptor, CHUNK_BYTES)
        except BlockingIOError:  # another process has made the descriptor non-blocking
            return b""
        if not chunk:
            self.ended = True
            return self._rest
        cut = chunk.rfind(b"\n") + 1
        lines: bytes | bytearray = chunk[:cut]
        if cut and self._rest:
            self._rest += lines
            lines, self._rest = self._rest, bytearray()
        self._rest += chunk[cut:]
        if len(self._rest) > MOST_LINE_BYTES:
            raise InvalidRecordError(f"the record is longer than {MOST_LINE_BYTES:,} bytes")
        return lines

    def end(self) -> None:
        """Stop reading."""
        self.ended = True


class InputSender:
    """Reads records from an input and sends them.

    :param form: lines, json or whole.
    :param advance: called with the number of records that were read since the last call.
    """

    def __init__(
        self,
        source: IO[bytes],
        form: str,
        batches: RecordBatches,
        sender: Sender,
        interruption: Interruption,
        advance: Callable[[int], None],
    ) -> None:
        self._input = Input(source)
        self._add = {"lines": self._add_lines, "json": self._add_json, "whole": self._add_whole}[form]
        self._batches = batches
        self._sender = sender
        self._interruption = interruption
        self._advance = advance
        self._whole = bytearray()
        self._lines = 0
        self._partial_since: float | None = None
        self.failure: str | None = None

    def run(self) -> None:
        """Send until the end of the input, the first invalid line (`failure`), or a signal; then wait for acknowledgements.

        After a signal it waits at most `AFTER_SIGNAL_S`. Raises ClientError.
        """
        give_up_at: float | None = None
        while not self._input.ended or self._batches.size or self._sender.waiting_records:
            pause = self._sender.send()
            if give_up_at is not None:
                if time.monotonic() > give_up_at:
                    return
                pause = max(0.0, min(AFTER_SIGNAL_S if pause is None else pause, give_up_at - time.monotonic()))
            if self._partial_since is not None:
                linger = max(0.0, self._partial_since + LINGER_S - time.monotonic())
                pause = linger if pause is None else min(pause, linger)
            sources: list[Readable] = [*self._sender.connections]
            if not self._input.ended and self._waiting_bytes <= MOST_WAITING_BYTES:
                sources.append(self._input)
            if not self._interruption.signalled:
                sources.append(self._interruption)
            buffered = [connection for connection in self._sender.connections if connection.buffered]
            ready = which_readable(sources, 0 if buffered else pause)
            ready += [connection for connection in buffered if connection not in ready]
            if self._interruption.signalled and give_up_at is None:
                give_up_at = time.monotonic() + AFTER_SIGNAL_S
                self._input.end()
            for connection in [connection for connection in self._sender.connections if connection in ready]:
                self._sender.receive(connection)
            if self._input in ready and not self._input.ended:
                self._read()
            self._hand_over(paused=self._input not in ready)

    @property
    def _waiting_bytes(self) -> int:
        return self._batches.size + self._sender.waiting_bytes

    def _read(self) -> None:
        before = self._batches.records
        try:
            self._add(self._input.read())
        except (InvalidRecordError, MissingSeparatorError) as error:
            self.failure = f"line {self._lines + 1} of the input is not valid: {error}"
            self._input.end()
        self._advance(self._batches.records - before)

    def _hand_over(self, paused: bool) -> None:
        """Pass full batches to the sender; also partial ones if they have waited long enough, or at `MOST_WAITING_BYTES`."""
        now = time.monotonic()
        since = self._partial_since if self._partial_since is not None else now
        partial = self._input.ended or now - since >= (LINGER_S if paused else LONGEST_LINGER_S)
        for partition, builder in self._batches.take(partial or self._waiting_bytes > MOST_WAITING_BYTES):
            self._sender.put(partition, builder)
        self._partial_since = since if self._batches.size else None

    def _add_lines(self, lines: bytes | bytearray) -> None:
        before = self._batches.records
        try:
            self._batches.add_lines(lines, now_ms())
        finally:
            self._lines += self._batches.records - before

    def _add_json(self, lines: bytes | bytearray) -> None:
        now = now_ms()
        parts = lines.split(b"\n")
        if not parts[-1]:
            parts.pop()  # the empty part after the last line end
        for line in parts:
            if line.strip():
                record = parse(bytes(line))
                at = record["timestamp"]
                self._batches.add(record["key"], record["value"], now if at is None else at, record["headers"])
            self._lines += 1

    def _add_whole(self, data: bytes | bytearray) -> None:
        self._whole += data
        if len(self._whole) > MOST_LINE_BYTES:
            raise InvalidRecordError(f"the record is longer than {MOST_LINE_BYTES:,} bytes")
        if self._input.ended:
            self._batches.add(None, bytes(self._whole), now_ms())
