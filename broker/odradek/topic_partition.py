"""What names a partition of the cluster. Every package may import it.

Both are plain tuples: one is made for each record or request, and dictionaries of them have 100,000 keys. A NamedTuple takes
ten times as long to make, and the garbage collector examines each one; it does not examine tuples of texts and numbers.
"""

TopicPartition = tuple[str, int]
"""The name of a topic, and the number of a partition."""

TopicIdPartition = tuple[bytes, int]
"""The id of a topic (16 bytes), and the number of a partition."""
