"""CreateTopics (19): creates topics. Executed by the coordinator, in its store thread.

Each topic of the request succeeds or fails independently. The response is sent when clients can write to the partitions. A
single broker ignores `timeout_ms`, because no work continues after the response; in a cluster it limits the wait for the
leaders, see `topic_changes.py`.
"""

from collections.abc import Set
from typing import Any

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.elements import Elements
from odradek.api.guarding import (
    Asked,
    Merged,
    VerdictInSteps,
    repeated_in,
)
from odradek.api.topics.topic_changes import AwaitedTopic
from odradek.api.topics.topic_steps import parts_of
from odradek.config import describe
from odradek.config.broker_config import BrokerConfig
from odradek.controller.image import Topic
from odradek.controller.outcomes import Outcome
from odradek.controller.topics import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.schemas import create_topics
from odradek.security.acl import Operation, ResourceType
from odradek.security.needs import (
    CLUSTER,
    TOPIC,
    TOPIC_DENIED,
    either,
)
from odradek.stepwise import Steps

Result = create_topics.Response.CreatableTopicResult
LEAST_COST = 2
"""The cost of a topic with one partition: the response describes all its settings."""
FIRST_WITH_CONFIGS = 5
API = Api(
    create_topics.SCHEMA,
    versions=(0, 7),
    place=Place.CONTROLLER,
    rights=either(
        (Operation.CREATE, CLUSTER),
        (Operation.CREATE, TOPIC),
        refused=f"{TOPIC_DENIED} for the topic",
        note="the settings of a new topic are returned with DESCRIBE_CONFIGS on topic",
    ),
    elements=30_000,
    charged_from=6,
    refused=Elements(create_topics.SCHEMA, "topics", "topics"),
)


def guard(asked: Asked) -> VerdictInSteps:
    """CREATE on the cluster or on the topics. The settings of a created topic are returned only with DESCRIBE_CONFIGS on it.

    Topics that the request repeats are refused for that, whatever the client may do.
    """
    request, permits = asked.request, asked.permits
    repeated = repeated_in([topic.name for topic in request.topics])
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
                    topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        response.topics.extend(
            make(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message="Authorization failed.")
            for name in names
            if name in denied
        )
        return response

    return Merged(merge)


def handle(request: create_topics.Request, call: CoordinatorCall) -> Steps:
    """Create the topics, or only validate the request, in steps."""
    topics: list[Any] = []
    parts = yield from parts_of(
        request.topics, _new_topic, lambda topic: max(topic.num_partitions, len(topic.assignments), LEAST_COST)
    )
    for number, part in enumerate(parts):
        if number:
            yield
        outcomes = yield from call.view.controller.create_topics_in_steps(
            part, bool(request.validate_only), call.charge
        )
        topics += [_result(outcome, request, call) for outcome in outcomes]
    return create_topics.Response(topics=topics)


def _new_topic(topic: Any) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        [(setting.name, setting.value) for setting in topic.configs],
    )


def _result(outcome: Outcome, request: create_topics.Request, call: CoordinatorCall) -> Any:
    result = Result(name=outcome.name, error_code=outcome.code, error_message=outcome.message)
    if outcome.code == ErrorCode.NONE and outcome.topic is not None:
        partitions = outcome.topic.assignment.partitions
        if outcome.topic_id is not None and not request.validate_only:
            result.topic_id = outcome.topic_id.bytes
        result.num_partitions = len(partitions)
        result.replication_factor = len(partitions[min(partitions)])
        if call.version >= 5:
            result.configs = _configs(outcome.topic, call.view.config)
    return result


def _configs(topic: Topic, config: BrokerConfig) -> list[Any]:
    return [
        create_topics.Response.CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in describe.describe_topic(config, topic.config)
    ]


def awaited(request: create_topics.Request, response: create_topics.Response) -> list[AwaitedTopic]:
    """See `odradek.api.api`."""
    if request.validate_only:
        return []
    return [
        AwaitedTopic(row.name, None if row.topic_id == ZERO_UUID else row.topic_id, row.num_partitions, row)
        for row in response.topics
        if row.error_code == ErrorCode.NONE
    ]
