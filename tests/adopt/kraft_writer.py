"""Metadata logs and snapshots of KRaft, written as Kafka's controllers write them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

from odradek.protocol import encode
from odradek.protocol.schemas import cluster_metadata
from odradek.storage.batch import CONTROL, Record, build_batch


def _framed(kind, version, **fields) -> bytes:
    fields = {name: value.bytes if isinstance(value, uuid.UUID) else value for name, value in fields.items()}
    return bytes((1, kind.number, version)) + encode(kind.schema(**fields), version)


def bare(number: int) -> bytes:
    """A record without fields: frame, kind, version, no tagged fields."""
    return bytes((1, number, 0, 0))


def feature(name, level):
    return _framed(cluster_metadata.FEATURE_LEVEL, 0, name=name, feature_level=level)


def topic(name, topic_id):
    return _framed(cluster_metadata.TOPIC, 0, name=name, topic_id=topic_id)


def remove(topic_id):
    return _framed(cluster_metadata.REMOVE_TOPIC, 0, topic_id=topic_id)


def partition(topic_id, index, replicas, isr, *, leader, leader_epoch=0, partition_epoch=0, elr=None):
    return _framed(
        cluster_metadata.PARTITION,
        2,
        topic_id=topic_id,
        partition_id=index,
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        directories=[],
        eligible_leader_replicas=elr,
    )


def change(topic_id, index, *, isr=None, leader=cluster_metadata.UNCHANGED):
    return _framed(cluster_metadata.PARTITION_CHANGE, 2, topic_id=topic_id, partition_id=index, isr=isr, leader=leader)


def config(kind, name, key, value):
    return _framed(cluster_metadata.CONFIG, 0, resource_type=kind, resource_name=name, name=key, value=value)


def producer_ids(following):
    return _framed(cluster_metadata.PRODUCER_IDS, 0, broker_id=1, next_producer_id=following)


def write_log(
    directory: Path, records: Sequence[bytes], *, snapshot_at: int | None = None, segment_records: int = 1000
) -> None:
    """Write one record per offset from 0 on; records before `snapshot_at` go to a snapshot, without their segment."""
    directory.mkdir(parents=True, exist_ok=True)
    if snapshot_at is not None:
        inside = [Record(None, value, 1) for value in records[:snapshot_at]]
        header = build_batch([Record(b"\0\0\0\3", b"\0\0\0", 1)], attributes=CONTROL)
        body = build_batch(inside, base_offset=1, codec=1)
        footer = build_batch([Record(b"\0\0\0\4", b"\0\0", 1)], base_offset=1 + len(inside), attributes=CONTROL)
        (directory / f"{snapshot_at:020d}-0000000001.checkpoint").write_bytes(header + body + footer)
    begin = 0 if snapshot_at is None else max(0, snapshot_at - 2)  # a segment holds some of the snapshot's too
    for base in range(begin, len(records), segment_records):
        data = b"".join(
            build_batch([Record(None, value, 1)], base_offset=base + number, partition_leader_epoch=1)
            for number, value in enumerate(records[base : base + segment_records])
        )
        (directory / f"{base:020d}.log").write_bytes(data)
