"""What the coordinator tells the reporter of its groups: made in its loop, in slices, so that no heartbeat waits for it."""

import asyncio
import time

from odradek.groups.coordinator import GroupCoordinator
from odradek.metrics.group_rows import encode_group, encode_offsets

SLICE_S = 0.001


async def report(groups: GroupCoordinator) -> bytes:
    """All groups that are served, as `group_rows.decode_groups` reads them; each topic as it is at some moment meanwhile."""
    parts = []
    began = time.monotonic()
    for group in list(groups.groups()):
        topics = group.offsets.topics()
        parts.append(encode_group(group.group_id, group.state_name, len(group.protocol.members), len(topics)))
        for topic, committed in topics:
            parts.append(encode_offsets(topic, {partition: one.offset for partition, one in committed.items()}))
            if time.monotonic() - began > SLICE_S:
                await asyncio.sleep(0)
                began = time.monotonic()
    return b"".join(parts)
