"""What a denied request costs, and what guards leave out of responses."""

from typing import Any

from odradek.api.guards import groups, guarded, topics
from odradek.api.permits import Permits
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import delete_records, explain_group


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
    verdict = topics.of_delete_records(asked)
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
