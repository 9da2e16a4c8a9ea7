"""What a denied request costs, and what guards leave out of responses."""

from collections.abc import Callable
from typing import Any

import pytest

from odradek.api.guards import groups, guarded
from odradek.api.permits import NAMES_A_STEP, Permits
from odradek.protocol import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import (
    delete_records,
    describe_producers,
    explain_group,
    list_offsets,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    txn_offset_commit,
)
from tests.security.verdicts import verdict_and_pauses, verdict_of


class _Denied(Permits):
    """Denies everything, except for resources whose names begin with "my"."""

    def allows(self, operation: int, resource_type: int, name: str, quiet: bool = False) -> bool:
        return name.startswith("my")


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
    asked = guarded.Asked(request, 2, _Denied(object(), 21), lambda _: None, lambda _: True)
    verdict = verdict_of(delete_records.API_KEY, asked)
    assert isinstance(verdict, guarded.Merged)
    assert request.topics == []
    assert wanted.reads <= 5
    refused = verdict.merge(delete_records.Response()).topics
    assert [topic.name for topic in refused] == sorted(names)
    for topic in refused:
        assert [partition.partition_index for partition in topic.partitions] == [1, 0]
        assert {partition.error_code for partition in topic.partitions} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_explain_group_hides_the_pending_offsets_of_topics_that_the_client_may_not_describe() -> None:
    request = explain_group.Request(group_id="my-group")
    asked = guarded.Asked(request, 1, _Denied(object(), 20101), lambda _: None, lambda _: True)
    verdict = groups.of_explain_group(asked)
    assert isinstance(verdict, guarded.Merged)
    pending = [
        explain_group.Response.PendingOffset(topic=topic, partition=0, offset=7, producer_id=1, overtaken=False)
        for topic in ("my-topic", "secret", "my-topic")
    ]
    response = verdict.merge(explain_group.Response(group_id="my-group", pending_offsets=pending))
    assert [one.topic for one in response.pending_offsets] == ["my-topic", "my-topic"]
    refused = groups.of_explain_group(asked._replace(request=explain_group.Request(group_id="another")))
    assert isinstance(refused, guarded.Refused)
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

    asked = guarded.Asked(request, version, Checked(object(), schema.API_KEY), lambda _: None, lambda _: True)
    verdict, pauses = verdict_and_pauses(schema.API_KEY, asked)
    assert pauses >= STEPS
    assert verdict is not None
    described = schema.Response()
    if name == "OffsetFetch":
        described.groups = [schema.Response.OffsetFetchResponseGroup(group_id="my-group")]
    response = verdict.response if isinstance(verdict, guarded.Refused) else verdict.merge(described)
    assert len(encode(response, version)) > sum(map(len, MANY))
