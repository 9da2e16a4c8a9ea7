"""CreateTopics (19): creates topics. Executed by the coordinator, in its store thread.

Each topic of the request succeeds or fails independently. The response is sent when clients can write to the partitions. A
single broker ignores `timeout_ms`, because no work continues after the response; in a cluster it limits the wait for the
leaders, see `topic_changes.py`.
"""

from typing import Any

from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.topic_steps import parts_of
from odradek.config import describe
from odradek.config.broker_config import BrokerConfig
from odradek.controller.image import Topic
from odradek.controller.outcomes import Outcome
from odradek.controller.topics import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import create_topics
from odradek.stepwise import Steps

Result = create_topics.Response.CreatableTopicResult
LEAST_COST = 2
"""The cost of a topic with one partition: the response describes all its settings."""


def handle(request: Any, call: CoordinatorCall) -> Steps:
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
