"""Compares a step with the cluster directly before its commit: the topics may have changed while Spark read them.

A topic that was deleted and created again has other records at the same offsets. What was read of it is not committed; the
other topics of the step are. Runs in the driver.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from odradek.jobs.load.errors import LoadError
from odradek.jobs.load.offsets import (
    CUT,
    DELETED,
    GONE,
    RECREATED,
    ClusterState,
    Finding,
    NamedPartition,
    Positions,
    Range,
    TopicState,
)

_NOT_LOADED = "what was read of it since the last commit is not loaded"


class Recheck:
    """The comparisons of a run.

    :param look: asks the brokers. :param cluster_id: of the cluster that was read. :param committed: the positions of the
        newest commit. :param another: how to load into another version, for the text of findings
    """

    def __init__(self, look: Callable[[], ClusterState], cluster_id: str, committed: Positions, another: str) -> None:
        self._look = look
        self._cluster_id = cluster_id
        self._another = another
        self.committed = committed
        #: What was found in the run, and the topics of which nothing more is loaded.
        self.findings: list[Finding] = []
        self._changed: set[str] = set()

    def unchanged(self, ranges: Iterable[Range]) -> tuple[Range, ...]:
        """The ranges whose topics have not changed so far."""
        return tuple(part for part in ranges if part.topic not in self._changed)

    def compare(
        self, step: Sequence[Range], positions: Positions, written: Sequence[Any]
    ) -> tuple[tuple[Range, ...], list[Any], tuple[Finding, ...]]:
        """Ask the brokers once more.

        :param step: what was read. :param positions: those before the step; they have the topic ids
        :param written: the rows of `files.WRITTEN` that the tasks returned
        :returns: the ranges and the rows to commit, and what was found
        :raises LoadError: the brokers are of another cluster
        """
        state = self._look()
        if state.cluster_id != self._cluster_id:
            raise LoadError(
                f"the brokers belonged to cluster {self._cluster_id} when the run began, and now belong to cluster"
                f" {state.cluster_id}: records that were read since the last commit are not loaded"
            )
        found: list[Finding] = []
        for topic in dict.fromkeys(part.topic for part in step):
            parts = [part for part in step if part.topic == topic]
            change = _change(parts, positions[topic].topic_id, state.topics.get(topic), self._another)
            if change is not None:
                self._changed.add(topic)
                found.append(change)
            else:
                found += _overtaken(parts, state.topics[topic], written)
        self.findings += found
        kept = [row for row in written if row.topic not in self._changed]
        return self.unchanged(step), kept, tuple(found)

    def without_changed(self, positions: Positions) -> Positions:
        """The positions without topics that changed before anything of them was committed: the next run begins with them."""
        return {name: topic for name, topic in positions.items() if name not in self._changed or name in self.committed}


def _change(parts: Sequence[Range], topic_id: str | None, topic: TopicState | None, another: str) -> Finding | None:
    """Why the records that were read of a topic may be those of another one; None if they are not."""
    name = parts[0].topic
    if topic is None:
        return Finding(DELETED, name, None, f"topic '{name}' was deleted while it was read: {_NOT_LOADED}")
    if topic_id and topic.topic_id and topic_id != topic.topic_id:
        text = (
            f"topic '{name}' was deleted and created again while it was read (its id was {topic_id} and is {topic.topic_id}):"
            f" {_NOT_LOADED}; load the new topic into another version, with {another}"
        )
        return Finding(RECREATED, name, None, text)
    for part in parts:
        bounds = topic.partitions.get(part.partition)
        if bounds is None:
            text = f"{part.place} does not exist any more: the topic was created again while it was read; {_NOT_LOADED}"
            return Finding(DELETED, name, part.partition, text)
        if bounds.log_end < part.until:
            text = (
                f"{part.place} ends at offset {bounds.log_end} now, but offsets up to {part.until - 1} were read: the cluster"
                f" lost records, or the topic was created again; {_NOT_LOADED}"
            )
            return Finding(CUT, name, part.partition, text)
    return None


def _overtaken(parts: Sequence[Range], topic: TopicState, written: Sequence[Any]) -> list[Finding]:
    """Ranges whose first offsets the broker has deleted since, and of which no record was read at these offsets.

    Readers fail if offsets are deleted before they are read; this does not depend on it.
    """
    first: dict[NamedPartition, int] = {}
    for row in written:
        place = NamedPartition(row.topic, row.partition)
        first[place] = min(row.first_offset, first.get(place, row.first_offset))
    found = []
    for part in parts:
        stop = min(topic.partitions[part.partition].earliest, first.get(part.place, part.until), part.until)
        if stop > part.start:
            text = (
                f"{part.place}: offsets {part.start} to {stop - 1} were deleted during the load, and no record was read there;"
                " if they had records, these are not loaded"
            )
            found.append(Finding(GONE, *part.place, text))
    return found
