"""A round trip of Kafka's clients in Python: one client writes values to partition 0 of a topic, another one reads them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.waiting import PATIENCE_S


def by_kafka_python(options: Mapping[str, Any], topic: str, values: Sequence[bytes]) -> list[bytes]:
    """The values that a consumer of kafka-python reads where a producer wrote these. :param options: of both clients."""
    producer = kafka.KafkaProducer(**options)
    sent = [producer.send(topic, value, partition=0) for value in values]
    producer.flush(PATIENCE_S)
    producer.close()
    consumer = kafka.KafkaConsumer(**options, consumer_timeout_ms=PATIENCE_S * 1000)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, sent[0].get(PATIENCE_S).offset)
    read = [next(consumer).value for _ in values]
    consumer.close()
    return read


async def by_aiokafka(options: Mapping[str, Any], topic: str, values: Sequence[bytes]) -> list[bytes]:
    """The values that a consumer of aiokafka reads where a producer wrote these. :param options: of both clients."""
    async with AIOKafkaProducer(**options) as producer:
        sent = await asyncio.gather(*[await producer.send(topic, value, partition=0) for value in values])
    async with AIOKafkaConsumer(topic, **options) as consumer:
        (partition,) = consumer.assignment()
        consumer.seek(partition, sent[0].offset)
        return [(await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value for _ in values]
