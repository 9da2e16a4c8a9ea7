"""The same conversations of groups with this broker and with a real Kafka: the responses must be equal, field by field.

A conversation is a function that gets a connection (and can open more), and yields the responses. Each broker chooses its
member ids, so they are compared by the order of their appearance. Times, addresses and error messages are not compared.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.testing import Broker
from tests.api.group_talk import GroupTalk, assignment, owned, subscription
from tests.api.test_against_kafka import comparable, differences
from tests.clients.kafka_peer import Peer
from tests.waiting import until
from tests.wire import NOBODY

pytestmark = [pytest.mark.xdist_group("groups-against-kafka"), pytest.mark.timeout(900), pytest.mark.java]

CONFIG = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "group.consumer.assignors": "uniform,range",
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.assignor.offload.enable": "false",
}
FENCED, NEW, GONE = "no-such-member", "", "no-such-group"


class Side:
    """One of the two brokers."""

    def __init__(self, host: str, port: int, stack: ExitStack) -> None:
        self._at = host, port
        self._stack = stack
        self.ids: dict[str, bytes] = {}
        with self.connect() as wire:
            for name, partitions in (("topic", 3), ("other", 1)):
                self.ids[name] = wire.create(name, partitions)
            wire.until_coordinated("first")

    def connect(self) -> GroupTalk:
        """A connection, which ends with the module."""
        return self._stack.enter_context(GroupTalk(*self._at))

    def told(self, conversation: Callable[..., Iterator[Any]], *arguments: Any) -> list[Any]:
        """What the broker answered in a conversation, to be compared."""
        names = {one: name for name, one in self.ids.items()}
        group = "-".join([conversation.__name__, *map(str, arguments)])
        found = [
            comparable(answer, names) if hasattr(answer, "_structure") else answer
            for answer in conversation(self, self.connect(), group, *arguments)
        ]
        return labelled(found, {})


def labelled(value: Any, labels: dict[str, Any]) -> Any:
    """Member ids as m0, m1, ... in the order in which they appear; epochs since the first."""
    if isinstance(value, list | tuple):
        return [labelled(one, labels) for one in value]
    if isinstance(value, dict):
        value = value | {field: since_first(value[field], labels) for field in EPOCHS if field in value}
        if "generation_id" in value and "first epoch" in labels:  # a classic member in such a group
            value = value | {"generation_id": since_first(value["generation_id"], labels)}
        for field in ("member_id", "leader"):
            one = value.get(field)
            if isinstance(one, str) and len(one) > 20:
                labels.setdefault(one, f"m{sum(isinstance(label, str) for label in labels.values())}")
        for field in ("groups", "results"):
            if value.get(field):
                value = value | {field: sorted(value[field], key=lambda one: one["group_id"])}
        if "members" in value:
            value = value | {"members": sorted(value["members"], key=lambda one: labels.get(one["member_id"], ""))}
        return {field: labelled(one, labels) for field, one in value.items()}
    return labels.get(value, value) if isinstance(value, str) else value


UNKNOWN_GROUP = f"error_code: {ErrorCode.UNKNOWN_MEMBER_ID}, Kafka: {ErrorCode.GROUP_ID_NOT_FOUND}"
"""A difference on purpose: a member of a group that is unknown is made to join again (docs/decisions/0012)."""
EPOCHS = ("member_epoch", "group_epoch", "assignment_epoch")
"""Of KIP-848: Kafka 4.3 begins with 2, Kafka before, and this broker, with 1. They are compared from the first on."""


def since_first(epoch: int, labels: dict[str, Any]) -> int:
    return epoch if epoch <= 0 else epoch - labels.setdefault("first epoch", epoch)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Odradek and Kafka."""
    with ExitStack() as stack:
        theirs = stack.enter_context(Peer(tmp_path_factory.mktemp("kafka"), CONFIG))
        ours = stack.enter_context(Broker(CONFIG, directory=tmp_path_factory.mktemp("odradek")))
        host, _, port = theirs.bootstrap_servers.rpartition(":")
        yield Side(ours.host, ours.port, stack), Side(host, int(port), stack)


