"""Guards of APIs that name topics: partitions of denied topics are taken out of the request and answered with an error."""

import uuid
from collections.abc import Container, Hashable, Sequence, Set
from operator import attrgetter
from typing import Any, TypeVar

from odradek.api.guards.guarded import (
    Asked,
    Merged,
    Refused,
    Verdict,
    VerdictInSteps,
    appended,
    each_in_steps,
    made_in_steps,
    taken_out,
)
from odradek.api.permits import NAMES_A_STEP
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
from odradek.stepwise import Pace, Steps

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_OFFSET = -1
Name = TypeVar("Name", bound=Hashable)
FIRST_WITH_IDS = 6  # of DeleteTopics
FIRST_WITH_CONFIGS = 5  # of CreateTopics
DECISIONS_FOR_DELETION = 2


def of_list_offsets(asked: Asked) -> VerdictInSteps:
    """DESCRIBE on the topics."""
    make = list_offsets.Response

    def refuse(topic: Any) -> Any:
        partitions = yield from made_in_steps(
            topic.partitions,
            lambda partition: make.ListOffsetsPartitionResponse(
                partition_index=partition.partition_index, error_code=DENIED
            ),
        )
        return make.ListOffsetsTopicResponse(name=topic.name, partitions=partitions)

    refused = yield from taken_out(asked, Operation.DESCRIBE, refuse)
    return Merged(appended("topics", refused)) if refused else None


def of_offset_for_leader_epoch(asked: Asked) -> VerdictInSteps:
    """CLUSTER_ACTION on the cluster (followers), or DESCRIBE on the topics."""
    if asked.permits.cluster(Operation.CLUSTER_ACTION, quiet=True):
        return None
    make = offset_for_leader_epoch.Response

    def refuse(topic: Any) -> Any:
        partitions = yield from made_in_steps(
            topic.partitions,
            lambda partition: make.EpochEndOffset(partition=partition.partition, error_code=DENIED),
        )
        return make.OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)

    refused = yield from taken_out(asked, Operation.DESCRIBE, refuse, lambda topic: topic.topic)
    return Merged(appended("topics", refused)) if refused else None


def of_describe_producers(asked: Asked) -> VerdictInSteps:
    """READ on the topics; an illegal name is refused before."""
    make = describe_producers.Response

    def refuse(topic: Any) -> Any:
        partitions = yield from made_in_steps(
            topic.partition_indexes,
            lambda partition: make.PartitionResponse(partition_index=partition, error_code=DENIED),
        )
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
    partitions: dict[str, dict[int, None]] = {}
    pace = Pace(NAMES_A_STEP)
    for name in sorted(denied):
        partitions[name] = {}
        if pace.over():
            yield
    kept: list[Any] = []
    for topic in request.topics:
        if pace.over():
            yield
        if topic.name not in denied:
            kept.append(topic)
            continue
        of_topic = partitions[topic.name]
        for partition in topic.partitions:
            of_topic[partition.partition_index] = None
            if pace.over():
                yield

    def refuse(name: str) -> Steps:
        results = yield from made_in_steps(
            partitions[name],
            lambda index: make.DeleteRecordsPartitionResult(
                partition_index=index, low_watermark=NO_OFFSET, error_code=DENIED
            ),
        )
        return make.DeleteRecordsTopicResult(name=name, partitions=results)

    refused = yield from each_in_steps(partitions, refuse)
    request.topics = kept

    def merge(response: Any) -> Any:
        # A `Deleted` waits for followers with a response of its own.
        getattr(response, "response", response).topics.extend(refused)
        return response

    return Merged(merge)


