"""The responses to requests that this broker cannot execute as a whole: because it is not the controller, or because the
metadata store does not respond.

Pure functions. As in a Kafka cluster with ZooKeeper, a request for the controller is not forwarded: the client looks up the
controller and sends the request there.
"""

from collections.abc import Callable
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas import (
    alter_user_scram_credentials,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
)

CONTROLLED_SHUTDOWN = 7
FIRST_WITH_TOPIC_IDS = 6  # of DeleteTopics
MESSAGE = "This is not the correct controller for this cluster."
CODE = ErrorCode.NOT_CONTROLLER


def can_be_refused(api_key: int) -> bool:
    """Whether the responses of an API can contain an error for the request as a whole."""
    return api_key in _OF_API or hasattr(by_key(api_key).response(), "error_code")


def refusal(api_key: int, version: int, request: Any, code: ErrorCode = CODE, message: str = MESSAGE) -> Any:
    """The response that refuses a request: an error in each of its elements, or in the response itself if that has an error
    code."""
    of_api = _OF_API.get(api_key)
    if of_api is not None:
        return of_api(request, version, code, message)
    if api_key == CONTROLLED_SHUTDOWN and code == CODE:
        code = ErrorCode.STALE_CONTROLLER_EPOCH
    response = by_key(api_key).response(error_code=code)
    if hasattr(response, "error_message"):
        response.error_message = message
    return response


def _create_topics(request: Any, _version: int, code: ErrorCode, message: str) -> Any:
    make = create_topics.Response
    return make(
        topics=[
            make.CreatableTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )


def _delete_topics(request: Any, version: int, code: ErrorCode, message: str) -> Any:
    make = delete_topics.Response
    if version < FIRST_WITH_TOPIC_IDS:
        named = [{"name": name} for name in request.topic_names]
    else:
        named = [{"name": topic.name, "topic_id": topic.topic_id} for topic in request.topics]
    return make(
        responses=[make.DeletableTopicResult(error_code=code, error_message=message, **fields) for fields in named]
    )


def _create_partitions(request: Any, _version: int, code: ErrorCode, message: str) -> Any:
    make = create_partitions.Response
    return make(
        results=[
            make.CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message)
            for topic in request.topics
        ]
    )


def _elect_leaders(request: Any, version: int, code: ErrorCode, message: str) -> Any:
    make = elect_leaders.Response
    if request.topic_partitions is None:  # all partitions
        return make(error_code=code) if version >= 1 else make()
    return make(
        replica_election_results=[
            make.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    make.PartitionResult(partition_id=partition, error_code=code, error_message=message)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topic_partitions
        ]
    )


def _alter_user_scram_credentials(request: Any, _version: int, code: ErrorCode, message: str) -> Any:
    make = alter_user_scram_credentials.Response
    users = dict.fromkeys(entry.name for entry in (*request.deletions, *request.upsertions))
    return make(
        results=[
            make.AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message) for user in users
        ]
    )


_OF_API: dict[int, Callable[[Any, int, ErrorCode, str], Any]] = {
    create_topics.API_KEY: _create_topics,
    delete_topics.API_KEY: _delete_topics,
    create_partitions.API_KEY: _create_partitions,
    elect_leaders.API_KEY: _elect_leaders,
    alter_user_scram_credentials.API_KEY: _alter_user_scram_credentials,
}
