"""Checks a partition's records while they are read: no acknowledged record is lost, duplicated, moved or reordered.

Pure: the producers report acknowledgements, one reader reports records in the order of their offsets. Memory holds what only
one of the two has reported, and the newest number of each producer.
"""

import threading

from tests.faults.checker import RecordId


class StreamChecker:
    """Checks one topic whose producers are all idempotent; may be called from several threads."""

    def __init__(self, partitions: int) -> None:
        self.faults: list[str] = []
        self.acknowledged_count = 0
        self.read_count = 0
        self._lock = threading.Lock()
        self._next_offset = [0] * partitions
        self._newest: list[dict[str, int]] = [{} for _ in range(partitions)]
        self._unread: list[dict[int, RecordId]] = [{} for _ in range(partitions)]
        self._unacknowledged: list[dict[int, RecordId]] = [{} for _ in range(partitions)]

    def acknowledge(self, record: RecordId, partition: int, offset: int) -> None:
        """The producer was told that `record` has `offset`; -1 if the broker did not say which."""
        with self._lock:
            self.acknowledged_count += 1
            if offset < 0:
                self._unacknowledged[partition] = {
                    at: other for at, other in self._unacknowledged[partition].items() if other != record
                }
            elif offset >= self._next_offset[partition]:
                other = self._unread[partition].setdefault(offset, record)
                if other != record:
                    self._fault(f"partition {partition} offset {offset}: acknowledged for {other} and for {record}")
            else:
                found = self._unacknowledged[partition].pop(offset, None)
                if found != record:
                    self._fault(f"partition {partition} offset {offset}: acknowledged for {record}, read was {found}")

    def read(self, partition: int, offset: int, record: RecordId) -> None:
        """A reader that began at offset 0 received `record` at `offset`."""
        with self._lock:
            self.read_count += 1
            expected = self._next_offset[partition]
            if offset != expected:
                self._fault(f"partition {partition}: read offset {offset}, expected {expected}")
            self._next_offset[partition] = offset + 1
            name, number = record
            newest = self._newest[partition]
            if number <= newest.get(name, -1):
                self._fault(f"partition {partition} offset {offset}: {record} after number {newest[name]}")
            newest[name] = max(number, newest.get(name, -1))
            acknowledged = self._unread[partition].pop(offset, None)
            if acknowledged is None:
                self._unacknowledged[partition][offset] = record
            elif acknowledged != record:
                self._fault(f"partition {partition} offset {offset}: {record}, acknowledged was {acknowledged}")

    def position(self, partition: int) -> int:
        """The offset that the reader expects next."""
        with self._lock:
            return self._next_offset[partition]

    def unread(self) -> int:
        """How many acknowledged records were not read yet: those that are lost, once everything was read."""
        with self._lock:
            return sum(map(len, self._unread))

    def unacknowledged(self) -> int:
        """Number of records that were read although their producers have no response."""
        with self._lock:
            return sum(map(len, self._unacknowledged))

    def _fault(self, text: str) -> None:
        if len(self.faults) < 100:
            self.faults.append(text)
