"""Guards of the APIs of groups: the group first, then the topics, as in Kafka."""

from collections.abc import Generator, Iterable, Set
from typing import Any

from odradek._ext.protocol.arrays import new_array
from odradek.api.guards.guarded import (
    Asked,
    Merged,
    Refused,
    Verdict,
    VerdictInSteps,
    appended,
    made_in_steps,
    shown_in_steps,
    taken_out,
)
from odradek.api.guards.refusals import refused_whole
from odradek.api.permits import NAMES_A_STEP
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.schemas import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    explain_group,
    list_tree_offsets,
    offset_commit,
    offset_delete,
    offset_fetch,
    txn_offset_commit,
)
from odradek.security.acl import Operation, ResourceType
from odradek.stepwise import Pace, Steps

GROUP_DENIED, TOPIC_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
FIRST_COMMIT_BY_ID = FIRST_FETCH_BY_ID = 10
FIRST_WITH_GROUPS = 8  # of OffsetFetch
HIDDEN = "The described group uses topics that the client is not authorized to describe."


def _name(topic: Any, by_id: bool, asked: Asked) -> str | None:
    return asked.name_of(bytes(topic.topic_id)) if by_id else topic.name


def of_offset_commit(asked: Asked) -> VerdictInSteps:
    """READ on the group and on the topics."""
    request, version, permits = asked.request, asked.version, asked.permits
    if not permits.group(Operation.READ, request.group_id):
        return (yield from refused_whole(offset_commit.API_KEY, asked, GROUP_DENIED))
    make = offset_commit.Response

    def refuse(topic: Any) -> Any:
        partitions = yield from made_in_steps(
            topic.partitions,
            lambda partition: make.OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=TOPIC_DENIED
            ),
        )
        return make.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)

    def unknown_id(topic: Any) -> Any:
        partitions = yield from made_in_steps(
            topic.partitions,
            lambda partition: make.OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_ID
            ),
        )
        return make.OffsetCommitResponseTopic(topic_id=topic.topic_id, partitions=partitions)

    by_id = version >= FIRST_COMMIT_BY_ID
    refused = yield from taken_out(
        asked,
        Operation.READ,
        refuse,
        lambda topic: _name(topic, by_id, asked),
        nameless=unknown_id,
    )
    return _of_rest(request, make, refused)


def of_txn_offset_commit(asked: Asked) -> VerdictInSteps:
    """WRITE on the transactional id, READ on the group and on the topics."""
    request, permits = asked.request, asked.permits
    if not permits.transactional_id(Operation.WRITE, request.transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return (yield from refused_whole(txn_offset_commit.API_KEY, asked, code))
    if not permits.group(Operation.READ, request.group_id):
        return (yield from refused_whole(txn_offset_commit.API_KEY, asked, GROUP_DENIED))
    make = txn_offset_commit.Response

    def refuse(topic: Any) -> Any:
        partitions = yield from made_in_steps(
            topic.partitions,
            lambda partition: make.TxnOffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=TOPIC_DENIED
            ),
        )
        return make.TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions)

    refused = yield from taken_out(asked, Operation.READ, refuse)
    return _of_rest(request, make, refused)


def _of_rest(request: Any, make: Any, refused: list[Any]) -> Verdict:
    """The verdict after `taken_out`: without a topic that is left, the handler is not called."""
    if not refused:
        return None
    return Merged(appended("topics", refused)) if request.topics else Refused(make(topics=refused))


def of_offset_fetch(asked: Asked) -> VerdictInSteps:
    """DESCRIBE on the groups and on the topics. Of all offsets of a group, those of denied topics are left out."""
    if asked.version >= FIRST_WITH_GROUPS:
        return (yield from _of_groups(asked))
    request, permits = asked.request, asked.permits
    if not permits.group(Operation.DESCRIBE, request.group_id):
        return (yield from refused_whole(offset_fetch.API_KEY, asked, GROUP_DENIED))
    make = offset_fetch.Response
    refused: list[Any] = []
    everything = request.topics is None
    if not everything:

        def refuse(topic: Any) -> Any:
            partitions = yield from made_in_steps(
                topic.partition_indexes,
                lambda partition: make.OffsetFetchResponsePartition(
                    partition_index=partition, committed_offset=-1, metadata="", error_code=TOPIC_DENIED
                ),
            )
            return make.OffsetFetchResponseTopic(name=topic.name, partitions=partitions)

        refused = yield from taken_out(asked, Operation.DESCRIBE, refuse)
        if not refused:
            return None

    def merge(response: Any) -> Steps:
        if response.error_code == ErrorCode.NONE:
            if everything:
                response.topics = yield from shown_in_steps(
                    response.topics, lambda topic: permits.topic(Operation.DESCRIBE, topic.name, quiet=True)
                )
            response.topics.extend(refused)
        return response

    return Merged(merge)


