"""What a denied request costs, and what guards leave out of responses."""

from collections.abc import Callable, Generator
from copy import copy
from typing import Any

import pytest

from odradek.api import guarding
from odradek.api.groups import explain_group as explaining
from odradek.api.permits import NAMES_A_STEP, Permits
from odradek.api.table import function_of
from odradek.protocol import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import (
    delete_records,
    delete_topics,
    describe_producers,
    explain_group,
    list_offsets,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    txn_offset_commit,
)
from odradek.security.acl import Operation, ResourceType
from odradek.stepwise import Stepwise
from tests.security.access_requests import GONE, NAMES
from tests.security.access_requests import REQUESTS as OF_EACH_API
from tests.security.verdicts import GUARDED, verdict_and_pauses, verdict_of


class _Denied(Permits):
    """Denies everything, except for resources whose names begin with "my"."""

    def allows(self, operation: int, resource_type: int, name: str, quiet: bool = False) -> bool:
        return name.startswith("my")

    def any_topic(self, operation: int) -> bool:
        return False


def merged(verdict: guarding.Merged, response: Any) -> Any:
    """The response that the guard makes from the handler's."""
    return Stepwise(guarding.merged(verdict.merge, response)).finish()


class _Counted(list[Any]):
    """A list that counts how often it is read from its beginning."""

    reads = 0

    def __iter__(self) -> Any:
        self.reads += 1
        return super().__iter__()


def test_the_topics_of_a_denied_delete_records_are_not_read_again_for_each_of_them() -> None:
    make = delete_records.Request
    names = [f"t{number}" for number in range(100)]
    wanted = _Counted(
        make.DeleteRecordsTopic(name=name, partitions=[make.DeleteRecordsPartition(partition_index=index)])
        for index in (1, 0, 1)
        for name in names
    )
    request = make(topics=wanted)
    asked = guarding.Asked(request, 2, _Denied(object(), 21), lambda _: None, lambda _: True)
    verdict = verdict_of(delete_records.API_KEY, asked)
    assert isinstance(verdict, guarding.Merged)
    assert request.topics == []
    assert wanted.reads <= 5
    refused = verdict.merge(delete_records.Response()).topics
    assert [topic.name for topic in refused] == sorted(names)
    for topic in refused:
        assert [partition.partition_index for partition in topic.partitions] == [1, 0]
        assert {partition.error_code for partition in topic.partitions} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_explain_group_hides_the_pending_offsets_of_topics_that_the_client_may_not_describe() -> None:
    request = explain_group.Request(group_id="my-group")
    asked = guarding.Asked(request, 1, _Denied(object(), 20101), lambda _: None, lambda _: True)
    verdict = explaining.guard(asked)
    assert isinstance(verdict, guarding.Merged)
    pending = [
        explain_group.Response.PendingOffset(topic=topic, partition=0, offset=7, producer_id=1, overtaken=False)
        for topic in ("my-topic", "secret", "my-topic")
    ]
    response = Stepwise(guarding.merged(verdict.merge, explain_group.Response(pending_offsets=pending))).finish()
    assert [one.topic for one in response.pending_offsets] == ["my-topic", "my-topic"]
    refused = explaining.guard(asked._replace(request=explain_group.Request(group_id="another")))
    assert isinstance(refused, guarding.Refused)
    assert refused.response.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


STEPS = 10
MANY = [f"t{number}" for number in range(STEPS * NAMES_A_STEP)]


def _commit(schema: Any) -> Callable[[], Any]:
    request = schema.Request
    topic = next(getattr(request, name) for name in dir(request) if name.endswith("OffsetCommitRequestTopic"))
    of_producer = (
        {"transactional_id": "my-id", "producer_id": 1, "producer_epoch": 0} if "Txn" in topic.__name__ else {}
    )
    return lambda: request(
        group_id="my-group", topics=[topic(name=name, partitions=[]) for name in MANY], **of_producer
    )