Conversation = Iterator[Any]


def a_member_alone(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    """Joins, syncs, beats, commits, reads, leaves; `version` of JoinGroup, the others in step."""
    answer = one.join(group, version=version)
    yield answer
    me, generation = answer.member_id, answer.generation_id
    yield one.sync(group, me, generation, version=min(version, 5), assignments={me: b"mine"})
    yield one.heartbeat(group, me, generation, version=min(version, 4))
    held = {"member_id": me, "generation_id_or_member_epoch": generation}
    yield one.commit(group, {("topic", 0): 5, ("topic", 1): (6, "note")}, version=max(2, min(version, 9)), **held)
    yield one.fetch_offsets(group, {"topic": [0, 1, 2]}, version=max(1, version))
    yield one.describe(group, version=min(version, 6))
    yield one.leave(group, (me, None), version=min(version, 5))
    yield one.describe(group, version=min(version, 6))
    yield one.delete_groups(group, version=min(version, 2))
    yield one.describe(group, version=min(version, 6))


def joins_that_are_refused(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    send: list[tuple[str, dict[str, Any]]] = [
        (group, {"member_id": FENCED}),
        ("", {}),
        (group, {"session_timeout_ms": 1}),
        (group, {"session_timeout_ms": 1_800_001}),
        (group, {"protocols": ()}),
        (group, {"protocol_type": ""}),
    ]
    for name, fields in send:
        one.send_join(name, version=version, **fields)
        yield one.receive()
    one.joined(group)
    for fields in (
        {"protocols": (("other", b""),)},
        {"protocol_type": "connect"},
        {"member_id": FENCED},
        {"protocols": (("other", b""),), "member_id": FENCED},
    ):
        one.send_join(group, version=version, **fields)
        yield one.receive()


def static_members(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    answer = one.join(group, version=version, group_instance_id="rock")
    yield answer
    old, generation = answer.member_id, answer.generation_id
    yield one.sync(group, old, generation, assignments={old: b"mine"}, group_instance_id="rock")
    one.send_join(group, FENCED, version=version, group_instance_id="rock")
    yield one.receive()
    one.send_join(group, FENCED, version=version, group_instance_id="stone")
    yield one.receive()
    answer = one.join(group, version=version, group_instance_id="rock")  # it comes back, with the same subscription
    yield answer
    new, generation = answer.member_id, answer.generation_id
    yield one.sync(group, new, generation, group_instance_id="rock")
    yield one.sync(group, old, generation, group_instance_id="rock")
    yield one.heartbeat(group, old, generation, group_instance_id="rock")
    yield one.heartbeat(group, new, generation, group_instance_id="stone")
    yield one.heartbeat(group, new, generation, group_instance_id="rock")
    held = {"generation_id_or_member_epoch": generation, "group_instance_id": "rock"}
    yield one.commit(group, {("topic", 0): 5}, member_id=old, **held)
    yield one.commit(group, {("topic", 0): 6}, member_id=new, **held)
    yield one.describe(group)
    yield one.leave(group, (old, "rock"), ("", "stone"), (new, None), ("", "rock"), version=min(version, 5))
    yield one.describe(group)


def commits(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    name: Callable[[str], str | bytes] = (lambda topic: side.ids.get(topic, NOBODY)) if version >= 10 else str
    topic, gone = name("topic"), name("no-such-topic")
    member = {"member_id": FENCED, "generation_id_or_member_epoch": 3}
    yield one.commit(group, {(topic, 0): 5}, version=version, **member)
    yield one.commit(group, {(topic, 0): 5}, version=version, member_id=FENCED)
    yield one.commit(group, {(topic, 0): 5, (topic, 7): 5, (gone, 0): 1, (topic, -1): 3}, version=version)
    yield one.commit(group, {(topic, 1): (5, "n" * 4097), (topic, 2): (5, "é" * 4096)}, version=version)
    yield one.commit(group, {}, version=version)
    yield one.commit(group, {(topic, 1): -5}, version=version)
    yield one.commit("", {(topic, 1): 5}, version=version)
    yield one.fetch_offsets("", None)
    yield one.fetch_offsets(group, None)
    me, generation = one.joined(group)
    for fields in (
        {},
        {"member_id": me},
        {"member_id": me, "generation_id_or_member_epoch": generation + 1},
        {"member_id": FENCED, "generation_id_or_member_epoch": generation},
        {"generation_id_or_member_epoch": generation},
        {"member_id": me, "generation_id_or_member_epoch": generation},
    ):
        yield one.commit(group, {(topic, 0): 9}, version=version, **fields)
    yield one.fetch_offsets(group, None)


def commits_of_instances(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    yield one.commit(group, {("topic", 0): 9}, version=version, group_instance_id="rock")
    me, generation = one.joined(group, group_instance_id="rock")
    held = {"member_id": me, "generation_id_or_member_epoch": generation}
    yield one.commit(group, {("topic", 0): 9}, version=version, group_instance_id="stone", **held)
    yield one.commit(group, {("topic", 0): 9}, version=version, group_instance_id="rock")
    yield one.commit(group, {("topic", 0): 9}, version=version, group_instance_id="rock", **held)
    yield one.commit(group, {("topic", 0): 9}, version=version, **held)


def fetches(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    name: Callable[[str], str | bytes] = (lambda topic: side.ids.get(topic, NOBODY)) if version >= 10 else str
    yield one.fetch_offsets(group, {name("topic"): [0, 9], name("no-such-topic"): [0]}, version=version)
    one.commit(group, {("topic", 0): 5, ("other", 0): (7, "note")})
    yield one.fetch_offsets(group, {name("topic"): [0, 1, 9], name("other"): [0]}, version=version)
    if version >= 2:
        yield one.fetch_offsets(group, None, version=version)
    yield one.fetch_offsets(group, {}, version=version)
    if version >= 9:
        for fields in ({"member_id": FENCED}, {"member_id": FENCED, "member_epoch": 4}, {"member_epoch": 4}):
            yield one.fetch_offsets(group, {name("topic"): [0]}, version=version, **fields)


def strangers(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    """Who is no member of a group that there is not, that has only offsets, and that has members."""
    for step in range(3):
        if step == 1:
            one.commit(group, {("topic", 0): 5})
        me, generation = one.joined(group) if step == 2 else (FENCED, 1)
        for group_id in (group, ""):
            yield one.heartbeat(group_id, FENCED, 1, version=min(version, 4))
            yield one.heartbeat(group_id, NEW, 1, version=min(version, 4))
            yield one.sync(group_id, FENCED, 1, version=version)
            yield one.leave(group_id, (FENCED, None), version=version)
        yield one.heartbeat(group, me, generation + 1, version=min(version, 4))
        yield one.heartbeat(group, me, -1, version=min(version, 4))
        yield one.sync(group, me, generation + 1, version=version)
        if version >= 5:
            yield one.sync(group, me, generation, version=version, protocol_name="roundrobin")
            yield one.sync(group, me, generation, version=version, protocol_type="connect")
            yield one.sync(group, me, generation, version=version, protocol_name=None)
        if version >= 3:
            yield one.leave(group, version=version)
        yield one.describe(group, GONE, "", version=version)
        yield one.describe(group, version=max(version, 3), include_authorized_operations=True)


def a_rebalance_of_two(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    me, generation = one.joined(group, version=version)
    yield [{"member_id": me}]
    two = side.connect()
    two.send_join(group, version=version)
    if version >= 4:
        asked = two.receive()
        yield asked
        yield one.heartbeat(group, me, generation)  # nothing has happened yet
        two.send_join(group, asked.member_id, version=version)
    while (beat := one.heartbeat(group, me, generation)).error_code == 0:
        pass  # until the other join has come
    yield beat
    yield one.describe(group)
    yield one.commit(group, {("topic", 0): 1}, member_id=me, generation_id_or_member_epoch=generation)
    yield one.sync(group, me, generation)
    mine = one.join(group, me, version=version)
    yours = two.receive()
    yield mine
    yield yours
    other, generation = yours.member_id, yours.generation_id
    yield one.describe(group)
    yield one.heartbeat(group, me, generation)
    yield one.commit(group, {("topic", 0): 2}, member_id=me, generation_id_or_member_epoch=generation)
    yield one.commit(group, {("topic", 0): 2}, member_id=me, generation_id_or_member_epoch=generation - 1)
    two.send_join(group, other, version=version)  # the answer was lost
    yield two.receive()
    two.send_sync(group, other, generation)
    yield one.sync(group, me, generation, assignments={me: b"mine", other: b"yours", FENCED: b"?"})
    yield two.receive()
    yield two.sync(group, other, generation)  # again
    two.send_join(group, other, version=version)  # as before, of who is no leader: nothing changes
    yield two.receive()
    yield one.list_groups(states_filter=["Stable"], types_filter=["classic"]).groups == []
    yield one.delete_groups(group)
    yield one.leave(group, (me, None))
    yield two.heartbeat(group, other, generation)
    alone = two.join(group, other, version=version, protocols=(("roundrobin", b"new"), ("range", b"")))
    yield alone
    yield two.leave(group, (other, None), (other, None))
    yield one.describe(group)


def votes_for_an_assignor(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    three = [one, side.connect(), side.connect()]
    likes = (("a", "b", "c"), ("c", "b"), ("b", "c"))
    answers = []
    for talk, names in zip(three, likes, strict=True):
        talk.send_join(group, version=3, protocols=[(name, name.encode()) for name in names])
        if not answers:
            answers.append(talk.receive())
    leader = answers[0]
    yield leader
    # the others wait until the leader joins again
    while one.heartbeat(group, leader.member_id, leader.generation_id).error_code == 0:
        pass
    while len(one.describe(group).groups[0].members) < 3:
        pass
    one.send_join(group, leader.member_id, version=3, protocols=[(name, name.encode()) for name in likes[0]])
    again = one.receive()
    yield again.protocol_name, len(again.members), again.generation_id
    for talk in three[1:]:
        yield talk.receive().protocol_name


def deletions(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    yield one.delete_groups(group, "", version=version)
    yield one.delete_offsets(group, "topic", 0)
    one.commit(group, {("topic", 0): 5, ("topic", 1): 6, ("other", 0): 7})
    yield one.delete_offsets(group, "topic", 0, 9)
    yield one.delete_offsets(group, "no-such-topic", 0)
    yield one.delete_offsets("", "topic", 0)
    yield one.fetch_offsets(group, None)
    me, _ = one.joined(group, protocols=(("range", subscription("topic")),))
    yield one.delete_offsets(group, "topic", 1)
    yield one.delete_offsets(group, "other", 0)
    yield one.delete_groups(group, version=version)
    yield one.fetch_offsets(group, None)
    yield one.leave(group, (me, None))
    yield one.delete_groups(group, group, version=version)
    yield one.fetch_offsets(group, None)
    raw, _ = one.joined(group, protocol_type="connect", protocols=(("range", b"raw"),))
    yield one.delete_offsets(group, "topic", 1)
    yield one.leave(group, (raw, None))


def lists(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    def ours(answer: Any) -> list[tuple[Any, ...]]:
        return sorted(
            (found.group_id, found.protocol_type, found.group_state, found.group_type)
            for found in answer.groups
            if found.group_id.startswith(group)
        )

    one.commit(f"{group}-offsets", {("topic", 0): 1})
    one.joined(f"{group}-stable")
    me, _ = one.joined(f"{group}-left")
    one.leave(f"{group}-left", (me, None))
    one.send_join(f"{group}-expected", version=9)
    one.receive()
    # Kafka asks for a member id before the new group is committed, and lists it afterwards.
    until(
        lambda: f"{group}-expected" in {found.group_id for found in one.list_groups().groups},
        f"the group {group}-expected is listed",
    )
    one.beat(f"{group}-modern", "m" * 22, 0)
    yield ours(one.list_groups(version=version))
    if version >= 4:
        for states in (["Stable"], ["stable"], ["Empty"], ["nonsense"], ["Empty", "Stable"]):
            yield ours(one.list_groups(version=version, states_filter=states))
    if version >= 5:
        for kinds in (["classic"], ["Consumer"], ["nonsense"]):
            yield ours(one.list_groups(version=version, types_filter=kinds))


def a_consumer_group(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    me, you = "A" * 22, "B" * 22
    mine = one.beat(group, me, 0, version=version)
    yield mine
    yield one.describe_consumer(group, version=version)
    yield one.describe(group)
    yield one.beat(group, me, mine.member_epoch, version=version)
    yield one.beat(group, me, mine.member_epoch, version=version, **owned(mine))
    yield one.beat(group, me, mine.member_epoch + 1, version=version)
    for fields in ({}, {"member_id": me}, {"member_id": me, "generation_id_or_member_epoch": mine.member_epoch}):
        for commit_version in (8, 9):
            yield one.commit(group, {("topic", 0): 1}, version=commit_version, **fields)
    for epoch in (mine.member_epoch + 1, mine.member_epoch - 1):
        for commit_version in (8, 9):
            held = {"member_id": me, "generation_id_or_member_epoch": epoch}
            yield one.commit(group, {("topic", 0): 2}, version=commit_version, **held)
    yield one.commit(group, {("topic", 0): 2}, member_id=FENCED, generation_id_or_member_epoch=mine.member_epoch)
    for fields in (
        {},
        {"member_id": me, "member_epoch": mine.member_epoch},
        {"member_id": me, "member_epoch": mine.member_epoch + 1},
        {"member_id": me, "member_epoch": -1},
        {"member_id": FENCED, "member_epoch": mine.member_epoch},
    ):
        yield one.fetch_offsets(group, {"topic": [0]}, version=9, **fields)
    yield one.delete_offsets(group, "topic", 0)
    yield one.delete_offsets(group, "other", 0)
    yield one.delete_groups(group)
    yours = one.beat(group, you, 0, version=version)
    yield len(yours.assignment.topic_partitions), {"member_epoch": yours.member_epoch}, yours.error_code
    asked = one.beat(group, me, mine.member_epoch, version=version)
    yield (
        {"member_epoch": asked.member_epoch},
        sum(len(place.partitions) for place in asked.assignment.topic_partitions),
    )
    settled = one.beat(group, me, mine.member_epoch, version=version, **owned(asked))
    yield {"member_epoch": settled.member_epoch}, settled.error_code
    got = one.beat(group, you, yours.member_epoch, version=version, topic_partitions=[])
    yield {"member_epoch": got.member_epoch}, sum(len(place.partitions) for place in got.assignment.topic_partitions)
    state = one.describe_consumer(group, version=version).groups[0]
    yield state.group_state, state.assignor_name, state.group_epoch - state.assignment_epoch
    yield one.beat(group, me, -1, version=version)
    yield one.beat(group, me, 3, version=version)
    yield one.beat(group, you, -1, version=version)
    yield one.describe_consumer(group, version=version)
    yield one.commit(group, {("topic", 0): 2})
    yield one.delete_groups(group)
    yield one.describe_consumer(group, GONE, "", version=version)


def beats_that_are_refused(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    me = "C" * 22
    for group_id, member_id, epoch, fields in (
        ("", me, 0, {}),
        (group, "", 0, {}) if version >= 1 else (group, me, -3, {}),
        (group, me, -3, {}),
        (group, me, 1, {}),
        (group, me, -1, {}),
        (group, me, -2, {}),
        (group, me, -2, {"instance_id": "rock"}),
        (group, me, 0, {"instance_id": ""}),
        (group, me, 0, {"rack_id": ""}),
        (group, me, 0, {"rebalance_timeout_ms": -1}),
        (group, me, 0, {"topic_partitions": None}),
        (group, me, 0, {"subscribed_topic_names": None}),
        (group, me, 0, {"server_assignor": "no-such-assignor"}),
        (group, me, 0, {"server_assignor": ""}),
        (group, me, 0, {"subscribed_topic_regex": "(", "subscribed_topic_names": None})
        if version >= 1
        else (group, me, 1, {}),
    ):
        yield one.beat(group_id, member_id, epoch, version=version, **fields)
    yield one.describe_consumer(group)
    yield [found.group_id for found in one.list_groups().groups if found.group_id == group]
    joined = one.beat(group, me, 0, version=version, instance_id="rock")
    yield joined
    yield one.beat(group, "D" * 22, 0, version=version, instance_id="rock")
    yield one.beat(group, me, joined.member_epoch, version=version, instance_id="stone")
    yield one.beat(group, me, joined.member_epoch + 3, version=version, instance_id="rock")
    yield one.beat(group, me, -2, version=version, instance_id="rock")
    yield one.describe_consumer(group)
    yield one.beat(group, "D" * 22, 0, version=version, instance_id="rock")
    yield one.beat(group, me, joined.member_epoch, version=version, instance_id="rock")
    yield one.describe_consumer(group)
    yield one.leave(group, (FENCED, "rock"), ("", "stone"))
    yield one.leave(group, ("", "rock"))
    yield one.describe_consumer(group)
    one.send_join(group, version=9, protocol_type="connect")
    yield one.receive()


def a_classic_member_in_a_consumer_group(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    modern = "E" * 22
    first = one.beat(group, modern, 0)
    yield first
    answer = one.join(group, version=version, protocols=(("range", subscription("topic", version=1)),))
    yield answer
    me, generation = answer.member_id, answer.generation_id
    yield one.sync(group, me, generation)
    yield one.heartbeat(group, me, generation)
    yield one.sync(group, me, generation + 1)
    yield one.sync(group, FENCED, generation)
    yield one.heartbeat(group, modern, first.member_epoch)
    yield one.commit(
        group, {("topic", 0): 1}, version=8, member_id=modern, generation_id_or_member_epoch=first.member_epoch
    )
    yield one.commit(group, {("topic", 0): 1}, version=8, member_id=me, generation_id_or_member_epoch=generation + 1)
    yield one.commit(group, {("topic", 0): 1}, version=9, member_id=me, generation_id_or_member_epoch=generation + 1)
    asked = one.beat(group, modern, first.member_epoch)
    yield (
        {"member_epoch": asked.member_epoch},
        sum(len(place.partitions) for place in asked.assignment.topic_partitions),
    )
    settled = one.beat(group, modern, first.member_epoch, **owned(asked))
    yield settled.error_code, {"member_epoch": settled.member_epoch}
    yield one.heartbeat(group, me, generation)
    again = one.join(group, me, version=version, protocols=(("range", subscription("topic", version=1)),))
    yield again
    synced = one.sync(group, me, again.generation_id)
    yield synced.error_code, len(synced.assignment)
    yield one.heartbeat(group, me, again.generation_id)
    yield one.commit(
        group, {("topic", 0): 4}, version=8, member_id=me, generation_id_or_member_epoch=again.generation_id
    )
    yield one.describe_consumer(group)
    yield one.beat(group, modern, -1)  # the last one of the newer protocol: the group is classic again
    yield [(found.group_state, found.group_type) for found in one.list_groups().groups if found.group_id == group]
    yield one.heartbeat(group, me, again.generation_id)


def commits_of_one_who_lags(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    me, other = "F" * 22, "G" * 22
    epoch = one.beat(group, me, 0).member_epoch
    yield one.beat(group, other, 0).error_code
    asked = one.beat(group, me, epoch)
    kept = {p for place in asked.assignment.topic_partitions for p in place.partitions}
    lost = set(range(3)) - kept
    yield len(kept)

    def commit(*partitions: int, back: int = 0) -> Any:
        places = {("topic", p): 1 for p in partitions}
        answer = one.commit(group, places, version=version, member_id=me, generation_id_or_member_epoch=epoch - back)
        return sorted({p.error_code for topic in answer.topics for p in topic.partitions})

    yield commit(*lost), commit(*kept)  # it has not given them up yet
    settled = one.beat(group, me, epoch, **owned(asked))
    yield settled.error_code, settled.member_epoch - epoch
    yield commit(*kept), commit(*lost), commit(*kept, *lost), commit(*kept, back=1), commit(*kept, back=-2)
    yield one.fetch_offsets(group, {"topic": [0]}, version=9, member_id=me, member_epoch=epoch)
    again = one.beat(group, me, 0)  # it lost all that it had
    yield again.error_code, again.member_epoch - epoch, len(again.assignment.topic_partitions)
    yield one.beat(group, me, -1, instance_id="rock")


def an_instance_that_a_classic_member_has(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    answer = one.join(group, version=version, group_instance_id="rock")
    told = {answer.member_id: assignment("topic", 0)}
    yield one.sync(group, answer.member_id, answer.generation_id, assignments=told, group_instance_id="rock")
    yield one.beat(group, "H" * 22, 0, instance_id="rock")
    yield [(found.group_state, found.group_type) for found in one.list_groups().groups if found.group_id == group]
    yield one.heartbeat(group, answer.member_id, answer.generation_id, group_instance_id="rock")


def ids_of_topics(side: Side, one: GroupTalk, group: str, version: int) -> Conversation:
    topic = side.ids["topic"]
    yield one.commit(group, {(topic, 0): 3, (NOBODY, 0): 4, (bytes(16), 0): 5}, version=version)
    yield one.fetch_offsets(group, {topic: [0], NOBODY: [0, 1], bytes(16): [0]}, version=version)
    yield one.fetch_offsets(group, None, version=version)
    yield one.fetch_offsets(group, None, version=9)


CONVERSATIONS: tuple[tuple[Callable[..., Conversation], tuple[int, ...]], ...] = (
    (a_member_alone, tuple(range(10))),
    (joins_that_are_refused, (0, 3, 4, 5, 7, 9)),
    (static_members, (5, 6, 7, 8, 9)),
    (commits, (2, 5, 8, 9, 10)),
    (commits_of_instances, (7, 8, 9)),
    (fetches, tuple(range(1, 11))),
    (strangers, (0, 2, 3, 5)),
    (a_rebalance_of_two, (0, 3, 4, 9)),
    (votes_for_an_assignor, (3,)),
    (deletions, (0, 2)),
    (lists, tuple(range(6))),
    (a_consumer_group, (0, 1)),
    (beats_that_are_refused, (0, 1)),
    (a_classic_member_in_a_consumer_group, (5, 9)),
    (commits_of_one_who_lags, (9,)),
    (an_instance_that_a_classic_member_has, (9,)),
    (ids_of_topics, (10,)),
)


@pytest.mark.parametrize(
    ("conversation", "version"),
    [(one, version) for one, versions in CONVERSATIONS for version in versions],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_the_answers_are_kafkas(
    sides: tuple[Side, Side], conversation: Callable[..., Conversation], version: int
) -> None:
    ours, theirs = (side.told(conversation, version) for side in sides)
    assert len(ours) == len(theirs)
    found = [f"answer {index}{one}" for index in range(len(ours)) for one in differences(ours[index], theirs[index])]
    found = [one for one in found if not one.endswith(UNKNOWN_GROUP)]
    assert not found, "\n".join(found)
