from typing_extensions import TypeAlias

ProducerCheck: TypeAlias = int
