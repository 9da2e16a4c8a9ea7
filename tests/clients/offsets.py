"""The start and end of a partition, as a client reads them with ListOffsets."""

from __future__ import annotations

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec


def list_offset(admin: AdminClient, topic: str, partition: int, spec: OffsetSpec) -> tuple[int, int]:
    """Return the offset that `spec` names and its timestamp (ms, or -1). Raises KafkaException with the broker's error."""
    result = next(iter(admin.list_offsets({TopicPartition(topic, partition): spec}).values())).result(90)
    return result.offset, result.timestamp


def end_offset(bootstrap_servers: str, topic: str, partition: int) -> int:
    """Return the offset after the partition's last record."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    return list_offset(admin, topic, partition, OffsetSpec.latest())[0]