def _of_groups(asked: Asked) -> VerdictInSteps:
    """OffsetFetch from version 8 on, which names several groups."""
    request, permits = asked.request, asked.permits
    by_id = asked.version >= FIRST_FETCH_BY_ID
    make = offset_fetch.Response
    groups: dict[str, Any] = {}
    pace = Pace(NAMES_A_STEP)
    for group in request.groups:
        groups.setdefault(group.group_id, group)
        if pace.over():
            yield
    denied_groups = yield from permits.denied_in_steps(Operation.DESCRIBE, ResourceType.GROUP, groups)
    refused: dict[str, list[Any]] = {}
    everything: set[str] = set()
    allowed = new_array()
    for group_id, group in groups.items():
        if pace.over():
            yield
        if group_id in denied_groups:
            continue
        if group.topics is None:
            everything.add(group_id)
            allowed.append(group)
            continue
        kept = new_array()
        for topic in group.topics:
            name = _name(topic, by_id, asked)
            if name is not None and permits.topic(Operation.DESCRIBE, name):
                kept.append(topic)
            else:
                # The handler does not get an id without a topic either: the topic may exist when the handler looks for it.
                code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else TOPIC_DENIED
                refused.setdefault(group_id, []).append((yield from _refused_topic(topic, code)))
            if pace.over():
                yield
        allowed.append(
            offset_fetch.Request.OffsetFetchRequestGroup(
                group_id=group_id, member_id=group.member_id, member_epoch=group.member_epoch, topics=kept
            )
        )
    if not (denied_groups or refused or everything):
        return None
    request.groups = allowed

    def visible(topic: Any) -> bool:
        name = asked.name_of(bytes(topic.topic_id)) if topic.topic_id != ZERO_UUID else topic.name
        return name is not None and permits.topic(Operation.DESCRIBE, name, quiet=True)

    def merge(response: Any) -> Steps:
        answered = {}
        for group in response.groups:
            answered[group.group_id] = group
            if group.error_code == ErrorCode.NONE:
                if group.group_id in everything:
                    group.topics = yield from shown_in_steps(group.topics, visible)
                group.topics.extend(refused.get(group.group_id, ()))
            if pace.over():
                yield
        results = new_array()
        for group_id in groups:
            if group_id in denied_groups:
                results.append(make.OffsetFetchResponseGroup(group_id=group_id, error_code=GROUP_DENIED))
            elif group_id in answered:
                results.append(answered[group_id])
            if pace.over():
                yield
        response.groups = results
        return response

    return Merged(merge)


def _refused_topic(topic: Any, code: ErrorCode) -> Generator[None, None, Any]:
    make = offset_fetch.Response
    partitions = yield from made_in_steps(
        topic.partition_indexes,
        lambda partition: make.OffsetFetchResponsePartitions(
            partition_index=partition, committed_offset=-1, metadata="", error_code=code
        ),
    )
    return make.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _denied_groups(names: Iterable[str], denied: Set[str], make: Any) -> Generator[None, None, list[Any]]:
    """The results of the denied groups among these names, each once, in their order. :param make: the class of a result."""
    return made_in_steps(
        (name for name in dict.fromkeys(names) if name in denied),
        lambda name: make(group_id=name, error_code=GROUP_DENIED),
    )


def of_describe_groups(asked: Asked) -> VerdictInSteps:
    """DESCRIBE on the groups."""
    request, permits = asked.request, asked.permits
    denied = yield from permits.denied_in_steps(Operation.DESCRIBE, ResourceType.GROUP, request.groups)
    make = describe_groups.Response.DescribedGroup
    refused = yield from _denied_groups(request.groups, denied, make)
    if not refused:
        return None
    request.groups = [group_id for group_id in request.groups if group_id not in denied]

    def merge(response: Any) -> Any:
        response.groups = refused + list(response.groups)
        return response

    return Merged(merge)


