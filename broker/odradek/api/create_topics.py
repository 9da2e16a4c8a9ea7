"""CreateTopics (19). Executed by the coordinator, in its controller thread.

Each topic of the request succeeds or fails for itself. The answer waits until the partitions can be written to;
`timeout_ms` is not needed for that, and the work is never left to go on behind the client's back.
"""

from typing import Any

from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.stepwise import Steps
from odradek.api.topic_steps import in_steps
from odradek.config import describe
from odradek.config.broker_config import BrokerConfig
from odradek.controller.controller import Outcome
from odradek.controller.image import Topic
from odradek.controller.topics import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import create_topics

Result = create_topics.Response.CreatableTopicResult


def handle(request: Any, call: CoordinatorCall) -> Steps:
    """Create, or only check, the topics of the request, a few at a step."""
    wishes = [
        NewTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            [(one.partition_index, one.broker_ids) for one in topic.assignments],
            [(one.name, one.value) for one in topic.configs],
        )
        for topic in request.topics
    ]
    topics: list[Any] = []
    for some in in_steps(wishes, cost=lambda wish: max(wish.num_partitions, len(wish.assignments), 1)):
        if topics:
            yield
        outcomes = call.view.controller.create_topics(some, bool(request.validate_only))
        topics += [_result(outcome, request, call) for outcome in outcomes]
    return create_topics.Response(topics=topics)


def _result(outcome: Outcome, request: Any, call: CoordinatorCall) -> Any:
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