REQUESTS: dict[str, tuple[Any, int, Callable[[], Any]]] = {
    "ListOffsets": (list_offsets, 7, lambda: list_offsets.Request(
        replica_id=-1, topics=[list_offsets.Request.ListOffsetsTopic(name=name, partitions=[]) for name in MANY])),
    "OffsetCommit": (offset_commit, 9, _commit(offset_commit)),
    "OffsetFetch of one group": (offset_fetch, 7, lambda: offset_fetch.Request(
        group_id="my-group",
        topics=[offset_fetch.Request.OffsetFetchRequestTopic(name=name, partition_indexes=[]) for name in MANY])),
    "OffsetFetch": (offset_fetch, 9, lambda: offset_fetch.Request(groups=[offset_fetch.Request.OffsetFetchRequestGroup(
        group_id="my-group",
        topics=[offset_fetch.Request.OffsetFetchRequestTopics(name=name, partition_indexes=[]) for name in MANY])])),
    "OffsetFetch of many groups": (offset_fetch, 9, lambda: offset_fetch.Request(
        groups=[offset_fetch.Request.OffsetFetchRequestGroup(group_id=name, topics=[]) for name in MANY])),
    "DeleteRecords": (delete_records, 2, lambda: delete_records.Request(
        topics=[delete_records.Request.DeleteRecordsTopic(name=name, partitions=[]) for name in MANY])),
    "OffsetForLeaderEpoch": (offset_for_leader_epoch, 4, lambda: offset_for_leader_epoch.Request(
        topics=[offset_for_leader_epoch.Request.OffsetForLeaderTopic(topic=name, partitions=[]) for name in MANY])),
    "TxnOffsetCommit": (txn_offset_commit, 3, _commit(txn_offset_commit)),
    "OffsetDelete": (offset_delete, 0, lambda: offset_delete.Request(
        group_id="my-group",
        topics=[offset_delete.Request.OffsetDeleteRequestTopic(name=name, partitions=[]) for name in MANY])),
    "DescribeProducers": (describe_producers, 0, lambda: describe_producers.Request(
        topics=[describe_producers.Request.TopicRequest(name=name, partition_indexes=[]) for name in MANY])),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
def test_a_guard_pauses_while_it_denies_many_names_and_changes_nothing_before_its_end(name: str) -> None:
    schema, version, make = REQUESTS[name]
    request = make()
    before = encode(request, version)

    class Checked(_Denied):
        def allows(self, operation: int, resource_type: int, name: str, quiet: bool = False) -> bool:
            if name == MANY[-1]:
                assert encode(request, version) == before
            return super().allows(operation, resource_type, name, quiet)

    asked = guarding.Asked(request, version, Checked(object(), schema.API_KEY), lambda _: None, lambda _: True)
    verdict, pauses = verdict_and_pauses(schema.API_KEY, asked)
    assert pauses >= STEPS
    assert verdict is not None
    described = schema.Response()
    if name == "OffsetFetch":
        described.groups = [schema.Response.OffsetFetchResponseGroup(group_id="my-group")]
    response = verdict.response if isinstance(verdict, guarding.Refused) else merged(verdict, described)
    assert len(encode(response, version)) > sum(map(len, MANY))


IDS = {name: bytes(15) + bytes([number]) for number, name in enumerate((*NAMES, *GONE), 2)}
NAME_OF = {topic_id: name for name, topic_id in IDS.items()}


class _Only(Permits):
    """Allows everything with groups and ids, DESCRIBE on every topic, and anything with a topic whose name begins with
    "mine"."""

    def allows(self, operation: int, resource_type: int, name: str, quiet: bool = False) -> bool:
        if resource_type == ResourceType.TOPIC:
            return operation == Operation.DESCRIBE or name.startswith("mine")
        return resource_type != ResourceType.CLUSTER

    def any_topic(self, operation: int) -> bool:
        return True


class _Nearly(_Only):
    """Without DESCRIBE on other topics."""

    def allows(self, operation: int, resource_type: int, name: str, quiet: bool = False) -> bool:
        describes = resource_type == ResourceType.TOPIC and operation == Operation.DESCRIBE
        return name.startswith("mine") if describes else super().allows(operation, resource_type, name, quiet)


@pytest.mark.parametrize("permits", [_Only, _Nearly])
@pytest.mark.parametrize("name", [name for name, build in OF_EACH_API.items() if build(IDS)[1] in GUARDED])
def test_what_a_guard_lets_pass_needs_no_other_right_when_topics_are_created_meanwhile(
    name: str, permits: type[Permits]
) -> None:
    """The guard decides while no topic exists, and once more when all do: the second time it finds nothing to refuse."""
    request, key, version = OF_EACH_API[name](IDS)
    rights = permits(object(), key)
    first = verdict_of(key, guarding.Asked(request, version, rights, lambda _: None, lambda _: False))
    if isinstance(first, guarding.Refused):
        return
    passed = encode(request, version)
    second = verdict_of(key, guarding.Asked(request, version, rights, NAME_OF.get, lambda _: True))
    assert not isinstance(second, guarding.Refused)
    assert encode(request, version) == passed


def test_a_topic_that_does_not_exist_is_unknown_to_a_client_that_may_only_describe_it() -> None:
    make = delete_topics.Request.DeleteTopicState
    absent, foreign, own = bytes(15) + b"a", bytes(15) + b"f", bytes(15) + b"o"
    by_name = ("theirs-absent", "theirs", "mine", "mine-absent")
    request = delete_topics.Request(
        topics=[make(name=name) for name in by_name]
        + [make(name=None, topic_id=topic_id) for topic_id in (absent, foreign, own)]
    )
    asked = guarding.Asked(
        request,
        6,
        _Only(object(), 20),
        {foreign: "theirs", own: "mine"}.get,
        lambda name: not name.endswith("absent"),
    )
    verdict = verdict_of(20, asked)
    assert isinstance(verdict, guarding.Merged)
    assert [(topic.name, bytes(topic.topic_id)) for topic in request.topics] == [
        ("mine", bytes(16)),
        ("mine-absent", bytes(16)),
        (None, own),
    ]
    results = verdict.merge(delete_topics.Response()).responses
    assert [(result.name, bytes(result.topic_id), result.error_code, result.error_message) for result in results] == [
        ("theirs-absent", bytes(16), 3, "The topic 'theirs-absent' does not exist."),
        ("theirs", bytes(16), 29, "Topic authorization failed."),
        (None, absent, 100, "The topic '00000000-0000-0000-0000-000000000061' does not exist."),
        ("theirs", foreign, 29, "Topic authorization failed."),
    ]


MORE = 4 * NAMES_A_STEP
DECISIONS_A_STEP = 2 * NAMES_A_STEP
"""DeleteTopics and CreateTopics need two decisions for a name."""


def _many(elements: list[Any]) -> list[Any]:
    """As many elements as `MORE`, like these, with names of their own."""
    if not elements:
        return elements
    made = []
    for number in range(MORE):
        element = elements[number % len(elements)]
        if isinstance(element, str):
            made.append(f"{element}-{number}")
            continue
        element = copy(element)
        for field in ("name", "topic", "group_id", "resource_name", "transactional_id"):
            if isinstance(getattr(element, field, None), str):
                setattr(element, field, f"{getattr(element, field)}-{number}")
        made.append(element)
    return made


@pytest.mark.parametrize("permits", [_Denied, _Only, _Nearly])
@pytest.mark.parametrize("name", [name for name, build in OF_EACH_API.items() if build(IDS)[1] in GUARDED])
def test_no_guard_makes_many_decisions_in_one_step(name: str, permits: type[Permits]) -> None:
    request, key, version = OF_EACH_API[name](IDS)
    for field in type(request).__slots__ if hasattr(type(request), "__slots__") else vars(request):
        value = getattr(request, field, None)
        if isinstance(value, list):
            setattr(request, field, _many(value))
    decisions = longest = 0

    class Counting(permits):  # type: ignore[misc, valid-type]
        def allows(self, operation: int, resource_type: int, name: str, quiet: bool = False) -> bool:
            nonlocal decisions
            decisions += 1
            return bool(super().allows(operation, resource_type, name, quiet))

    asked = guarding.Asked(request, version, Counting(object(), key), NAME_OF.get, lambda _: True)
    found = function_of(key, "guard")(asked)
    if isinstance(found, Generator):
        for _ in found:
            longest, decisions = max(longest, decisions), 0
    assert max(longest, decisions) <= DECISIONS_A_STEP + 10
