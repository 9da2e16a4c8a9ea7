"""Committing an offset as a test means it: whatever coordinator is just being found or still loads."""

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.waiting import until

NOT_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._WAIT_COORD,
    KafkaError._TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
)


def commit(bootstrap_servers: str, group: str, topic: str, partition: int, offset: int) -> None:
    """Once there is a coordinator: the client asks only a few times for one that still loads."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "client.id": group})

    def committed() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in NOT_YET:
                raise
            return False
        return True

    try:
        until(committed, f"a commit of {group}")
    finally:
        consumer.close()
