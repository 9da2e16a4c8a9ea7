"""Names of partitions for log lines: an operator knows topics and partitions, not the slots of the shared table."""

import odradek._ext.partition.slots as slots


def partition_name(slot: int) -> str:
    """The topic and the partition of a slot, as `orders-0`. Reads the slot without its lock."""
    topic, partition = slots.log_of(slot)[:2]
    return f"{topic}-{partition}"
