"""DeleteTopics (20). Executed by the coordinator, in its controller thread.

A topic is gone for every client when the answer comes; its files are renamed by then and removed later.
"""

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.stepwise import Steps
from odradek.api.topic_steps import in_steps
from odradek.controller.controller import Outcome
from odradek.controller.image import Topic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.schemas import delete_topics

FIRST_WITH_DISABLED_ERROR = 3
FIRST_WITH_IDS = 6
Result = delete_topics.Response.DeletableTopicResult


def handle(request: Any, call: CoordinatorCall) -> Steps:
    """Delete the topics that the request names, or gives the ids of, a few at a step."""
    if call.version < FIRST_WITH_IDS:
        wishes: list[str | uuid.UUID | None] = list(request.topic_names)
        asked = [(name, ZERO_UUID) for name in request.topic_names]
    else:
        asked = [(one.name, one.topic_id) for one in request.topics]
        wishes = [_wish(name, topic_id) for name, topic_id in asked]
    image = call.view.controller.image
    deletions = [
        _Deletion(_name_of(wish, image.by_id), number, wish) for number, wish in enumerate(wishes) if wish is not None
    ]
    outcomes: dict[int, Outcome] = {}
    for some in in_steps(deletions, cost=lambda one: _partitions_of(image.topics.get(one.name))):
        if outcomes:
            yield
        told = call.view.controller.delete_topics([one.wish for one in some])
        outcomes.update({one.number: outcome for one, outcome in zip(some, told, strict=True)})
    return delete_topics.Response(
        responses=[
            _refused(name, topic_id) if wish is None else _result(outcomes[number], wish, call.version)
            for number, (wish, (name, topic_id)) in enumerate(zip(wishes, asked, strict=True))
        ]
    )


class _Deletion(NamedTuple):
    """A topic to be deleted. :param number: its place in the request."""

    name: str
    number: int
    wish: str | uuid.UUID


def _name_of(wish: str | uuid.UUID, by_id: Mapping[uuid.UUID, Topic]) -> str:
    """The name of the topic, whichever way it is given; of an unknown id the id itself."""
    if isinstance(wish, str):
        return wish
    topic = by_id.get(wish)
    return str(wish) if topic is None else topic.name


def _partitions_of(topic: Topic | None) -> int:
    return 1 if topic is None else len(topic.assignment.partitions)


def _wish(name: str | None, topic_id: bytes) -> str | uuid.UUID | None:
    """The name or the id, whichever alone is given; None if that is not so."""
    if (name is None) == (topic_id == ZERO_UUID):
        return None
    return name if name is not None else uuid.UUID(bytes=topic_id)


def _refused(name: str | None, topic_id: bytes) -> Any:
    wrong = "both" if name is not None else "neither"
    return Result(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.INVALID_REQUEST,
        error_message=f"A topic must be given by its name or by its id; {wrong} is set.",
    )


def _result(outcome: Outcome, wish: str | uuid.UUID, version: int) -> Any:
    code = outcome.code
    if code == ErrorCode.TOPIC_DELETION_DISABLED and version < FIRST_WITH_DISABLED_ERROR:
        code = ErrorCode.INVALID_REQUEST
    known_id = outcome.topic_id.bytes if outcome.topic_id is not None else ZERO_UUID
    known_name = wish if isinstance(wish, str) else outcome.name or None
    return Result(name=known_name, topic_id=known_id, error_code=code, error_message=outcome.message)