def _repeated(names: Sequence[Name]) -> frozenset[Name]:
    seen: set[Name] = set()
    return frozenset(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def of_create_topics(asked: Asked) -> VerdictInSteps:
    """CREATE on the cluster or on the topics. The settings of a created topic are returned only with DESCRIBE_CONFIGS on it.

    Topics that the request repeats are refused for that, whatever the client may do.
    """
    request, permits = asked.request, asked.permits
    repeated = _repeated([topic.name for topic in request.topics])
    names = [topic.name for topic in request.topics if topic.name not in repeated]
    denied: Set[str] = frozenset()
    if not permits.cluster(Operation.CREATE, quiet=True):
        denied = yield from permits.denied_in_steps(Operation.CREATE, ResourceType.TOPIC, names)
    hidden = yield from permits.denied_in_steps(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, names, quiet=True)
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


def of_delete_topics(asked: Asked) -> VerdictInSteps:
    """DELETE on the cluster or on the topics. Without DESCRIBE, the client learns neither whether a name exists nor what name
    an id has.

    The handler receives only topics that the client may delete. A topic that does not exist now is answered here, unless the
    client may delete it: somebody could create it before the handler gets to it.
    """
    request, permits = asked.request, asked.permits
    if permits.cluster(Operation.DELETE, quiet=True):
        return None
    make = delete_topics.Response.DeletableTopicResult
    with_ids = asked.version >= FIRST_WITH_IDS
    wanted = [(one.name, one.topic_id) if with_ids else (one, ZERO_UUID) for one in _deleted(request, asked.version)]
    repeated = _repeated(wanted)
    answers: dict[int, tuple[ErrorCode, str | None]] = {}
    """The error and the shown name, by the index in the request."""
    pace = Pace(NAMES_A_STEP // DECISIONS_FOR_DELETION)
    for number, (name, topic_id) in enumerate(wanted):
        if (name is None) == (topic_id != ZERO_UUID) and (name, topic_id) not in repeated:  # the handler refuses others
            answer = _denied_by_name(asked, name) if name is not None else _denied_by_id(asked, bytes(topic_id))
            if answer is not None:
                answers[number] = answer
            if pace.over():
                yield
    if not answers:
        return None

    def result(number: int) -> Any:
        code, shown = answers[number]
        message = "Topic authorization failed." if code == DENIED else _absent(*wanted[number])
        return make(name=shown, topic_id=wanted[number][1], error_code=code, error_message=message)

    refused = yield from made_in_steps(answers, result)
    if not with_ids:
        refused.sort(key=attrgetter("name"))
    _keep(request, asked.version, answers)
    return Merged(appended("responses", refused))


def _deleted(request: Any, version: int) -> list[Any]:
    return request.topics if version >= FIRST_WITH_IDS else request.topic_names


def _keep(request: Any, version: int, answered: Container[int]) -> None:
    kept = [one for number, one in enumerate(_deleted(request, version)) if number not in answered]
    if version >= FIRST_WITH_IDS:
        request.topics = kept
    else:
        request.topic_names = kept


def _absent(name: str | None, topic_id: bytes) -> str:
    return f"The topic '{uuid.UUID(bytes=bytes(topic_id)) if name is None else name}' does not exist."


def _denied_by_name(asked: Asked, name: str) -> tuple[ErrorCode, str | None] | None:
    """The answer for a topic that the client may not delete; None: it may."""
    if not asked.permits.topic(Operation.DESCRIBE, name):
        return DENIED, name
    if asked.permits.topic(Operation.DELETE, name, quiet=not asked.exists(name)):
        return None
    return DENIED if asked.exists(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name


def _denied_by_id(asked: Asked, topic_id: bytes) -> tuple[ErrorCode, str | None] | None:
    name = asked.name_of(topic_id)
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID, None
    if asked.permits.topic(Operation.DELETE, name):
        return None
    return DENIED, name if asked.permits.topic(Operation.DESCRIBE, name) else None


def of_create_partitions(asked: Asked) -> VerdictInSteps:
    """ALTER on the topics."""
    request = asked.request
    repeated = _repeated([topic.name for topic in request.topics])
    names = (topic.name for topic in request.topics if topic.name not in repeated)
    denied = yield from asked.permits.denied_in_steps(Operation.ALTER, ResourceType.TOPIC, names)
    if not denied:
        return None
    request.topics = [topic for topic in request.topics if topic.name not in denied]
    make = create_partitions.Response.CreatePartitionsTopicResult
    return Merged(appended("results", [make(name=name, error_code=DENIED) for name in sorted(denied)]))
