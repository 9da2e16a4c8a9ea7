"""DeleteTopics (20): deletes topics. Executed by the coordinator, in its store thread.

When the response is sent, the topic does not exist for any client. Its files are renamed by then and removed later.
"""

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.guards.guarded import made_in_steps
from odradek.api.topic_steps import READ_PER_STEP, parts_of
from odradek.controller.image import Topic
from odradek.controller.outcomes import Outcome
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.schemas import delete_topics
from odradek.stepwise import Steps

FIRST_WITH_DISABLED_ERROR = 3
FIRST_WITH_IDS = 6
Result = delete_topics.Response.DeletableTopicResult


def handle(request: Any, call: CoordinatorCall) -> Steps:
    """Delete the topics that the request identifies by name or id, a few per step."""
    if call.version < FIRST_WITH_IDS:
        topics: list[str | uuid.UUID | None] = list(request.topic_names)
        fields = [(name, ZERO_UUID) for name in request.topic_names]
    else:
        fields = [(topic.name, topic.topic_id) for topic in request.topics]
        topics = [_name_or_id(name, topic_id) for name, topic_id in fields]
    image = call.view.controller.image

    def deletion_of(numbered: tuple[int, str | uuid.UUID]) -> _Deletion:
        return _Deletion(_name_of(numbered[1], image.by_id), *numbered)

    numbered = [(number, topic) for number, topic in enumerate(topics) if topic is not None]
    outcomes: dict[int, Outcome] = {}
    parts = yield from parts_of(numbered, deletion_of, lambda deletion: _partitions_of(image.topics.get(deletion.name)))
    for number, part in enumerate(parts):
        if number:
            yield
        results = call.view.controller.delete_topics([deletion.topic for deletion in part], call.charge)
        outcomes.update({deletion.number: outcome for deletion, outcome in zip(part, results, strict=True)})
    if len(topics) > READ_PER_STEP:
        yield

    def result_of(element: tuple[int, str | uuid.UUID | None]) -> Any:
        number, topic = element
        return _refused(*fields[number]) if topic is None else _result(outcomes[number], topic, call.version)

    responses = yield from made_in_steps(enumerate(topics), result_of)
    return delete_topics.Response(responses=responses)


class _Deletion(NamedTuple):
    """A topic to delete. :param number: its index in the request. :param topic: its name or id, as in the request."""

    name: str
    number: int
    topic: str | uuid.UUID


def _name_of(name_or_id: str | uuid.UUID, by_id: Mapping[uuid.UUID, Topic]) -> str:
    """The name of a topic that is identified by name or id; an unknown id as text."""
    if isinstance(name_or_id, str):
        return name_or_id
    topic = by_id.get(name_or_id)
    return str(name_or_id) if topic is None else topic.name


def _partitions_of(topic: Topic | None) -> int:
    return 1 if topic is None else len(topic.assignment.partitions)


def _name_or_id(name: str | None, topic_id: bytes) -> str | uuid.UUID | None:
    """The name or the id, if exactly one of them is set; else None."""
    if (name is None) == (topic_id == ZERO_UUID):
        return None
    return name if name is not None else uuid.UUID(bytes=topic_id)


def _refused(name: str | None, topic_id: bytes) -> Any:
    present = "both are" if name is not None else "neither is"
    return Result(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=f"A topic must be identified by its name or by its id; {present} set.",
    )


def _result(outcome: Outcome, name_or_id: str | uuid.UUID, version: int) -> Any:
    code = outcome.code
    if code == ErrorCode.TOPIC_DELETION_DISABLED and version < FIRST_WITH_DISABLED_ERROR:
        code = ErrorCode.INVALID_REQUEST
    known_id = outcome.topic_id.bytes if outcome.topic_id is not None else ZERO_UUID
    known_name = name_or_id if isinstance(name_or_id, str) else outcome.name or None
    return Result(name=known_name, topic_id=known_id, error_code=code, error_message=outcome.message)
