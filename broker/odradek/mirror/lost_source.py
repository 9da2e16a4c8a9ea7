"""Moves a consumer group to the target of a flow whose source is lost: `odradek mirror switch --source-lost`.

Runs in one thread of the command, and sends requests to the target only. The newest checkpoints that the flow has written give
the offsets. A checkpoint never skips a record that the group has not read, but it can be older than the last commit of the
group. So the group may read records twice, at most those between the offset and the end of the copy. A partition without a
checkpoint, of a topic that has some, begins at the start of the copy: `auto.offset.reset=latest` would skip records there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from odradek.clients import groups, topics
from odradek.clients.cluster import Cluster, Partition
from odradek.clients.errors import RefusedError
from odradek.clients.groups import CommittedOffset
from odradek.mirror import committed, exact
from odradek.mirror.bookkeeping import checkpoints_topic
from odradek.mirror.checkpoints import has_members
from odradek.mirror.committed import Bounds
from odradek.mirror.exact import Side
from odradek.mirror.internal_topic import InternalTopic
from odradek.mirror.records import Checkpoint, MirrorRecordError, read_checkpoint
from odradek.mirror.switch import SwitchError, SwitchFlow, offsets_of
from odradek.topic_partition import TopicPartition

COUNTED_OFFSETS = 10_000
"""Records behind an offset are counted if they have at most this many offsets; else the number of offsets is the bound."""
NAMED_GROUPS = 10


class Newest(NamedTuple):
    """The newest checkpoint of a group for a partition of the target. :param written_ms: when it was written, ms since 1970."""

    checkpoint: Checkpoint
    written_ms: int


@dataclass(frozen=True)
class LostMove:
    """Where a group continues in a partition of the target.

    :param newest: its checkpoint; None if it has none. :param translated: the offset.
    :param before: the committed offset of the group there; None if there is none. :param kept: whether `before` stays.
    :param repeats: the records from the offset to the end: at most so many are read twice. :param note: "" or what is unusual.
    """

    place: TopicPartition
    newest: Newest | None
    translated: int
    before: int | None
    kept: bool
    repeats: int
    note: str = ""


@dataclass(frozen=True)
class LostPlan:
    """:param missing: partitions that have a checkpoint, and do not exist in the target any more."""

    group_id: str
    moves: list[LostMove]
    missing: list[TopicPartition]


def newest_checkpoints(target: Cluster, flow: SwitchFlow) -> dict[str, dict[TopicPartition, Newest]]:
    """The newest checkpoint of each partition by group; empty if the flow has written none. Raises SwitchError, ClientError."""
    found: dict[str, dict[TopicPartition, Newest]] = {}
    topic = InternalTopic(target, checkpoints_topic(flow.source, flow.internal_separator), -1)
    try:
        for checkpoint, written_ms in topic.read_timed(read_checkpoint):
            found.setdefault(checkpoint.group_id, {})[checkpoint.target] = Newest(checkpoint, written_ms)
    except MirrorRecordError as error:
        raise SwitchError(f"{error}; the topic must contain only checkpoints of MirrorMaker 2") from None
    return found


class LostSource:
    """Moves `group_id` to the target of a flow, without the source. :param target: the cluster of the flow's target."""

    def __init__(self, group_id: str, target: Cluster, flow: SwitchFlow) -> None:
        self.group_id = group_id
        self._target = target
        self._flow = flow

    def plan(self, overwrite: bool, stopped: bool = True) -> LostPlan:
        """Find out where the group continues. Raises SwitchError, ClientError.

        :param overwrite: replace larger offsets that the group has committed in the target; else they are kept.
        :param stopped: whether the group must have no members in the target; False for a plan that is not executed.
        """
        if stopped and has_members(self._target, self.group_id):
            raise SwitchError(f"group '{self.group_id}' has members in '{self._flow.target}'; stop them first")
        known = newest_checkpoints(self._target, self._flow)
        if self.group_id not in known:
            raise SwitchError(self._no_checkpoint(sorted(known)))
        newest, present = known[self.group_id], offsets_of(self._target, self.group_id)
        partitions = self._partitions({name for name, _ in newest})
        bounds = self._bounds(partitions)
        moves = [self._move(place, newest.get(place), bounds[place], present, overwrite) for place in sorted(bounds)]
        return LostPlan(self.group_id, moves, sorted(newest.keys() - bounds.keys()))

    def execute(self, plan: LostPlan) -> int:
        """Commit the offsets, and return their number. Raises SwitchError, ClientError."""
        new = {
            move.place: CommittedOffset(
                move.translated, metadata=move.newest.checkpoint.metadata if move.newest else ""
            )
            for move in plan.moves
            if not move.kept and move.before != move.translated
        }
        refused = groups.commit_offsets(self._target, self.group_id, new) if new else {}
        for (topic, number), code in sorted(refused.items()):
            raise SwitchError(
                f"{len(refused)} of {len(new)} offsets were not committed in '{self._flow.target}', among them that of"
                f" {topic}-{number}: {code.message} ({code.name})"
            )
        return len(new)

    def _no_checkpoint(self, others: list[str]) -> str:
        name = checkpoints_topic(self._flow.source, self._flow.internal_separator)
        text = f"group '{self.group_id}' has no checkpoint in '{name}' of '{self._flow.target}'"
        if not others:
            return f"{text}, which has no checkpoint of any group; set offsets with `odradek group reset-offsets`"
        more = f" and {len(others) - NAMED_GROUPS} more" if len(others) > NAMED_GROUPS else ""
        return f"{text}; groups with checkpoints are {', '.join(others[:NAMED_GROUPS])}{more} (`odradek mirror groups`)"

    def _partitions(self, names: set[str]) -> list[Partition]:
        view = self._target.metadata(sorted(names))
        return [partition for name in sorted(view.topics) for partition in view.topics[name].partitions]

    def _bounds(self, partitions: list[Partition]) -> dict[TopicPartition, Bounds]:
        """The log start offset and last stable offset of each partition. Raises SwitchError for one without a leader."""
        listed = [
            topics.list_offsets(self._target, partitions, time_ms, committed_only=True)
            for time_ms in (topics.EARLIEST, topics.LATEST)
        ]
        bounds = {}
        for partition in partitions:
            place = partition.topic, partition.number
            pair = [found.get(place) for found in listed]
            for found in pair:
                if found is not None and found.error:
                    raise RefusedError(found.error, what=f"{place[0]}-{place[1]}")
            start, end = pair
            if start is None or end is None:
                raise SwitchError(
                    f"{place[0]}-{place[1]} has no leader in '{self._flow.target}'; repeat the command later"
                )
            bounds[place] = Bounds(start.offset, end.offset)
        return bounds

    def _move(
        self,
        place: TopicPartition,
        newest: Newest | None,
        bounds: Bounds,
        present: Mapping[TopicPartition, CommittedOffset],
        overwrite: bool,
    ) -> LostMove:
        translated, note = _translated(newest, bounds)
        before = present[place].offset if place in present else None
        kept = before is not None and translated < before <= bounds.end and not overwrite
        if kept and before is not None:
            translated, note = before, "the group has committed a larger offset here, which is kept"
        elif before is not None and before > bounds.end:  # its members would continue by auto.offset.reset
            beyond = f"the committed offset {before} is beyond the end {bounds.end}, and is replaced"
            note = f"{note}; {beyond}" if note else beyond
        return LostMove(place, newest, translated, before, kept, self._repeats(place, translated, bounds), note)

    def _repeats(self, place: TopicPartition, translated: int, bounds: Bounds) -> int:
        start = max(translated, bounds.start)
        if bounds.end - start > COUNTED_OFFSETS:
            return bounds.end - start
        return exact.count(Side(partial(committed.read, self._target, place), bounds), start, bounds.end)


def _translated(newest: Newest | None, bounds: Bounds) -> tuple[int, str]:
    """The offset at which a group continues, and a remark."""
    if newest is None:
        return bounds.start, "no checkpoint: begins at the start of the copy"
    downstream = newest.checkpoint.downstream
    if downstream > bounds.end:
        return (
            bounds.start,
            f"the checkpoint {downstream} is beyond the end {bounds.end}: begins at the start of the copy",
        )
    if downstream < bounds.start:
        return bounds.start, f"the target has deleted the records from offset {downstream} to {bounds.start - 1}"
    return downstream, ""
