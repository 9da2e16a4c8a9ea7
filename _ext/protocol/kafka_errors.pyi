from typing_extensions import TypeAlias

KafkaError: TypeAlias = int
