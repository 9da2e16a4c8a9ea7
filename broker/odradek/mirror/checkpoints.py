"""Checkpoints of a flow: the offsets of the source's consumer groups, translated for the target.

Used in the thread of the flow. A worker writes the checkpoints of the partitions that it moves, for all groups, so that
several workers need no agreement. With `sync.group.offsets.enabled`, the translated offsets are also committed in the target,
for groups that have no members there, and only forward.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from odradek.clients import groups
from odradek.clients.cluster import Cluster
from odradek.clients.errors import RefusedError
from odradek.clients.groups import CommittedOffset
from odradek.mirror.offset_syncs import OffsetSyncs
from odradek.mirror.records import Checkpoint
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition

OWN_GROUPS = "odradek-mirror."
"""Prefix of the groups that hold the positions of flows; they are not consumers."""
CONSUMER_PROTOCOLS = frozenset(("consumer", ""))
SHARE = "Share"
log = logging.getLogger("odradek.mirror")


class Checkpoints:
    """What to write next. :param wants: whether a group, by id, is followed."""

    def __init__(self, syncs: OffsetSyncs, wants: Callable[[str], bool]) -> None:
        self._syncs = syncs
        self._wants = wants
        self._written: dict[tuple[str, TopicPartition], Checkpoint] = {}

    def groups(self, source: Cluster) -> list[str]:
        """The ids of the groups in the source that are followed. Raises ClientError."""
        return [
            listing.group_id
            for listing in groups.list_groups(source)
            if listing.protocol_type in CONSUMER_PROTOCOLS
            and listing.type != SHARE
            and not listing.group_id.startswith(OWN_GROUPS)
            and self._wants(listing.group_id)
        ]

    def translated(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> list[Checkpoint]:
        """The checkpoints of a group for the partitions that this worker moves; those that cannot be translated are omitted.

        :param offsets: the committed offsets of the group in the source.
        """
        checkpoints = []
        for place, committed in sorted(offsets.items()):
            translated = self._syncs.translate(place, group_id, committed.offset)
            if translated is not None:
                target, downstream = translated
                checkpoints.append(Checkpoint(group_id, target, committed.offset, downstream, committed.metadata))
        return checkpoints

    def changed(self, checkpoints: list[Checkpoint]) -> list[Checkpoint]:
        """Those that differ from what was last `written`."""
        return [
            checkpoint
            for checkpoint in checkpoints
            if self._written.get((checkpoint.group_id, checkpoint.target)) != checkpoint
        ]

    def written(self, checkpoints: list[Checkpoint]) -> None:
        """Note that these checkpoints are in the topic."""
        for checkpoint in checkpoints:
            self._written[checkpoint.group_id, checkpoint.target] = checkpoint


def commit(target: Cluster, group_id: str, checkpoints: list[Checkpoint]) -> int:
    """Commit the offsets of a group in the target, as `sync.group.offsets.enabled` says; return how many partitions moved.

    Nothing is committed if the group has members there. An offset is never replaced by a smaller one. Raises ClientError.
    """
    if has_members(target, group_id):
        return 0
    present = groups.fetch_offsets(target, group_id)
    ahead = {
        checkpoint.target: CommittedOffset(checkpoint.downstream, metadata=checkpoint.metadata)
        for checkpoint in checkpoints
        if checkpoint.target not in present or present[checkpoint.target].offset < checkpoint.downstream
    }
    if not ahead:
        return 0
    refused = groups.commit_offsets(target, group_id, ahead)
    for place, code in sorted(refused.items()):
        if code not in _OF_MEMBERS:
            log.warning(
                "cannot commit the offset of %s-%d for group '%s' in the target: %s (%s); retrying at the next interval",
                *place, group_id, code.message, code.name,
            )  # fmt: skip
    return len(ahead) - len(refused)


_OF_MEMBERS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)
"""Errors of a group that members joined meanwhile: they commit their own offsets."""


def has_members(cluster: Cluster, group_id: str) -> bool:
    """Whether the group has members. A group that does not exist has none. Raises RefusedError, ClientError."""
    try:
        return bool(groups.describe(cluster, group_id).members)
    except RefusedError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return False
