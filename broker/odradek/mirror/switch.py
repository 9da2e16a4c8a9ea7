"""Moves a consumer group from one cluster of a flow to the other one: `odradek mirror switch`.

Runs in one thread of the command. In each direction the offsets are exact: the group continues with the first record that it
has not read, so that no record is lost and none is read twice. A group can also move back: from the mirrored topics of the
target to their origins in the source.

The order of the steps makes this true while producers write and the mirror runs. From the source to the target:
1. the group has no members, and its offsets are read (with require_stable);
2. the flow's position passes the group's offset: the mirror has copied all that the group has read;
3. the end of the target is read, then the position once more: every record before this end comes from before this position;
4. the first record that the group has not read is looked for in the source. If the position has not passed it, all records in
   the target were read by the group, and it continues at the end from step 3. Otherwise the record is looked for in the target.
Back from the target to the source, the position is read first, then the first record that the group has not read is looked for
in the target; if there is none, the group has read all that was copied, and it continues at the position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

from odradek.backoff import Waits
from odradek.clients import configs, groups
from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError, RefusedError, UnsupportedError
from odradek.clients.groups import CommittedOffset
from odradek.mirror import committed, exact
from odradek.mirror.bookkeeping import SOURCE, offset_syncs_topic
from odradek.mirror.checkpoints import OWN_GROUPS, has_members
from odradek.mirror.exact import Anchor, Seen, Side
from odradek.mirror.internal_topic import InternalTopic
from odradek.mirror.records import MirrorRecordError, OffsetSync, read_offset_sync
from odradek.mirror.settings import FlowSettings
from odradek.mirror.starting import positions_group
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
MOST_SEARCHES = 6
"""How often the command searches the other cluster for a record that the flow has copied."""
CLEANUP = "cleanup.policy"
Result = TypeVar("Result")


class SwitchError(ClientError):
    """The group cannot be moved now; nothing was committed. The text says what to do."""


@dataclass(frozen=True)
class SwitchFlow:
    """What must be known of a flow.

    :param source: and `target`: aliases of its clusters. :param exactly_once: whether positions are in the transactions.
    :param target_topic: the name in the target of a topic of the source; None if the flow does not copy the topic.
    :param source_topic: the name in the source of a topic of the target; None if the flow does not write to the topic.
    """

    source: str
    target: str
    exactly_once: bool
    target_topic: Callable[[str], str | None]
    source_topic: Callable[[str], str | None]
    offset_syncs_location: str = SOURCE
    internal_separator: str = "."

    @classmethod
    def of(cls, flow: FlowSettings) -> SwitchFlow:
        """The flow in a mirror's file."""
        source, target, policy = flow.source.alias, flow.target.alias, flow.policy

        def mirrors(topic: str) -> bool:
            return flow.topics.selects(topic) and not policy.is_internal(topic) and not policy.came_from(topic, target)

        def source_topic(topic: str) -> str | None:
            origin = topic if policy.identity else policy.upstream(topic) if policy.source_of(topic) == source else None
            return origin if origin is not None and mirrors(origin) else None

        return cls(
            source,
            target,
            flow.exactly_once,
            lambda topic: policy.remote(source, topic) if mirrors(topic) else None,
            source_topic,
            flow.text("offset-syncs.topic.location"),
            policy.internal_separator,
        )

    @property
    def position_group(self) -> str:
        """The group in the target that holds the flow's positions."""
        return positions_group(f"{OWN_GROUPS}{self.source}->{self.target}", self.exactly_once)


class Twin(NamedTuple):
    """A partition of the group and its copy or origin in the other cluster. :param forward: whether `there` is the copy."""

    flow: SwitchFlow
    here: TopicPartition
    there: TopicPartition
    forward: bool


@dataclass(frozen=True)
class Move:
    """One partition of the group.

    :param offset: the committed offset here. :param translated: the offset there.
    :param before: the committed offset of the group there; None if there is none.
    :param exact: False if the group may read records twice; `note` says why.
    :param end: whether the group has read all that was moved.
    """

    twin: Twin
    offset: int
    metadata: str
    translated: int
    before: int | None
    exact: bool
    end: bool
    note: str = ""


@dataclass(frozen=True)
class Plan:
    """:param unmoved: committed offsets in topics that no flow mirrors between the two clusters."""

    group_id: str
    moves: list[Move]
    unmoved: dict[TopicPartition, int]


