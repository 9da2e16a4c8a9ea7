"""Reads for `odradek consume` without a group: from the leaders of the partitions, with this program's own client.

Runs in the process of the command, in one thread.
"""

import os
import select
import time
from collections.abc import Callable, Iterator

from odradek._ext.records.fetched_records import CorruptRecordsError, RecordReader
from odradek._ext.records.record_printing import RecordPrinter
from odradek.cli.framework.failure import fail
from odradek.cli.framework.interrupt import Interruption
from odradek.cli.framework.output_pipe import check_output, output_pipes
from odradek.cli.records.reading import Ends, Keep
from odradek.clients.errors import ClientError
from odradek.clients.fetching import FetchedRecords, Fetcher
from odradek.clients.wire import Readable
from odradek.printable import several_lines
from odradek.storage import compression, old_messages
from odradek.topic_partition import TopicPartition

POLL_S = 1.0
MOST_DECOMPRESSED_BYTES = 1 << 30
"""Limit of the size of one batch after decompression."""


def output_to(descriptor: int, interruption: Interruption) -> Callable[[bytes], None]:
    """Return a function that writes all bytes passed to it. A signal interrupts a write that blocks on a slow reader.

    On a terminal, control characters of the records are escaped; everything else receives the very bytes.

    The function ends the command if the bytes cannot be written, and raises BrokenPipeError if the reader of the pipe has
    ended.
    """

    on_terminal = os.isatty(descriptor)

    def write(data: bytes) -> None:
        left = memoryview(for_terminal(data) if on_terminal else data)
        with interruption.at_once():
            while left:
                try:
                    left = left[os.write(descriptor, left) :]
                except BlockingIOError:  # another process has made the descriptor non-blocking
                    select.select([], [descriptor], [])
                except BrokenPipeError:
                    raise
                except OSError as error:
                    fail(f"cannot write the records: {error.strerror}")

    return write


def for_terminal(data: bytes) -> bytes:
    """Records as a terminal shows them: without control characters, and with what is not UTF-8 as escapes."""
    return several_lines(data.decode(errors="backslashreplace")).encode()


def record_reader(
    printer: RecordPrinter,
    write: Callable[[bytes], None],
    keep: Keep | None,
    limit: int | None,
    until_ms: int | None,
    committed_only: bool,
) -> RecordReader:
    """The reader of fetched batches; parameters are those of `RecordReader`."""
    return RecordReader(
        printer,
        write,
        keep=keep,
        limit=limit,
        until_ms=until_ms,
        committed_only=committed_only,
        decompress=lambda codec, data: compression.decompress(codec, data, MOST_DECOMPRESSED_BYTES),
        open_old=lambda data: old_messages.read_message(data)[0].opened(
            MOST_DECOMPRESSED_BYTES, old_messages.MOST_MESSAGES
        ),
    )


class DirectConsumer:
    """Fetches records and writes them.

    :param positions: the start offset of each partition.
    :param ends: the ends to read to; None: read until the limit or a signal.
    :param new: called often; returns the start offsets of partitions to read from now on. Raises ClientError.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        reader: RecordReader,
        positions: dict[TopicPartition, int],
        ends: Ends | None,
        new: Callable[[], dict[TopicPartition, int]] = dict,
    ) -> None:
        self._fetcher = fetcher
        self._reader = reader
        self._positions = dict(positions)
        self._ends = ends
        self._new = new
        for place, position in positions.items():
            self._reached(place, position)

    @property
    def records(self) -> int:
        """Number of records written."""
        return int(self._reader.records)

    def run(self, interruption: Interruption, timeout_s: float) -> None:
        """Read until the ends, the limit, or a signal. Raises ClientError; BrokenPipeError if nobody reads the output.

        :param timeout_s: with `ends`, the longest time without records before the ends are reached, in seconds.
        """
        heard = time.monotonic()
        wake: list[Readable] = [interruption, *output_pipes()]
        while not self._over() and not interruption.signalled:
            self._add_new(interruption)
            try:
                responses = self._fetcher.poll(POLL_S, wake)
                while (fetched := _next(responses, interruption)) is not None:
                    heard = time.monotonic()
                    position = self._read(fetched.place, fetched.records, fetched.aborted)
                    self._reached(fetched.place, position)
                    if self._over() or interruption.signalled:
                        break
            except CorruptRecordsError as error:
                raise ClientError(str(error)) from None
            finally:
                self._reader.flush()
            check_output()
            if self._ends is not None and not self._over() and time.monotonic() - heard > timeout_s:
                raise ClientError(f"no records arrived for {timeout_s:g} s before the end of the topics was reached")

    def _add_new(self, interruption: Interruption) -> None:
        with interruption.at_once():
            new = self._new()
        if new:
            self._positions |= new
            self._fetcher.add(new)

    def _over(self) -> bool:
        return bool(self._reader.full) or not self._positions or (self._ends is not None and self._ends.done)

    def _read(self, place: TopicPartition, records: memoryview, aborted: list[tuple[int, int]]) -> int:
        end = None if self._ends is None else self._ends.of_place(place)
        return int(self._reader.read(*place, records, self._positions[place], end, aborted))

    def _reached(self, place: TopicPartition, position: int) -> None:
        """Continue the partition at `position`, or stop fetching it if it is read up to its end."""
        self._positions[place] = position
        self._fetcher.advance(place, position)
        if self._ends is None:
            return
        self._ends.reached({place: position})
        if self._reader.ended:
            self._ends.drop(place)
        if self._ends.of_place(place) is None:
            del self._positions[place]
            self._fetcher.drop(place)


def _next(responses: Iterator[FetchedRecords], interruption: Interruption) -> FetchedRecords | None:
    """The next response, or None. A signal interrupts the wait for a slow broker."""
    with interruption.at_once():
        return next(responses, None)
