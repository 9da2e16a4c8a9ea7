"""Writes and reads records in Avro with confluent-kafka's clients of a schema registry: a program of its own.

It runs on the packages that `test_karapace.py` installs: write SERVERS REGISTRY TOPIC VERSION FIRST COUNT, or
read SERVERS REGISTRY TOPIC COUNT, which prints a line of JSON for each record, in the order of its partition.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

FIELDS: dict[str, list[dict[str, Any]]] = {
    "1": [{"name": "id", "type": "long"}, {"name": "customer", "type": "string"}],
    "2": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    ],
    "incompatible": [{"name": "id", "type": "string"}],
}
PATIENCE_S = 90.0


def schema(version: str) -> str:
    """The schema of a version of the records."""
    return json.dumps({"type": "record", "name": "Order", "fields": FIELDS[version]})


def write(servers: str, registry: str, topic: str, version: str, first: int, count: int) -> None:
    """Write records, and register their schema."""
    serialize = AvroSerializer(SchemaRegistryClient({"url": registry}), schema(version))
    producer = Producer({"bootstrap.servers": servers})
    context = SerializationContext(topic, MessageField.VALUE)
    for number in range(first, first + count):
        order: dict[str, Any] = {"id": str(number) if version == "incompatible" else number}
        if version != "incompatible":
            order["customer"] = f"customer {number % 17}"
        if version == "2":
            order["tags"] = ["tag"] * (number % 3)
        producer.produce(topic, serialize(order, context))
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0


def read(servers: str, registry: str, topic: str, count: int) -> None:
    """Print the records, each decoded by its own schema and given as version 2 has them."""
    deserialize = AvroDeserializer(SchemaRegistryClient({"url": registry}), schema("2"))
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    for _ in range(count):
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.error() is None, message and message.error()
        context = SerializationContext(topic, MessageField.VALUE)
        print(json.dumps(deserialize(message.value(), context)))
    consumer.close()


def main() -> None:
    """Do what the command line says."""
    action, servers, registry, topic, *rest = sys.argv[1:]
    if action == "write":
        version, first, count = rest
        write(servers, registry, topic, version, int(first), int(count))
    else:
        read(servers, registry, topic, int(rest[0]))


if __name__ == "__main__":
    main()