def of_consumer_group_describe(asked: Asked) -> VerdictInSteps:
    """DESCRIBE on the groups and on the topics of their members: a group with a hidden topic is not described."""
    request, permits = asked.request, asked.permits
    denied = yield from permits.denied_in_steps(Operation.DESCRIBE, ResourceType.GROUP, request.group_ids)
    make = consumer_group_describe.Response.DescribedGroup
    refused = yield from _denied_groups(request.group_ids, denied, make)
    request.group_ids = [group_id for group_id in request.group_ids if group_id not in denied]

    def topics_of(group: Any) -> set[str]:
        return {
            part.topic_name
            for member in group.members
            for assignment in (member.assignment, member.target_assignment)
            for part in assignment.topic_partitions
        }

    def merge(response: Any) -> Any:
        described = []
        for group in response.groups:
            if permits.denied(Operation.DESCRIBE, ResourceType.TOPIC, topics_of(group)):
                group = make(group_id=group.group_id, error_code=TOPIC_DENIED, error_message=HIDDEN)
            described.append(group)
        response.groups = refused + described
        return response

    return Merged(merge)


def of_delete_groups(asked: Asked) -> VerdictInSteps:
    """DELETE on the groups."""
    request = asked.request
    names = request.groups_names
    denied = yield from asked.permits.denied_in_steps(Operation.DELETE, ResourceType.GROUP, names)
    if not denied:
        return None
    make = delete_groups.Response.DeletableGroupResult
    refused = yield from _denied_groups(names, denied, make)
    request.groups_names = [name for name in request.groups_names if name not in denied]
    return Merged(appended("results", refused))


def of_offset_delete(asked: Asked) -> VerdictInSteps:
    """DELETE on the group, READ on the topics."""
    request, permits = asked.request, asked.permits
    if not permits.group(Operation.DELETE, request.group_id):
        return Refused(offset_delete.Response(error_code=GROUP_DENIED))
    make = offset_delete.Response

    def refuse(topic: Any) -> Any:
        partitions = yield from made_in_steps(
            topic.partitions,
            lambda partition: make.OffsetDeleteResponsePartition(
                partition_index=partition.partition_index, error_code=TOPIC_DENIED
            ),
        )
        return make.OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)

    refused = yield from taken_out(asked, Operation.READ, refuse)
    if not refused:
        return None
    if not request.topics:
        return Refused(make(topics=refused))

    def merge(response: Any) -> Any:
        if response.error_code == ErrorCode.NONE:
            response.topics.extend(refused)
        return response

    return Merged(merge)


def of_consumer_group_heartbeat(asked: Asked) -> VerdictInSteps:
    """READ on the group, DESCRIBE on the topics to which the member subscribes by name."""
    request, permits = asked.request, asked.permits
    make = consumer_group_heartbeat.Response
    if not permits.group(Operation.READ, request.group_id):
        return Refused(make(error_code=GROUP_DENIED))
    names = request.subscribed_topic_names or ()
    if (yield from permits.denied_in_steps(Operation.DESCRIBE, ResourceType.TOPIC, names)):
        return Refused(make(error_code=TOPIC_DENIED))
    return None


def of_explain_group(asked: Asked) -> Verdict:
    """DESCRIBE on the group. Pending offsets of topics without DESCRIBE are left out, as OffsetFetch leaves them out."""
    permits = asked.permits
    if not permits.group(Operation.DESCRIBE, asked.request.group_id):
        return Refused(explain_group.Response(error_code=GROUP_DENIED, group_id=asked.request.group_id))

    def merge(response: Any) -> Steps:
        response.pending_offsets = yield from shown_in_steps(
            response.pending_offsets, lambda pending: permits.topic(Operation.DESCRIBE, pending.topic, quiet=True)
        )
        return response

    return Merged(merge)


def of_list_tree_offsets(asked: Asked) -> Verdict:
    """DESCRIBE on the groups, and on the topics: what is denied is left out; without a right for a named group, 30."""
    request, permits = asked.request, asked.permits
    if request.group_ids and permits.denied(Operation.DESCRIBE, ResourceType.GROUP, request.group_ids):
        return Refused(list_tree_offsets.Response(error_code=GROUP_DENIED))

    def merge(response: Any) -> Steps:
        response.groups = yield from shown_in_steps(
            response.groups, lambda group: permits.group(Operation.DESCRIBE, group.group_id, quiet=True)
        )
        for group in response.groups:
            group.topics = yield from shown_in_steps(
                group.topics, lambda topic: permits.topic(Operation.DESCRIBE, topic.name, quiet=True)
            )
            yield
        return response

    return Merged(merge)
