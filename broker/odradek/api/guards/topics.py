"""Guards of APIs that name topics: partitions of denied topics are taken out of the request and answered with an error."""

from typing import Any

from odradek.api.guards.guarded import (
    Asked,
    Merged,
    Refused,
    Verdict,
    VerdictInSteps,
    appended,
    made_in_steps,
    taken_out,
)
from odradek.controller.topic_names import why_illegal
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.schemas import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_producers,
    explain_partition,
    list_offsets,
    offset_for_leader_epoch,
)
from odradek.security.acl import Operation, ResourceType

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_OFFSET = -1
FIRST_WITH_IDS = 6  # of DeleteTopics
FIRST_WITH_CONFIGS = 5  # of CreateTopics


def of_list_offsets(asked: Asked) -> VerdictInSteps:
    """DESCRIBE on the topics."""
    make = list_offsets.Response

    def refuse(topic: Any) -> Any:
        partitions = [
            make.ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=DENIED)
            for partition in topic.partitions
        ]
        return make.ListOffsetsTopicResponse(name=topic.name, partitions=partitions)

    refused = yield from taken_out(asked, Operation.DESCRIBE, refuse)
    return Merged(appended("topics", refused)) if refused else None


def of_offset_for_leader_epoch(asked: Asked) -> VerdictInSteps:
    """CLUSTER_ACTION on the cluster (followers), or DESCRIBE on the topics."""
    if asked.permits.cluster(Operation.CLUSTER_ACTION, quiet=True):
        return None
    make = offset_for_leader_epoch.Response

    def refuse(topic: Any) -> Any:
        partitions = [
            make.EpochEndOffset(partition=partition.partition, error_code=DENIED) for partition in topic.partitions
        ]
        return make.OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)

    refused = yield from taken_out(asked, Operation.DESCRIBE, refuse, lambda topic: topic.topic)
    return Merged(appended("topics", refused)) if refused else None


def of_describe_producers(asked: Asked) -> VerdictInSteps:
    """READ on the topics; an illegal name is refused before."""
    make = describe_producers.Response

    def refuse(topic: Any) -> Any:
        partitions = [
            make.PartitionResponse(partition_index=partition, error_code=DENIED)
            for partition in topic.partition_indexes
        ]
        return make.TopicResponse(name=topic.name, partitions=partitions)

    refused = yield from taken_out(asked, Operation.READ, refuse, decides=lambda name: why_illegal(name) is None)
    return Merged(appended("topics", refused)) if refused else None


def of_explain_partition(asked: Asked) -> Verdict:
    """DESCRIBE on the topic."""
    if asked.permits.topic(Operation.DESCRIBE, asked.request.topic_name):
        return None
    return Refused(explain_partition.Response(error_code=DENIED))


def of_delete_records(asked: Asked) -> VerdictInSteps:
    """DELETE on the topics."""
    request = asked.request
    names = (topic.name for topic in request.topics)
    denied = yield from asked.permits.denied_in_steps(Operation.DELETE, ResourceType.TOPIC, names)
    if not denied:
        return None
    make = delete_records.Response
    partitions: dict[str, dict[int, None]] = {name: {} for name in sorted(denied)}
    for topic in request.topics:
        if topic.name in denied:
            partitions[topic.name].update(dict.fromkeys(one.partition_index for one in topic.partitions))

    def refuse(name: str) -> Any:
        results = [
            make.DeleteRecordsPartitionResult(partition_index=index, low_watermark=NO_OFFSET, error_code=DENIED)
            for index in partitions[name]
        ]
        return make.DeleteRecordsTopicResult(name=name, partitions=results)

    refused = yield from made_in_steps(partitions, refuse)
    request.topics = [topic for topic in request.topics if topic.name not in denied]

    def merge(response: Any) -> Any:
        # A `Deleted` waits for followers with a response of its own.
        getattr(response, "response", response).topics.extend(refused)
        return response

    return Merged(merge)


