"""The log of `__transaction_state`, as tests read it over the wire and change it in the directory of a stopped broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from odradek._ext.api.offset_commits import partition_for
from odradek.protocol import encode
from odradek.protocol.schemas.transaction_records import read_record
from odradek.storage.batch import Record, build_batch, read_batches
from tests.wire import Wire, whole

TOPIC = "__transaction_state"
READ_UNCOMMITTED = 0


class Written(NamedTuple):
    """A record: its partition and offset, key and value as bytes, and both decoded (`value` None for a tombstone)."""

    partition: int
    offset: int
    timestamp: int
    raw_key: bytes
    raw_value: bytes | None
    key: Any
    value: Any


def records_of(wire: Wire, transactional_ids: set[str] | None = None) -> list[Written]:
    """The records of all partitions in the order of their offsets, or those of some ids."""
    found = []
    for partition in range(len(wire.metadata(TOPIC).topics[0].partitions)):
        for batch in _batches(wire, partition):
            for record in batch.records():
                assert record.key is not None
                key, value = read_record(record.key, record.value)
                if transactional_ids is None or key.transactional_id in transactional_ids:
                    found.append(
                        Written(partition, record.offset, record.timestamp, record.key, record.value, key, value)
                    )
    return found


def _batches(wire: Wire, partition: int) -> Iterator[Any]:
    offset, end = 0, wire.latest(TOPIC, partition)
    while offset < end:
        answer = wire.fetch(TOPIC, offset, partition, isolation_level=READ_UNCOMMITTED)
        for batch in read_batches(whole(answer.records)):
            yield batch
            offset = batch.last_offset + 1


def change(data: Path, transactional_id: str, **changes: Any) -> None:
    """Append a record to the log of a stopped broker: the newest of the transactional id with some fields changed."""
    partition = partition_for(transactional_id, len(list(data.glob(f"{TOPIC}-*"))))
    (log,) = sorted((data / f"{TOPIC}-{partition}").glob("*.log"))[-1:]
    batches = list(read_batches(log.read_bytes()))
    newest: tuple[bytes, bytes] | None = None
    for batch in batches:
        for record in batch.records():
            if record.key and record.value and read_record(record.key, None)[0].transactional_id == transactional_id:
                newest = record.key, record.value
    assert newest is not None, f"{transactional_id} is not in {log}"
    key, raw = newest
    _, value = read_record(key, raw)
    for name, content in changes.items():
        setattr(value, name, content)
    version = int.from_bytes(raw[:2], "big")
    record = Record(key, raw[:2] + encode(value, version), value.transaction_last_update_timestamp_ms)
    last = batches[-1]
    with log.open("ab") as file:
        file.write(
            build_batch([record], base_offset=last.last_offset + 1, partition_leader_epoch=last.partition_leader_epoch)
        )
