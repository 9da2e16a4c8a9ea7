"""A producer and a reader for tests: which acknowledged records are still there.

``python -m tests.deploy.ansible.traffic produce SETTINGS TOPIC`` writes numbered records with acks=all until its standard
input ends, then prints the numbers that were acknowledged, as JSON; ``... read SETTINGS TOPIC`` prints the numbers that it
reads. SETTINGS is a JSON file with settings of librdkafka.
"""

from __future__ import annotations

import json
import select
import sys
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

BATCH = 5


def produce(settings: dict[str, str], topic: str) -> list[int]:
    """Write records until standard input ends; return the numbers of those that were acknowledged."""
    acknowledged: list[int] = []
    failed: list[str] = []
    sure = {"acks": "all", "enable.idempotence": "true", "message.timeout.ms": "300000"}
    producer = Producer({**settings, "client.id": "writer", **sure})
    number = 0
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.05)[0]:
        for _ in range(BATCH):
            number += 1

            def delivered(error: KafkaError | None, _: object, number: int = number) -> None:
                if error is None:
                    acknowledged.append(number)
                else:
                    failed.append(f"{number}: {error}")

            producer.produce(topic, str(number).encode(), on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(120) == 0, "records without a response"
    assert not failed, failed[:10]
    return acknowledged


def read(settings: dict[str, str], topic: str) -> list[int]:
    """The numbers of all records, in each partition from the first offset to the end."""
    consumer = Consumer({**settings, "client.id": "reader", "group.id": "reader", "enable.auto.commit": "false"})
    try:
        partitions = [
            TopicPartition(topic, number) for number in consumer.list_topics(topic, 60).topics[topic].partitions
        ]
        left = {}
        for partition in partitions:
            low, high = consumer.get_watermark_offsets(partition, 60)
            if high > low:
                left[partition.partition] = high
            partition.offset = OFFSET_BEGINNING
        consumer.assign(partitions)
        found = []
        while left:
            record = consumer.poll(60)
            assert record is not None, f"no record for 60 s; the ends are {left}"
            assert record.error() is None, record.error()
            found.append(int(record.value()))
            if record.offset() + 1 >= left.get(record.partition(), 0):
                left.pop(record.partition(), None)
        return found
    finally:
        consumer.close()


if __name__ == "__main__":
    action, settings_file, of_topic = sys.argv[1:]
    print(json.dumps({"produce": produce, "read": read}[action](json.loads(Path(settings_file).read_text()), of_topic)))
