"""What `odradek mirror status` shows of a flow, read from both clusters: no worker needs to run.

Positions are the offsets of the flow's group in the target, workers are the members of this group, and the end
offsets are those of the source. Functions over two `Cluster`s, used in the thread of the command.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from odradek.clients import groups, topics
from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError, RefusedError, only
from odradek.mirror.assignment import assigned_by, lane_of, lanes_in, worker_in
from odradek.mirror.following import Following
from odradek.mirror.names import Edge
from odradek.mirror.positions import changed_source, cut_noted, stop_noted, truncated
from odradek.mirror.settings import PROTOCOL_TYPE, FlowSettings
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition

_SAMPLE = re.compile(r'odradek_mirror_partition_stopped\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\} 1')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class WorkerRow(NamedTuple):
    """A member of the flow's group. :param name: the worker's own name. :param host: its address, as the target sees
    it.
    """

    name: str
    host: str
    lanes: list[int]


class PartitionRow(NamedTuple):
    """A partition of a flow.

    :param position: the next offset of the source that will be mirrored; None if nothing was committed. :param end:
        the end offset of the source; None if it has no leader. :param lag: in records. :param stopped: the reason,
        from the metrics of workers or noted with the position, or because the source does not have the position any
        more; "" if none is known.
    """

    source: TopicPartition
    target: TopicPartition
    lane: int
    position: int | None
    end: int | None
    lag: int | None
    stopped: str


class FlowStatus(NamedTuple):
    """The state of a flow. :param state: of the group: Stable, Empty, Dead, ... :param lanes: None if no worker
    runs.
    """

    flow: str
    group_id: str
    state: str
    lanes: int | None
    workers: list[WorkerRow]
    partitions: list[PartitionRow]
    refused: dict[str, str]
    warnings: list[str]


def read(flow: FlowSettings, edges: Sequence[Edge], source: Cluster, target: Cluster, stopped: "Stopped") -> FlowStatus:
    """The state of a flow. Raises FlowError, ClientError."""
    plan = Following(flow, edges, source, target).plan()
    state, protocol, workers = read_workers(target, flow.group_id)
    parts = [partition for topic in plan.topics for partition in topic.source.partitions]
    firsts = topics.list_offsets(
        source, parts, topics.EARLIEST
    )  # before the positions: what is below them was deleted unread
    committed = _positions(target, flow.positions_group)
    ends = topics.list_offsets(source, parts, topics.LATEST)
    lanes = lanes_in(protocol)
    rows = []
    for topic in plan.topics:
        for partition in topic.source.partitions:
            ours: TopicPartition = (topic.source.name, partition.number)
            theirs: TopicPartition = (topic.target, partition.number)
            position, end, first = committed.get(theirs), _offset(ends.get(ours)), _offset(firsts.get(ours))
            changed = (
                None
                if position is None
                else changed_source(ours, theirs, position.metadata, topic.source.topic_id, plan.source_cluster)
            )
            begins = position.offset if position is not None and not changed else first
            lag = None if end is None or begins is None else max(0, end - begins)
            reason = stopped.reasons.get((flow.source.alias, flow.target.alias, *theirs), "")
            reason = reason or changed or _truncated(ours, theirs, position) or _deleted(ours, position, first)
            reason = reason or ("" if position is None else stop_noted(position.metadata))
            lane = lane_of(theirs, lanes or flow.lanes)
            at = None if position is None else position.offset
            rows.append(PartitionRow(ours, theirs, lane, at, end, lag, reason))
    return FlowStatus(flow.name, flow.group_id, state, lanes, workers, rows, plan.refused, plan.warnings)


def _truncated(ours: TopicPartition, theirs: TopicPartition, position: groups.CommittedOffset | None) -> str:
    """Why a partition stopped whose source had lost copied records; "" if it had not."""
    cut = None if position is None else cut_noted(position.metadata, position.offset)
    return "" if position is None or cut is None else truncated(ours, theirs, position.offset, cut, cut)


def _deleted(place: TopicPartition, position: groups.CommittedOffset | None, first: int | None) -> str:
    """Why a partition cannot continue at its position, which the source's log does not have any more; "" if it can."""
    if position is None or first is None or position.offset >= first:
        return ""
    return (
        f"the source deleted {first - position.offset} offsets of {place[0]}-{place[1]} before they were copied: the next one "
        f"is {position.offset}, its log begins at {first}"
    )


def _offset(listed: topics.ListedOffset | None) -> int | None:
    return None if listed is None or listed.error or listed.offset < 0 else listed.offset


def _positions(target: Cluster, group_id: str) -> dict[TopicPartition, groups.CommittedOffset]:
    """The committed positions of a flow; empty if no worker has ever run. Raises ClientError."""
    try:
        return groups.fetch_offsets(target, group_id)
    except RefusedError as error:
        if error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            return {}
        raise


def read_workers(target: Cluster, group_id: str) -> tuple[str, str, list[WorkerRow]]:
    """State and protocol of the group, and its members. Raises ClientError."""
    from odradek.protocol.schemas import describe_groups as api

    response = target.ask_coordinator(
        group_id,
        api.SCHEMA,
        api.Request(groups=[group_id]),
        lambda response: [group.error_code for group in response.groups],
    )
    group = only(response.groups, f"group '{group_id}'")
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return "Dead", "", []
    if group.error_code:
        raise RefusedError(group.error_code, group.error_message, f"group '{group_id}'")
    if group.members and group.protocol_type != PROTOCOL_TYPE:
        raise ClientError(
            f"group '{group_id}' has members of type '{group.protocol_type}', not of a mirror: another application uses its id"
        )
    workers = [
        WorkerRow(
            worker_in(member.member_metadata) or member.client_id,
            member.client_host.lstrip("/"),
            sorted(assigned_by(member.member_assignment)),
        )
        for member in group.members
    ]
    return group.group_state, group.protocol_data, sorted(workers)


class Stopped:
    """The reasons of stopped partitions, from the metrics of workers. :param texts: the contents of their /metrics."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.reasons: dict[tuple[str, str, str, int], str] = {}
        for text in texts:
            for sample in _SAMPLE.finditer(text):
                labels = {name: _unescaped(value) for name, value in _LABEL.findall(sample[1])}
                key = (labels["source"], labels["target"], labels["topic"], int(labels["partition"]))
                self.reasons[key] = labels["reason"]


def _unescaped(value: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], value)