def _repeated(names: list[str]) -> frozenset[str]:
    seen: set[str] = set()
    return frozenset(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def of_create_topics(asked: Asked) -> Verdict:
    """CREATE on the cluster or on the topics. The settings of a created topic are returned only with DESCRIBE_CONFIGS on it.

    Topics that the request repeats are refused for that, whatever the client may do.
    """
    request, permits = asked.request, asked.permits
    repeated = _repeated([topic.name for topic in request.topics])
    names = [topic.name for topic in request.topics if topic.name not in repeated]
    denied: frozenset[str] = frozenset()
    if not permits.cluster(Operation.CREATE, quiet=True):
        denied = permits.denied(Operation.CREATE, ResourceType.TOPIC, names)
    hidden = permits.denied(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, names, quiet=True)
    if not denied and not hidden:
        return None
    request.topics = [topic for topic in request.topics if topic.name not in denied]
    make = create_topics.Response.CreatableTopicResult

    def merge(response: Any) -> Any:
        for topic in response.topics:
            if topic.name in hidden and topic.error_code == ErrorCode.NONE:
                topic.num_partitions = topic.replication_factor = -1
                if asked.version >= FIRST_WITH_CONFIGS:
                    topic.configs = []
                    topic.topic_config_error_code = DENIED
        response.topics.extend(
            make(name=name, error_code=DENIED, error_message="Authorization failed.")
            for name in names
            if name in denied
        )
        return response

    return Merged(merge)


def of_delete_topics(asked: Asked) -> Verdict:
    """DELETE on the cluster or on the topics. Without DESCRIBE, the client learns neither whether a name exists nor what name
    an id has."""
    request, permits = asked.request, asked.permits
    if permits.cluster(Operation.DELETE, quiet=True):
        return None
    make = delete_topics.Response.DeletableTopicResult
    refused: list[Any] = []

    def is_denied(name: str) -> bool:
        """Of a topic that is identified by its name."""
        if not permits.topic(Operation.DESCRIBE, name):
            return True
        return asked.exists(name) and not permits.topic(Operation.DELETE, name)

    if asked.version < FIRST_WITH_IDS:
        repeated = _repeated(list(request.topic_names))
        denied = {name for name in request.topic_names if name not in repeated and is_denied(name)}
        refused = [make(name=name, error_code=DENIED, error_message=None) for name in sorted(denied)]
        request.topic_names = [name for name in request.topic_names if name not in denied]
    else:
        kept = []
        repeated = _repeated([str((topic.name, topic.topic_id)) for topic in request.topics])
        for topic in request.topics:
            by_id = topic.name is None
            valid = by_id != (topic.topic_id == ZERO_UUID) and str((topic.name, topic.topic_id)) not in repeated
            name = asked.name_of(bytes(topic.topic_id)) if by_id else topic.name
            if (
                not valid
                or name is None
                or not (is_denied(name) if not by_id else not permits.topic(Operation.DELETE, name))
            ):
                kept.append(topic)
                continue
            shown = name if not by_id or permits.topic(Operation.DESCRIBE, name) else None
            refused.append(make(name=shown, topic_id=topic.topic_id, error_code=DENIED, error_message=None))
        request.topics = kept
    if not refused:
        return None
    for result in refused:
        result.error_message = "Topic authorization failed."
    return Merged(appended("responses", refused))


def of_create_partitions(asked: Asked) -> Verdict:
    """ALTER on the topics."""
    request = asked.request
    repeated = _repeated([topic.name for topic in request.topics])
    denied = asked.permits.denied(
        Operation.ALTER, ResourceType.TOPIC, (topic.name for topic in request.topics if topic.name not in repeated)
    )
    if not denied:
        return None
    request.topics = [topic for topic in request.topics if topic.name not in denied]
    make = create_partitions.Response.CreatePartitionsTopicResult
    return Merged(appended("results", [make(name=name, error_code=DENIED) for name in sorted(denied)]))
