"""Encodes the coordinator's groups for the reporter, in the coordinator's loop. It works in slices, so no heartbeat waits for
it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from odradek.metrics.group_rows import encode_group, encode_offsets

if TYPE_CHECKING:
    from odradek.groups.coordinator import GroupCoordinator

SLICE_S = 0.001


async def encode_report(groups: GroupCoordinator) -> bytes:
    """Encode all served groups for `group_rows.decode_groups`. The rows of one topic are consistent with each other; rows of
    different topics may be of different moments."""
    parts = []
    began = time.monotonic()
    for group in list(groups.shards.groups()):
        topics = group.offsets.topics()
        parts.append(encode_group(group.group_id, group.state_name, len(group.protocol.members), len(topics)))
        for topic, committed in topics:
            offsets = {partition: commit.offset for partition, commit in committed.items()}
            parts.append(encode_offsets(topic, offsets))
            if time.monotonic() - began > SLICE_S:
                await asyncio.sleep(0)
                began = time.monotonic()
    return b"".join(parts)
