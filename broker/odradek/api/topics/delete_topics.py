"""DeleteTopics (20): deletes topics. Executed by the coordinator, in its store thread.

When the response is sent, the topic does not exist for any client. Its files are renamed by then and removed later.
"""

import uuid
from collections.abc import Container, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.elements import Elements
from odradek.api.guarding import (
    Asked,
    Merged,
    VerdictInSteps,
    appended,
    made_in_steps,
    repeated_in,
)
from odradek.api.permits import NAMES_A_STEP
from odradek.api.topics.topic_changes import DELETED, AwaitedTopic
from odradek.api.topics.topic_steps import READ_PER_STEP, parts_of
from odradek.controller.image import Topic
from odradek.controller.outcomes import Outcome
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.schemas import delete_topics
from odradek.security.acl import Operation
from odradek.security.needs import (
    CLUSTER,
    TOPIC,
    TOPIC_DENIED,
    either,
)
from odradek.stepwise import Pace, Steps

FIRST_WITH_DISABLED_ERROR = 3
FIRST_WITH_IDS = 6
Result = delete_topics.Response.DeletableTopicResult
DECISIONS_FOR_DELETION = 2
API = Api(
    delete_topics.SCHEMA,
    versions=(0, 6),
    place=Place.CONTROLLER,
    rights=either(
        (Operation.DELETE, CLUSTER),
        (Operation.DELETE, TOPIC),
        refused=f"{TOPIC_DENIED} for the topic",
        note="by id: without DESCRIBE on topic, the response has no name",
    ),
    charged_from=5,
    refused={
        0: Elements(delete_topics.SCHEMA, "topic_names", "responses"),
        FIRST_WITH_IDS: Elements(delete_topics.SCHEMA, "topics", "responses"),
    },
)


def guard(asked: Asked) -> VerdictInSteps:
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
    repeated = repeated_in(wanted)
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
        message = (
            "Topic authorization failed." if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else _absent(*wanted[number])
        )
        return make(name=shown, topic_id=wanted[number][1], error_code=code, error_message=message)

    refused = yield from made_in_steps(answers, result)
    if not with_ids:
        refused.sort(key=attrgetter("name"))
    _keep(request, asked.version, answers)
    return Merged(appended("responses", refused))


def _deleted(request: delete_topics.Request, version: int) -> list[Any]:
    return request.topics if version >= FIRST_WITH_IDS else request.topic_names


def _keep(request: delete_topics.Request, version: int, answered: Container[int]) -> None:
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
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, name
    if asked.permits.topic(Operation.DELETE, name, quiet=not asked.exists(name)):
        return None
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if asked.exists(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name


def _denied_by_id(asked: Asked, topic_id: bytes) -> tuple[ErrorCode, str | None] | None:
    name = asked.name_of(topic_id)
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID, None
    if asked.permits.topic(Operation.DELETE, name):
        return None
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED, name if asked.permits.topic(Operation.DESCRIBE, name) else None


def handle(request: delete_topics.Request, call: CoordinatorCall) -> Steps:
    """Delete the topics that the request identifies by name or id, a few per step."""
    if call.version < FIRST_WITH_IDS:
        topics: list[str | uuid.UUID | None] = list(request.topic_names)
        fields: list[tuple[str | None, bytes]] = [(name, ZERO_UUID) for name in request.topic_names]
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


def awaited(_request: delete_topics.Request, response: delete_topics.Response) -> list[AwaitedTopic]:
    """See `odradek.api.api`."""
    return [
        AwaitedTopic(row.name, None if row.topic_id == ZERO_UUID else row.topic_id, DELETED, row)
        for row in response.responses
        if row.error_code == ErrorCode.NONE and row.name is not None
    ]
