"""Reads for `odradek consume` with confluent-kafka: as a member of a group, or with settings of librdkafka.

Runs in the process of the command, in one thread.
"""

import time
from collections.abc import Callable
from typing import Any

from odradek._ext.records.record_printing import RecordPrinter
from odradek.cli.framework.client_library import error_text
from odradek.cli.framework.interrupt import Interruption
from odradek.cli.framework.output_pipe import check_output
from odradek.cli.records.reading import Ends, Keep
from odradek.topic_partition import TopicPartition

AT_ONCE = 1000
POLL_S = 0.2


class GroupConsumer:
    """Consumes records with librdkafka, writes them, and commits their offsets.

    :param confluent: the module `confluent_kafka`.
    :param keep: selects the records to write; None: all.
    :param limit: the maximum number of records to write; None: no limit.
    :param until_ms: a partition is read up to its first record of this time or later, in ms since 1970.
    :param ends: the ends to read to; None: read until the limit or a signal.
    :param commits: whether to commit the offsets of records that were written.
    """

    def __init__(
        self,
        confluent: Any,
        consumer: Any,
        printer: RecordPrinter,
        keep: Keep | None,
        limit: int | None,
        until_ms: int | None,
        ends: Ends | None,
        commits: bool,
    ) -> None:
        self._confluent = confluent
        self._consumer = consumer
        self._printer = printer
        self._keep = keep
        self._limit = limit
        self._until_ms = until_ms
        self._ends = ends
        self._commits = commits
        self._taken: dict[TopicPartition, int] = {}
        self._read: dict[TopicPartition, int] = {}
        self._done: set[TopicPartition] = set()
        self._pending = 0
        self._place: TopicPartition | None = None
        self.records = 0
        self.failure: str | None = None

    def run(
        self,
        write: Callable[[bytes], None],
        interruption: Interruption,
        timeout_s: float,
        follow: Callable[[], None],
    ) -> None:
        """Read until the ends, the limit, a failure (`failure`), or a signal.

        Raises ClientError; BrokenPipeError if nobody reads the output.

        :param timeout_s: with `ends`, the longest time without records before the ends are reached, in seconds.
        :param follow: called often; lets the consumer read topics and partitions that were created meanwhile.
        """
        heard = time.monotonic()
        while not self._over() and not interruption.signalled:
            check_output()
            follow()
            messages = self._consumer.consume(AT_ONCE if self._limit is None else min(AT_ONCE, self._limit), POLL_S)
            if messages:
                heard = time.monotonic()
            elif self._ends is not None and time.monotonic() - heard > timeout_s:
                self.failure = f"no records arrived for {timeout_s:g} s before the end of the topics was reached"
            for message in messages:
                self._take(message)
                if self._over():
                    break
            write(self._printer.take())
            self._written()
            if self._commits and messages:
                self._commit(asynchronous=True)

    def _written(self) -> None:
        """Allow the offsets of the records taken so far to be committed, because the records are written."""
        self.records += self._pending
        self._pending = 0
        self._read |= self._taken
        self._taken.clear()

    def _over(self) -> bool:
        at_limit = self._limit is not None and self.records + self._pending >= self._limit
        return at_limit or self.failure is not None or (self._ends is not None and self._ends.done)

    def _take(self, message: Any) -> None:
        error = message.error()
        place = message.topic(), message.partition()
        if error is not None:
            self._handle_error(place, message, error)
            return
        if place in self._done:
            return
        timestamp = message.timestamp()[1]
        if self._until_ms is not None and timestamp >= self._until_ms:
            self._done.add(place)
            if self._ends is not None:
                self._ends.drop(place)
            return
        key, value = message.key(), message.value()
        if self._keep is None or self._keep(key, value):
            if place != self._place:
                self._printer.set_partition(*place)
                self._place = place
            self._printer.add(message.offset(), timestamp, key, value, message.headers())
            self._pending += 1
        position = message.offset() + 1
        self._taken[place] = position
        if self._ends is not None:
            self._ends.reached({place: position})

    def _handle_error(self, place: TopicPartition, message: Any, error: Any) -> None:
        if error.code() == self._confluent.KafkaError._PARTITION_EOF:
            if self._ends is not None:
                self._ends.reached({place: message.offset()})
        elif not self._commits and error.code() == self._confluent.KafkaError.GROUP_AUTHORIZATION_FAILED:
            pass  # librdkafka looks for the coordinator of its group.id also if partitions are assigned without a group
        elif error.code() != self._confluent.KafkaError._ALL_BROKERS_DOWN and not error.retriable():
            self.failure = error_text(error)

    def _commit(self, asynchronous: bool) -> None:
        offsets = [self._confluent.TopicPartition(name, number, at) for (name, number), at in self._read.items()]
        if offsets:
            try:
                self._consumer.commit(offsets=offsets, asynchronous=asynchronous)
            except self._confluent.KafkaException as error:
                self.failure = (
                    self.failure
                    or f"cannot commit the offsets of the records that were read: {error_text(error.args[0])}"
                )
        self._read.clear()  # a later commit must not reset a partition that another member owns by then

    def finish(self) -> None:
        """Commit the offsets of the records written, and leave the group."""
        if self._commits and self._read:
            self._commit(asynchronous=False)
        self._consumer.close()
