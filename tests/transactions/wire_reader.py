"""A consumer that assigns itself partitions and speaks the protocol itself; it drops aborted records as Kafka's
consumers do.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch, list_offsets, offset_fetch
from odradek.storage.batch import ABORT, END_TXN_KEY, CorruptBatchError, RecordBatch, read_batch
from tests.transactions.checker.history import Place, Poll, Record, Value
from tests.transactions.wire_calls import (
    GROUP,
    MOVED,
    Address,
    Calls,
    Connections,
    LostError,
    NotSentError,
    RefusedError,
    Routes,
    Timing,
)

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FETCH_VERSION, LIST_VERSION, OFFSET_FETCH_VERSION = 11, 7, 8
LATEST = -1
MAX_BYTES = 1 << 20
_HEAD = 12  # offset and length of a batch


class WireReader:
    """Reads partitions from their positions on. Belongs to one thread."""

    def __init__(
        self,
        routes: Routes,
        places: Iterable[Place],
        timing: Timing,
        isolation: int = READ_COMMITTED,
        wait_ms: int = 50,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.positions = dict.fromkeys(places, 0)
        self._routes = routes
        self._connections = Connections(timing.answer_s + wait_ms / 1000)
        self._calls = Calls(routes, timing)
        self._isolation = isolation
        self._wait_ms = wait_ms
        self._max_bytes = max_bytes

    def close(self) -> None:
        self._connections.close()
        self._routes.close()

    def poll(self) -> list[Poll]:
        """Ask each leader once; what came. Errors that pass are ignored: the next poll asks again."""
        found: list[Poll] = []
        try:
            by_leader: dict[Address, list[Place]] = {}
            for place in self.positions:
                by_leader.setdefault(self._routes.leader(place), []).append(place)
            for address, places in by_leader.items():
                answer = self._connections.ask(address, self._request(places), fetch.API_KEY, FETCH_VERSION)
                received_ns = time.monotonic_ns()
                for topic in answer.responses:
                    for part in topic.partitions:
                        place = Place(topic.topic, part.partition_index)
                        if records := self._take(place, part):
                            found.append(Poll(place, records, received_ns))
        except (NotSentError, LostError):
            self._routes.forget()
            time.sleep(0.02)
        return found

    def _request(self, places: list[Place]) -> Any:
        make = fetch.Request
        topics: dict[str, list[Any]] = {}
        for place in places:
            one = make.FetchPartition(
                partition=place.partition, fetch_offset=self.positions[place], partition_max_bytes=self._max_bytes
            )
            topics.setdefault(place.topic, []).append(one)
        return make(
            replica_id=-1,
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            isolation_level=self._isolation,
            topics=[make.FetchTopic(topic=name, partitions=parts) for name, parts in topics.items()],
        )

    def _take(self, place: Place, part: Any) -> list[Record]:
        if part.error_code:
            if part.error_code in MOVED:
                self._routes.forget()
            elif not ErrorCode(part.error_code).retriable:
                raise RefusedError(part.error_code, f"Fetch of {place} from offset {self.positions[place]}")
            return []
        records, position = committed_records(
            bytes(part.records or b""),
            self.positions[place],
            [(one.first_offset, one.producer_id) for one in part.aborted_transactions or ()],
        )
        self.positions[place] = position
        return records

    def end(self, place: Place, isolation: int) -> int:
        """The end of a partition: the high watermark, or the last stable offset. Raises RefusedError or TooLateError."""
        make = list_offsets.Request
        one = make.ListOffsetsPartition(partition_index=place.partition, timestamp=LATEST)
        request = make(
            replica_id=-1,
            isolation_level=isolation,
            topics=[make.ListOffsetsTopic(name=place.topic, partitions=[one])],
        )
        answer = self._calls.until_final(
            f"ListOffsets of {place}",
            lambda: self._routes.leader(place),
            self._connections,
            (request, list_offsets.API_KEY, LIST_VERSION),
            lambda answer: [answer.topics[0].partitions[0].error_code],
        )
        return int(answer.topics[0].partitions[0].offset)

    def committed(self, group: str, places: Iterable[Place]) -> Mapping[Place, int]:
        """The offsets that a group has committed, once no open transaction can change them; -1: none."""
        make = offset_fetch.Request
        topics: dict[str, list[int]] = {}
        for place in places:
            topics.setdefault(place.topic, []).append(place.partition)
        asked = make.OffsetFetchRequestGroup(
            group_id=group,
            topics=[
                make.OffsetFetchRequestTopics(name=name, partition_indexes=parts) for name, parts in topics.items()
            ],
        )

        def codes(answer: Any) -> list[int]:
            (told,) = answer.groups
            return [told.error_code, *(one.error_code for topic in told.topics for one in topic.partitions)]

        answer = self._calls.until_final(
            f"OffsetFetch of {group}",
            lambda: self._routes.coordinator(GROUP, group),
            self._connections,
            (make(groups=[asked], require_stable=True), offset_fetch.API_KEY, OFFSET_FETCH_VERSION),
            codes,
            repeated=[ErrorCode.UNSTABLE_OFFSET_COMMIT],
        )
        return {
            Place(topic.name, one.partition_index): one.committed_offset
            for topic in answer.groups[0].topics
            for one in topic.partitions
        }


def committed_records(data: bytes, position: int, aborted: Iterable[tuple[int, int]]) -> tuple[list[Record], int]:
    """The records of a Fetch response that are not aborted, and the position behind them.

    A producer of the list is dropped from its first offset to its abort marker.

    :param data: batches, the last one perhaps cut off.
    :param aborted: (first offset, producer id) of aborted transactions.
    """
    waiting = sorted(aborted, reverse=True)
    dropped: set[int] = set()
    records: list[Record] = []
    for batch in _batches(data):
        while waiting and waiting[-1][0] <= batch.last_offset:
            dropped.add(waiting.pop()[1])
        if batch.is_control:
            if END_TXN_KEY.unpack(batch.records()[0].key or b"")[1] == ABORT:
                dropped.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in dropped):
            records += [
                Record(record.offset, Value.decode(record.value or b""))
                for record in batch.records()
                if record.offset >= position
            ]
        position = max(position, batch.last_offset + 1)
    return records, position


def _batches(data: bytes) -> Iterable[RecordBatch]:
    at = 0
    while len(data) - at >= _HEAD:
        size = _HEAD + int.from_bytes(data[at + 8 : at + _HEAD], "big")
        if at + size > len(data):
            return
        batch, at = read_batch(data, at)
        yield batch


__all__ = ["CorruptBatchError", "WireReader", "committed_records"]
