"""Requests of groups over the wire, for tests that act as the members. Runs in the test's process."""

from typing import Any

from odradek._ext.api.offset_commits import partition_for
from odradek.protocol import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from odradek.protocol.schemas.consumer_protocol import Assignment, Subscription
from tests.waiting import until
from tests.wire import Wire

BUSY = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def subscription(*topics: str, version: int = 0) -> bytes:
    """What a consumer says in its JoinGroup."""
    return version.to_bytes(2, "big") + encode(Subscription(topics=list(topics)), version)


def assignment(topic: str, *partitions: int) -> bytes:
    """What a consumer is told in its SyncGroup."""
    place = Assignment.TopicPartition(topic=topic, partitions=list(partitions))
    return b"\0\0" + encode(Assignment(assigned_partitions=[place]), 0)


class GroupTalk(Wire):
    """A connection over which one or several members of groups speak. All times in ms.

    Unless a test says otherwise, members may be silent for longer than any machine keeps a test waiting.
    """

    def until_coordinated(self, group: str) -> None:
        """Return when the group has a coordinator that has loaded it, and every other group, too.

        Each partition of `__consumer_offsets` has its own time for that; the first call makes the topic.
        """
        until(lambda: self._is_loaded(group), f"a coordinator of {group}")
        count = len(self.metadata("__consumer_offsets").topics[0].partitions)
        groups = {partition_for(name, count): name for name in map(str, range(16 * count))}
        assert len(groups) == count
        for partition, other in groups.items():
            until(lambda other=other: self._is_loaded(other), f"a coordinator of partition {partition}")

    def _is_loaded(self, group: str) -> bool:
        (found,) = self.ask(
            find_coordinator.Request(key_type=0, coordinator_keys=[group]), find_coordinator.API_KEY, 4
        ).coordinators
        assert found.error_code in (ErrorCode.NONE, *BUSY), found
        return found.error_code == ErrorCode.NONE and self.fetch_offsets(group, None).error_code == ErrorCode.NONE

    def send_join(self, group: str, member_id: str = "", version: int = 9, **fields: Any) -> None:
        """A JoinGroup, sent without waiting. :param protocols: (name, subscription) each."""
        make = join_group.Request
        protocols = fields.pop("protocols", (("range", subscription("topic")),))
        fields = {"session_timeout_ms": 120_000, "rebalance_timeout_ms": 120_000, "protocol_type": "consumer"} | fields
        request = make(
            group_id=group,
            member_id=member_id,
            protocols=[make.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
            **fields,
        )
        self.send(request, join_group.API_KEY, version)

    def join(self, group: str, member_id: str = "", version: int = 9, **fields: Any) -> Any:
        """A JoinGroup; where a member id is required, a second one with it."""
        self.send_join(group, member_id, version, **fields)
        answer = self.receive()
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.send_join(group, answer.member_id, version, **fields)
            answer = self.receive()
        return answer

    def sync(self, group: str, member_id: str, generation: int, version: int = 5, **fields: Any) -> Any:
        """A SyncGroup. :param assignments: by member id."""
        self.send_sync(group, member_id, generation, version, **fields)
        return self.receive()

    def send_sync(self, group: str, member_id: str, generation: int, version: int = 5, **fields: Any) -> None:
        """A SyncGroup, sent without waiting."""
        make = sync_group.Request
        told = fields.pop("assignments", {})
        fields = {"protocol_type": "consumer", "protocol_name": "range"} | fields
        request = make(
            group_id=group,
            member_id=member_id,
            generation_id=generation,
            assignments=[make.SyncGroupRequestAssignment(member_id=one, assignment=data) for one, data in told.items()],
            **fields,
        )
        self.send(request, sync_group.API_KEY, version)

    def joined(self, group: str, version: int = 9, **fields: Any) -> tuple[str, int]:
        """Become the only member of a group, up to its assignment; member id and generation."""
        answer = self.join(group, version=version, **fields)
        assert answer.error_code == ErrorCode.NONE, answer
        told = {answer.member_id: assignment("topic", 0)}
        kind = fields.get("protocol_type", "consumer")
        synced = self.sync(
            group,
            answer.member_id,
            answer.generation_id,
            assignments=told,
            protocol_type=kind,
            protocol_name=answer.protocol_name,
        )
        assert synced.error_code == ErrorCode.NONE, synced
        return answer.member_id, answer.generation_id

    def heartbeat(self, group: str, member_id: str, generation: int, version: int = 4, **fields: Any) -> Any:
        """A Heartbeat."""
        request = heartbeat.Request(group_id=group, member_id=member_id, generation_id=generation, **fields)
        return self.ask(request, heartbeat.API_KEY, version)

    def leave(self, group: str, *members: tuple[str, str | None], version: int = 5) -> Any:
        """A LeaveGroup of (member id, instance id)."""
        make = leave_group.Request
        if version < 3:
            ((member_id, _),) = members
            return self.ask(make(group_id=group, member_id=member_id), leave_group.API_KEY, version)
        told = [make.MemberIdentity(member_id=one, group_instance_id=instance) for one, instance in members]
        return self.ask(make(group_id=group, members=told), leave_group.API_KEY, version)

    def commit(self, group: str, offsets: dict[tuple[str | bytes, int], Any], version: int = 9, **fields: Any) -> Any:
        """An OffsetCommit; an offset is a number, or a number and a note. Topics by name, or by id from 10 on."""
        make = offset_commit.Request
        fields = {"generation_id_or_member_epoch": -1, "member_id": ""} | fields
        topics: dict[str | bytes, list[Any]] = {}
        for (topic, partition), offset in offsets.items():
            number, note = offset if isinstance(offset, tuple) else (offset, "")
            one = make.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=number, committed_metadata=note
            )
            topics.setdefault(topic, []).append(one)
        told = [
            make.OffsetCommitRequestTopic(**_named(topic), partitions=partitions)
            for topic, partitions in topics.items()
        ]
        return self.ask(make(group_id=group, topics=told, **fields), offset_commit.API_KEY, version)

    def fetch_offsets(
        self,
        group: str,
        places: dict[str | bytes, list[int]] | None,
        version: int = 8,
        require_stable: bool = False,
        **fields: Any,
    ) -> Any:
        """An OffsetFetch, None for all that the group has; what is said of the group."""
        make = offset_fetch.Request
        if version < 8:
            topics = None
            if places is not None:
                topics = [make.OffsetFetchRequestTopic(name=one, partition_indexes=p) for one, p in places.items()]
            fields["require_stable"] = require_stable
            return self.ask(make(group_id=group, topics=topics, **fields), offset_fetch.API_KEY, version)
        topics = None
        if places is not None:
            topics = [make.OffsetFetchRequestTopics(**_named(one), partition_indexes=p) for one, p in places.items()]
        asked = make.OffsetFetchRequestGroup(group_id=group, topics=topics, **fields)
        request = make(groups=[asked], require_stable=require_stable)
        return self.ask(request, offset_fetch.API_KEY, version).groups[0]

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """All that a group has committed."""
        answer = self.fetch_offsets(group, None)
        assert answer.error_code == ErrorCode.NONE, answer
        return {
            (topic.name, one.partition_index): one.committed_offset
            for topic in answer.topics
            for one in topic.partitions
        }

    def delete_offsets(self, group: str, topic: str, *partitions: int) -> Any:
        """An OffsetDelete."""
        make = offset_delete.Request
        told = [make.OffsetDeleteRequestPartition(partition_index=one) for one in partitions]
        request = make(group_id=group, topics=[make.OffsetDeleteRequestTopic(name=topic, partitions=told)])
        return self.ask(request, offset_delete.API_KEY, 0)

    def describe(self, *groups: str, version: int = 6, **fields: Any) -> Any:
        """A DescribeGroups."""
        return self.ask(describe_groups.Request(groups=list(groups), **fields), describe_groups.API_KEY, version)

    def list_groups(self, version: int = 5, **fields: Any) -> Any:
        """A ListGroups."""
        return self.ask(list_groups.Request(**fields), list_groups.API_KEY, version)

    def delete_groups(self, *groups: str, version: int = 2) -> Any:
        """A DeleteGroups."""
        return self.ask(delete_groups.Request(groups_names=list(groups)), delete_groups.API_KEY, version)

    def beat(self, group: str, member_id: str, epoch: int, version: int = 1, **fields: Any) -> Any:
        """A ConsumerGroupHeartbeat; a member that joins subscribes to "topic" if nothing else is said."""
        make = consumer_group_heartbeat.Request
        if epoch == 0:
            fields = {
                "rebalance_timeout_ms": 120_000, "subscribed_topic_names": ["topic"], "topic_partitions": []
            } | fields  # fmt: skip
        return self.ask(
            make(group_id=group, member_id=member_id, member_epoch=epoch, **fields),
            consumer_group_heartbeat.API_KEY,
            version,
        )

    def topics_of_pattern(self, group: str, pattern: str, wanted: Any, member_id: str = "m") -> int:
        """Subscribe a member by a pattern, and send its heartbeats until it has partitions of exactly the topics with the ids
        `wanted`, or fail; the member's epoch."""
        fields: dict[str, Any] = {"subscribed_topic_regex": pattern, "subscribed_topic_names": None}
        answer = self.beat(group, member_id, 0, **fields)
        return self.until_assigned(group, member_id, answer, wanted)

    def until_assigned(self, group: str, member_id: str, answer: Any, wanted: Any) -> int:
        """Send heartbeats of a member after one with the response `answer`, until it has partitions of exactly the topics with
        the ids `wanted`; its epoch. It releases partitions at once."""
        held: list[Any] = []

        def assigned() -> bool:
            nonlocal answer, held
            assert answer.error_code == ErrorCode.NONE, answer
            if answer.assignment is not None:
                make = consumer_group_heartbeat.Request.TopicPartitions
                parts = answer.assignment.topic_partitions
                held = [make(topic_id=part.topic_id, partitions=part.partitions) for part in parts]
            if {bytes(part.topic_id) for part in held} == set(wanted):
                return True
            answer = self.beat(group, member_id, answer.member_epoch, topic_partitions=held)
            return False

        until(assigned, f"an assignment of {len(wanted)} topics")
        return int(answer.member_epoch)

    def describe_consumer(self, *groups: str, version: int = 1, **fields: Any) -> Any:
        """A ConsumerGroupDescribe."""
        request = consumer_group_describe.Request(group_ids=list(groups), **fields)
        return self.ask(request, consumer_group_describe.API_KEY, version)


def owned(answer: Any) -> dict[str, Any]:
    """The assignment of a ConsumerGroupHeartbeat's answer as the next heartbeat reports it."""
    make = consumer_group_heartbeat.Request.TopicPartitions
    places = answer.assignment.topic_partitions
    return {"topic_partitions": [make(topic_id=one.topic_id, partitions=one.partitions) for one in places]}


def _named(topic: str | bytes) -> dict[str, Any]:
    return {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
