"""One of MirrorMaker 2's internal topics: created as MirrorMaker 2 creates it, written with acks=all, read from its beginning.

Used in one thread: that of a flow, or that of `odradek mirror switch`. After a ClientError, requests may still be
unanswered: close the cluster, and use a new `InternalTopic` with a new cluster.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from odradek._ext.records.batch_builder import BatchBuilder
from odradek.clients import topics
from odradek.clients.cluster import Cluster
from odradek.clients.errors import RefusedError
from odradek.clients.producing import Sender
from odradek.clients.wire import which_readable
from odradek.mirror import committed
from odradek.mirror.records import MirrorRecordError
from odradek.protocol.errors import ErrorCode

SETTINGS = {"cleanup.policy": "compact"}
PARTITIONS = 1
BATCH_BYTES = 256 << 10
KeyValue = tuple[bytes, bytes]
AnyRecord = TypeVar("AnyRecord")
log = logging.getLogger("odradek.mirror")


def _seal(builder: BatchBuilder, producer_id: int, epoch: int, sequence: int) -> bytes:
    data: bytes = builder.finish(0, None, producer_id, epoch, sequence)
    return data


class InternalTopic:
    """A topic with one partition and cleanup.policy=compact.

    :param replication_factor: for its creation; -1: the cluster's default.
    """

    def __init__(self, cluster: Cluster, name: str, replication_factor: int) -> None:
        self._cluster = cluster
        self.name = name
        self._replication_factor = replication_factor
        self._sender: Sender | None = None

    def create(self) -> None:
        """Create the topic unless it exists. Raises RefusedError, ClientError."""
        if self.name in self._cluster.metadata([self.name]).topics:
            return
        try:
            topics.create(self._cluster, self.name, PARTITIONS, self._replication_factor, SETTINGS)
        except RefusedError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise RefusedError(error.code, error.reason, f"topic '{self.name}' cannot be created") from None

    def write(self, records: Iterable[KeyValue]) -> int:
        """Append the records, in order, and wait for the acknowledgements; return their number. Raises ClientError.

        A failed call may have appended some of them, in order.
        """
        if self._sender is None:
            self.create()
            self._sender = Sender(
                self._cluster,
                self.name,
                PARTITIONS,
                -1,
                self._cluster.timeout_s,
                _seal,
                lambda line: log.warning("%s", line),
            )
        now_ms, total = int(time.time() * 1000), 0
        builder = BatchBuilder()
        for key, value in records:
            builder.add(key, value, now_ms)
            total += 1
            if builder.size >= BATCH_BYTES:
                self._sender.put(0, builder)
                builder = BatchBuilder()
        if builder.count:
            self._sender.put(0, builder)
        while self._sender.waiting_records:
            wait_s = self._sender.send()
            for connection in which_readable(self._sender.connections, wait_s):
                self._sender.receive(connection)
        return total

    def read(self, decoder: Callable[[bytes | None, bytes | None], AnyRecord]) -> Iterator[AnyRecord]:
        """Yield the decoded records from the beginning to the present end; nothing if the topic does not exist.

        Tombstones are skipped. Raises MirrorRecordError for other records that `decoder` refuses, ClientError.
        """
        for record, _ in self.read_timed(decoder):
            yield record

    def read_timed(self, decoder: Callable[[bytes | None, bytes | None], AnyRecord]) -> Iterator[tuple[AnyRecord, int]]:
        """As `read`, with the timestamp of each record in ms since 1970."""
        view = self._cluster.metadata([self.name])
        if self.name not in view.topics:
            return
        for partition in view.topics[self.name].partitions:
            place = (self.name, partition.number)
            start, end = committed.bounds(self._cluster, place)
            for batch in committed.read(self._cluster, place, start, end):
                for record in batch.records():
                    if record.value is None:
                        continue
                    try:
                        decoded = decoder(record.key, record.value)
                    except MirrorRecordError as error:
                        raise MirrorRecordError(f"{self.name} at offset {record.offset}: {error}") from None
                    yield decoded, record.timestamp