class Switch:
    """Moves `group_id` from the cluster `here` to the cluster `there` (aliases `from_alias`, `to_alias`).

    :param flows: the flows between the two clusters, in either direction; at least one.
    :param timeout_s: how long to wait until the group has no members, and until the mirror has copied what the group has read
        of a partition.
    :param say: receives a line when the command begins to wait.
    """

    def __init__(
        self,
        group_id: str,
        here: Cluster,
        there: Cluster,
        from_alias: str,
        to_alias: str,
        flows: Sequence[SwitchFlow],
        timeout_s: float,
        say: Callable[[str], None],
    ) -> None:
        self.group_id = group_id
        self._here = here
        self._there = there
        self._from = from_alias
        self._to = to_alias
        self._flows = flows
        self._timeout_s = timeout_s
        self._say = say
        self._said: set[str] = set()

    # -- steps ------------------------------------------------------------------------------------------------------

    def plan(self, stopped: bool = True) -> Plan:
        """Wait until the group can be moved, and translate its offsets. Raises SwitchError, ClientError.

        :param stopped: whether the group must have no members; False for a plan that is not executed.
        """
        if stopped:
            self._wait_for(self._members)
        if stopped and has_members(self._there, self.group_id):
            raise SwitchError(
                f"group '{self.group_id}' has members in '{self._to}', which commit their own offsets; stop them first"
            )
        offsets = offsets_of(self._here, self.group_id)
        if not offsets:
            raise SwitchError(
                f"group '{self.group_id}' has no committed offsets in '{self._from}'; `odradek group list` shows its groups"
            )
        present = offsets_of(self._there, self.group_id)
        twins, unmoved = self._twins(offsets)
        if not twins:
            listed = ", ".join(sorted({place[0] for place in unmoved}))
            raise SwitchError(
                f"no flow between '{self._from}' and '{self._to}' mirrors a topic of group '{self.group_id}': {listed}"
            )
        anchors = self._anchors(twins)
        compacted = self._compacted(twins)
        moves = []
        for twin in twins:
            translate = _Translation(self, twin, offsets[twin.here], anchors.get(twin, []), twin in compacted)
            move = self._wait_for(translate.attempt)
            before = present.get(twin.there)
            moves.append(replace(move, before=None if before is None else before.offset))
        return Plan(self.group_id, moves, unmoved)

    def check(self, plan: Plan, overwrite: bool, allow_repeats: bool) -> None:
        """Raise SwitchError if the plan must not be executed without the operator's consent."""
        for move in plan.moves:
            topic, number = move.twin.there
            if move.before is not None and move.before > move.translated and not overwrite:
                raise SwitchError(
                    f"group '{plan.group_id}' is ahead in '{self._to}': it has committed offset {move.before} of"
                    f" {topic}-{number}, and {move.translated} is the translation of its offset in '{self._from}'; add"
                    " --overwrite to replace it"
                )
            if not move.exact and not allow_repeats:
                raise SwitchError(
                    f"the offset of {topic}-{number} is not exact: {move.note}; add --allow-repeats to continue at"
                    f" {move.translated}, from where the group may read some records twice"
                )

    def execute(self, plan: Plan) -> None:
        """Commit the offsets in the other cluster, and check that the group did not continue here.

        Raises SwitchError, ClientError.
        """
        new = {move.twin.there: CommittedOffset(move.translated, metadata=move.metadata) for move in plan.moves}
        self._check_unchanged(plan, "nothing was committed")
        refused = groups.commit_offsets(self._there, self.group_id, new)
        for (topic, number), code in sorted(refused.items()):
            raise SwitchError(
                f"{len(refused)} of {len(new)} offsets were not committed in '{self._to}', among them that of {topic}-{number}:"
                f" {code.message} ({code.name})"
            )
        self._check_unchanged(
            plan,
            f"its offsets were committed in '{self._to}', and are outdated; stop its members and repeat the command",
        )

    def _check_unchanged(self, plan: Plan, consequence: str) -> None:
        offsets = offsets_of(self._here, self.group_id)
        changed = any(offsets.get(move.twin.here, CommittedOffset(-1)).offset != move.offset for move in plan.moves)
        if changed or has_members(self._here, self.group_id):
            raise SwitchError(f"group '{self.group_id}' continued in '{self._from}' during the switch; {consequence}")

    # -- what the plan is made of -----------------------------------------------------------------------------------

    def _twins(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> tuple[list[Twin], dict[TopicPartition, int]]:
        """The partitions that are mirrored between the clusters, and the offsets of the others."""
        twins, unmoved = [], {}
        for place in sorted(offsets):
            twin = next(filter(None, (self._twin(flow, place) for flow in self._flows)), None)
            if twin is None:
                unmoved[place] = offsets[place].offset
            else:
                twins.append(twin)
        return twins, unmoved

    def _twin(self, flow: SwitchFlow, place: TopicPartition) -> Twin | None:
        forward = flow.source == self._from
        topic = (flow.target_topic if forward else flow.source_topic)(place[0])
        return None if topic is None else Twin(flow, place, (topic, place[1]), forward)

    def _anchors(self, twins: Sequence[Twin]) -> dict[Twin, list[Anchor]]:
        """The offset syncs of the partitions, as anchors in ascending order."""
        anchors: dict[Twin, list[Anchor]] = {}
        for flow in {twin.flow.source: twin.flow for twin in twins}.values():
            by_source = {twin.here if twin.forward else twin.there: twin for twin in twins if twin.flow is flow}
            in_source = flow.offset_syncs_location == SOURCE
            cluster = self.cluster_of(flow.source if in_source else flow.target)
            name = offset_syncs_topic(flow.target if in_source else flow.source, flow.internal_separator)
            for sync in self._syncs(cluster, name):
                twin = by_source.get(sync.source)
                if twin is None:
                    continue
                known = anchors.setdefault(twin, [])
                pair = (sync.upstream, sync.downstream) if twin.forward else (sync.downstream, sync.upstream)
                if known and (known[-1].near >= pair[0] or known[-1].far >= pair[1]):
                    known.clear()  # a topic was created again
                known.append(Anchor(*pair))
        return anchors

    def _syncs(self, cluster: Cluster, topic: str) -> Iterator[OffsetSync]:
        """Yield the offset syncs in a topic; none if it does not exist. Raises SwitchError for other records, ClientError."""
        try:
            yield from InternalTopic(cluster, topic, -1).read(read_offset_sync)
        except MirrorRecordError as error:
            raise SwitchError(f"{error}; the topic must contain only offset syncs of MirrorMaker 2") from None

    def _compacted(self, twins: Sequence[Twin]) -> set[Twin]:
        """The partitions of topics that are compacted in one of the clusters."""
        here = configs.of_topics(self._here, sorted({twin.here[0] for twin in twins}), CLEANUP)
        there = configs.of_topics(self._there, sorted({twin.there[0] for twin in twins}), CLEANUP)
        return {
            twin
            for twin in twins
            for entry in (here.get(twin.here[0]), there.get(twin.there[0]))
            if entry is not None and "compact" in (entry.value or "")
        }

    def cluster_of(self, alias: str) -> Cluster:
        """The cluster with this alias."""
        return self._here if alias == self._from else self._there

    def side(self, alias: str, place: TopicPartition) -> Side:
        """A partition with its present bounds. Raises SwitchError if it does not exist, ClientError."""
        cluster = self.cluster_of(alias)
        view = cluster.metadata([place[0]])
        if place[0] not in view.topics or all(part.number != place[1] for part in view.topics[place[0]].partitions):
            raise SwitchError(f"{place[0]}-{place[1]} does not exist in '{alias}'; does the mirror run?")
        return Side(partial(committed.read, cluster, place), committed.bounds(cluster, place))

    def position(self, twin: Twin) -> int | None:
        """The source offset up to which the flow has copied the partition; None: nothing is copied. Raises ClientError."""
        copy = twin.there if twin.forward else twin.here
        found = offsets_of(self.cluster_of(twin.flow.target), twin.flow.position_group).get(copy)
        return None if found is None else found.offset

    def _members(self) -> bool | str:
        """True if the group has no members here, else a sentence about them."""
        if not has_members(self._here, self.group_id):
            return True
        return f"group '{self.group_id}' has members in '{self._from}'; stop them"

    def _wait_for(self, attempt: Callable[[], Result | str]) -> Result:
        """Call `attempt` until it returns something else than a sentence about what it waits for. Raises SwitchError."""
        backoff = Waits(FIRST_PAUSE_S, LONGEST_PAUSE_S, self._timeout_s)
        while True:
            result = attempt()
            if not isinstance(result, str):
                return result
            if not backoff.wait():
                raise SwitchError(f"{result} (waited {self._timeout_s:g} s; --timeout sets how long)")
            if result not in self._said:
                self._said.add(result)
                self._say(f"waiting: {result}")


class _Translation:
    """Translates one partition's offset; `attempt` is called until it has a result."""

    def __init__(
        self, switch: Switch, twin: Twin, offset: CommittedOffset, anchors: Sequence[Anchor], compacted: bool
    ) -> None:
        self._switch = switch
        self._twin = twin
        self._offset = offset.offset
        self._metadata = offset.metadata
        self._anchors = anchors
        self._compacted = compacted
        self._searches = 0
        flow = twin.flow
        self._from, self._to = (flow.source, flow.target) if twin.forward else (flow.target, flow.source)
        self._name = f"{twin.here[0]}-{twin.here[1]}"

    def attempt(self) -> Move | str:
        """The move, or a sentence about what it waits for. Raises SwitchError, ClientError."""
        here = self._switch.side(self._from, self._twin.here)
        if here.bounds.end < self._offset:
            return self._behind_the_end(here.bounds.end)
        return self._forward(here) if self._twin.forward else self._back()

    def _behind_the_end(self, last_stable_offset: int) -> str:
        """Why the cluster has no committed records up to the offset of the group. Raises ClientError."""
        end = committed.log_end(self._switch.cluster_of(self._from), self._twin.here)
        text = f"group '{self._switch.group_id}' has committed offset {self._offset} of {self._name} in '{self._from}', and"
        if self._offset > end:
            return (
                f"{text} the log ends at {end}: the cluster lost records, or the topic was created again; choose an offset"
                " with `odradek group reset-offsets`"
            )
        return f"{text} the last stable offset is {last_stable_offset}: a transaction is open"

    def _forward(self, here: Side) -> Move | str:
        """From the source to the target; the numbers of the steps are those of the module."""
        position = self._position()  # step 2
        if position < self._offset and exact.first_record(here, position, self._offset) is not None:
            return (
                f"the mirror has copied {self._name} up to offset {max(position, 0)}, and the group has read up to"
                f" {self._offset}; the mirror must run"
            )
        there = self._switch.side(self._to, self._twin.there)  # step 3
        position = self._position()
        wanted = exact.first_record(self._switch.side(self._from, self._twin.here), self._offset)  # step 4
        if wanted is None or (wanted.record.offset >= position and self._twin.flow.exactly_once):
            return self._move(there.bounds.end, True, True)
        if wanted.record.offset >= position:
            return f"the mirror has not copied offset {wanted.record.offset} of {self._name} yet; the mirror must run"
        return self._copy_of(wanted)

    def _back(self) -> Move | str:
        """From the target to the source."""
        position = self._position()
        wanted = exact.first_record(self._switch.side(self._from, self._twin.here), self._offset)
        if wanted is not None:
            return self._copy_of(wanted)
        there = self._switch.side(self._to, self._twin.there)
        translated = min(max(position, there.bounds.start), there.bounds.end)
        if self._twin.flow.exactly_once or exact.first_record(there, translated) is None:
            return self._move(translated, True, True)
        return self._move(translated, False, True, "the positions of the flow are not committed with the records")

    def _copy_of(self, wanted: Seen) -> Move | str:
        """The move to the copy, or to the origin, of the first record that the group has not read."""
        here = self._switch.side(self._from, self._twin.here)
        there = self._switch.side(self._to, self._twin.there)
        found = exact.find(here, there, self._anchors, wanted, self._compacted)
        if found is not None:
            note = (
                ""
                if found.exact
                else f"records equal to the one at offset {wanted.record.offset} of {self._name} follow it"
            )
            return self._move(found.offset, found.exact, False, note)
        topic, number = self._twin.there
        missing = (
            f"the record at offset {wanted.record.offset} of {self._name}, which group '{self._switch.group_id}' reads next, is"
            f" not in {topic}-{number} of '{self._to}'"
        )
        self._searches += 1
        if self._searches < MOST_SEARCHES:  # its transaction is committed, and the end marker may not be there yet
            return missing
        raise SwitchError(
            f"{missing}, whose log begins at offset {there.bounds.start}; set the offset with"
            " `odradek group reset-offsets`"
        )

    def _position(self) -> int:
        """The source offset up to which the partition was copied; -1 if nothing was."""
        position = self._switch.position(self._twin)
        return -1 if position is None else position

    def _move(self, translated: int, is_exact: bool, end: bool, note: str = "") -> Move:
        return Move(self._twin, self._offset, self._metadata, translated, None, is_exact, end, note)


def offsets_of(cluster: Cluster, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    """The committed offsets of a group, after the transactions that contain some; empty if there is no such group."""
    try:
        return groups.fetch_offsets(cluster, group_id, stable=True)
    except UnsupportedError:  # before Kafka 2.5
        return groups.fetch_offsets(cluster, group_id)
    except RefusedError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return {}
