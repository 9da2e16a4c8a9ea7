"""Reads of committed records, for the row `fetch-committed`: builds logs of transactions, and reads them at both levels.

The log is written while the broker is stopped, so that 100,000 transactions need no requests.
A reader has one connection and one request in flight; it receives all bytes, and checks the lists of aborted transactions.
"""

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from bench.brokers import BenchError
from odradek.storage.batch import ABORT, COMMIT, TRANSACTIONAL, Record, build_batch, build_end_marker

TRANSACTIONS, PRODUCERS, RECORDS, RECORD_BYTES = 100_000, 8, 5, 1000
MAX_BYTES = 1 << 20
UNCOMMITTED, COMMITTED = 0, 1
_FETCH, _VERSION, _CLIENT_ID = 1, 11, b"bench"
_HEAD = struct.Struct(">ihhih5s")  # size, key, version, correlation, client id
_BODY = struct.Struct(">iiiibii")  # replica, wait, least bytes, most bytes, isolation, session, epoch
_PARTITION = struct.Struct(">iiiqqi")  # partitions, partition, leader epoch, offset, log start, most bytes
_RESPONSE = struct.Struct(">iihii")  # correlation, throttle time, error, session, topics
_TOLD = struct.Struct(
    ">iihqqqi"
)  # partitions, partition, error, high watermark, stable, log start, aborted transactions
_BATCH = struct.Struct(">qi")


def write_log(path: Path, aborted_share: float) -> int:
    """Write the log of TRANSACTIONS transactions of one batch each, a share of them aborted; return its log end offset."""
    value = bytes(range(250)) * (RECORD_BYTES // 250)
    batches = [
        build_batch(
            [Record(b"k", value, 1_700_000_000_000)] * RECORDS, producer_id=producer, producer_epoch=0, base_sequence=0,
            attributes=TRANSACTIONAL, partition_leader_epoch=0,
        )[8:]
        for producer in range(PRODUCERS)
    ]  # fmt: skip
    markers = {
        (kind, producer): build_end_marker(
            kind, base_offset=0, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=1_700_000_000_000,
            partition_leader_epoch=0,
        )[8:]
        for kind in (ABORT, COMMIT)
        for producer in range(PRODUCERS)
    }  # fmt: skip
    offset, aborted = 0, 0
    with path.open("wb") as log:
        for number in range(TRANSACTIONS):
            producer = number % PRODUCERS
            log.write(offset.to_bytes(8, "big") + batches[producer])
            kind = ABORT if int((number + 1) * aborted_share) > aborted else COMMIT
            aborted += kind == ABORT
            log.write((offset + RECORDS).to_bytes(8, "big") + markers[kind, producer])
            offset += RECORDS + 1
    return offset


class Reader:
    """A consumer of partition 0 of a topic."""

    def __init__(self, port: int, topic: str) -> None:
        self._name = topic.encode()
        self._connection = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(MAX_BYTES * 8)

    def close(self) -> None:
        self._connection.close()

    def read_all(self, isolation: int, end_offset: int) -> dict[str, float]:
        """Read up to `end_offset`; return bytes, entries of aborted transactions, seconds. Raises BenchError, OSError."""
        offset = total = entries = responses = 0
        began = time.monotonic()
        while offset < end_offset:
            listed, records = self._fetch(isolation, offset)
            following = offset
            for base, count in _batches(records):
                total += count
                following = base
            if following <= offset:
                raise BenchError(f"Fetch at offset {offset} returned {len(records)} bytes, and no whole batch")
            if (listed < 0) != (isolation == UNCOMMITTED):
                raise BenchError(f"Fetch with isolation level {isolation} returned {listed} aborted transactions")
            offset = following
            entries += max(listed, 0)
            responses += 1
        return {"bytes": total, "entries": entries, "responses": responses, "seconds": time.monotonic() - began}

    def _fetch(self, isolation: int, offset: int) -> tuple[int, memoryview]:
        """Return the number of aborted transactions (-1: null), and the records."""
        body = _BODY.pack(-1, 500, 1, MAX_BYTES, isolation, 0, -1) + struct.pack(">ih", 1, len(self._name)) + self._name
        body += _PARTITION.pack(1, 0, -1, offset, -1, MAX_BYTES) + struct.pack(">ih", 0, 0)
        head = _HEAD.pack(_HEAD.size - 4 + len(body), _FETCH, _VERSION, 1, len(_CLIENT_ID), _CLIENT_ID)
        self._connection.sendall(head + body)
        size = struct.unpack(">i", self._receive(4))[0]
        response = self._receive(size)
        at = _RESPONSE.size + 2 + len(self._name)
        _, _, error, _, _, _, listed = _TOLD.unpack_from(response, at)
        at += _TOLD.size + max(listed, 0) * 16 + 8
        if error:
            raise BenchError(f"Fetch at offset {offset} failed: error {error}")
        return listed, response[at:]

    def _receive(self, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        view = memoryview(self._buffer)[:size]
        at = 0
        while at < size:
            got = self._connection.recv_into(view[at:])
            if not got:
                raise BenchError("the broker closed the connection of a reader")
            at += got
        return view


def _batches(records: memoryview) -> Iterator[tuple[int, int]]:
    """(offset after the batch, its size) of the whole batches."""
    at = 0
    while at + 61 <= len(records):
        base, length = _BATCH.unpack_from(records, at)
        if at + 12 + length > len(records):
            break
        at += 12 + length
        yield base + int.from_bytes(records[at - length + 11 : at - length + 15], "big") + 1, 12 + length
