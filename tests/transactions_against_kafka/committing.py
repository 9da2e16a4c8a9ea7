"""Conversations about offsets in transactions: TxnOffsetCommit, and OffsetFetch with RequireStable."""

from __future__ import annotations

from typing import Any

from tests.api.group_talk import assignment
from tests.transactions_against_kafka.adding import STATES, wrong_ones
from tests.transactions_against_kafka.sides import Rows, Stage, rows
from tests.transactions_against_kafka.transaction_talk import Producer
from tests.waiting import until

VERSIONS = (0, 1, 2, 3, 4, 5)
STRANGER = "no-such-member"


def added(stage: Stage, producer: Producer, group: str, version: int) -> None:
    """Add the group to the transaction where TxnOffsetCommit does not."""
    if version < 5:
        stage.talk.add_offsets(producer, group, 3)


def seen(stage: Stage, group: str, topic: str, partitions: list[int]) -> None:
    """What readers of the group's offsets get: with and without RequireStable, for some partitions and for all."""
    for stable in (True, False):
        stage.talk.offsets_of(group, {topic: partitions}, stable)
        stage.talk.offsets_of(group, None, stable)


def offsets_of_a_transaction(stage: Stage, version: int, commits: bool) -> None:
    talk = stage.talk
    topic, group = stage.topic(partitions=3), stage.word("group")
    producer = stage.started()
    with talk.quietly():
        talk.commit(group, {(topic, 0): 1})
    added(stage, producer, group, version)
    talk.commit_in_transaction(producer, group, {(topic, 0): 5, (topic, 1): (6, "note")}, version)
    seen(stage, group, topic, [0, 1, 2])
    talk.commit_in_transaction(producer, group, {(topic, 0): 7}, version)
    talk.describe_transactions(producer.transactional_id)
    talk.end(producer, commits, version if version >= 5 else 4)
    seen(stage, group, topic, [0, 1, 2])
    talk.describe(group)


def stable_offsets(stage: Stage, version: int) -> None:
    """Each version of OffsetFetch while offsets are pending, and afterwards."""
    talk = stage.talk
    topic, group = stage.topic(partitions=3), stage.word("group")
    producer = stage.started()
    with talk.quietly():
        talk.commit(group, {(topic, 0): 1, (topic, 2): 3})
        talk.commit_in_transaction(producer, group, {(topic, 0): 5, (topic, 1): 6})
    for stable in (True, False) if version >= 7 else (False,):
        talk.offsets_of(group, {topic: [0, 1, 2, 7]}, stable, version)
        if version >= 2:
            talk.offsets_of(group, None, stable, version)
    with talk.quietly():
        talk.end(producer, True)
    talk.offsets_of(group, {topic: [0, 1, 2, 7]}, version >= 7, version)


def commits_in_a_state(stage: Stage, state: str, version: int) -> None:
    """The group is not in the transaction: wrong producers, then the right one."""
    talk = stage.talk
    topic, group = stage.topic(), stage.word("group")
    producer = stage.brought(state, ends=4 if version < 5 else 5)
    for wrong in wrong_ones(producer, state):
        talk.commit_in_transaction(wrong, group, {(topic, 0): 5}, version, patient=False)
    talk.commit_in_transaction(producer, group, {(topic, 0): 5}, version, patient=False)
    talk.describe_transactions(producer.transactional_id)
    seen(stage, group, topic, [0])


def commits_of_what_is_not_there(stage: Stage, version: int) -> None:
    """Topics, partitions, groups, notes that are too long; whether the transaction has the group."""
    talk = stage.talk
    topic, group = stage.topic(partitions=2), stage.word("group")
    producer = stage.started()
    wishes: tuple[dict[tuple[str, int], Any], ...] = (
        {("no-such-topic", 0): 5},
        {(topic, 7): 5, (topic, -1): 5},
        {},
        {(topic, 0): 5, (topic, 7): 5, ("no-such-topic", 0): 5},
        {(topic, 0): (5, "n" * 4097), (topic, 1): 6},
        {(topic, 0): -5},
    )
    for in_transaction in (False, True):
        if in_transaction:
            added(stage, producer, group, version)
        for wish in wishes:
            talk.commit_in_transaction(producer, group, wish, version)
    added(stage, producer, "", version)
    talk.commit_in_transaction(producer, "", {(topic, 0): 5}, version)
    seen(stage, group, topic, [0, 1])


def commits_of_members(stage: Stage, version: int) -> None:
    """Generation, member id and instance id of a classic group that is not there, is simple, and has members."""
    talk = stage.talk
    topic = stage.topic()
    producer = stage.started()

    def commit(group: str, **fields: Any) -> None:
        talk.commit_in_transaction(producer, group, {(topic, 0): 5}, version, **fields)

    for word in ("absent", "simple"):
        group = stage.word(word)
        with talk.quietly():
            if word == "simple":
                talk.commit(group, {(topic, 0): 1})
        added(stage, producer, group, version)
        commit(group, generation_id=3, member_id=STRANGER)
        commit(group, generation_id=0)
        commit(group, generation_id=-1, member_id=STRANGER)
        commit(group, group_instance_id="rock")
        commit(group)
    group = stage.word("members")
    with talk.quietly():
        me, generation = talk.joined(group, group_instance_id="rock")
    added(stage, producer, group, version)
    for fields in (
        {},
        {"member_id": me},
        {"generation_id": generation},
        {"member_id": me, "generation_id": generation + 1},
        {"member_id": me, "generation_id": generation - 1},
        {"member_id": STRANGER, "generation_id": generation},
        {"member_id": me, "generation_id": generation},
        {"member_id": me, "generation_id": generation, "group_instance_id": "rock"},
        {"member_id": me, "generation_id": generation, "group_instance_id": "stone"},
        {"member_id": STRANGER, "generation_id": generation, "group_instance_id": "rock"},
        {"group_instance_id": "rock"},
        {"generation_id": -1, "member_id": ""},
    ):
        commit(group, **fields)
    with talk.quietly():  # the group rebalances
        other = stage.connect()
        other.heard = None
        other.send_join(group, version=3)
        while talk.heartbeat(group, me, generation).error_code == 0:
            pass
    commit(group, member_id=me, generation_id=generation)
    commit(group, member_id=me, generation_id=generation - 1)


def commits_of_consumers(stage: Stage, version: int) -> None:
    """Members of a group of KIP-848."""
    talk = stage.talk
    topic, group = stage.topic(), stage.word("group")
    producer = stage.started()
    member = "A" * 20
    with talk.quietly():
        epoch = talk.beat(group, member, 0, subscribed_topic_names=[topic]).member_epoch
    stage.transcript.first_epoch = epoch
    added(stage, producer, group, version)
    for fields in (
        {},
        {"member_id": member},
        {"member_id": member, "generation_id": epoch + 1},
        {"member_id": STRANGER, "generation_id": epoch},
        {"member_id": member, "generation_id": epoch},
    ):
        answer = talk.commit_in_transaction(producer, group, {(topic, 0): 5}, version, **fields)
        assert answer.topics
    talk.end(producer, True, 5 if version >= 5 else 4)
    seen(stage, group, topic, [0])


def a_commit_on_top_of_a_pending_one(stage: Stage, version: int, commits: bool) -> None:
    """A plain commit, which is later and stays; and a second one of the transaction after it."""
    talk = stage.talk
    topic, group = stage.topic(partitions=2), stage.word("group")
    producer = stage.started()
    added(stage, producer, group, version)
    talk.commit_in_transaction(producer, group, {(topic, 0): 5, (topic, 1): 5}, version)
    talk.commit(group, {(topic, 0): 9, (topic, 1): 9})
    talk.commit_in_transaction(producer, group, {(topic, 1): 6}, version)
    seen(stage, group, topic, [0, 1])
    talk.end(producer, commits, 5 if version >= 5 else 4)
    seen(stage, group, topic, [0, 1])


def two_producers_of_a_group(stage: Stage, version: int, first_commits: bool, second_commits: bool) -> None:
    """The same partition is pending of two; each ends."""
    talk = stage.talk
    topic, group = stage.topic(), stage.word("group")
    one, two = stage.started("one"), stage.started("two")
    for producer, offset in ((one, 5), (two, 6)):
        added(stage, producer, group, version)
        talk.commit_in_transaction(producer, group, {(topic, 0): offset}, version)
    for producer, commits in ((two, second_commits), (one, first_commits)):
        talk.end(producer, commits, 5 if version >= 5 else 4)
        seen(stage, group, topic, [0])


def deletions_of_pending_offsets(stage: Stage, what: str) -> None:
    """OffsetDelete, DeleteGroups and the deletion of the topic, while an offset is pending; then a commit."""
    talk = stage.talk
    topic, group = stage.topic(partitions=2), stage.word("group")
    producer = stage.started()
    talk.commit(group, {(topic, 1): 1})
    talk.commit_in_transaction(producer, group, {(topic, 0): 5, (topic, 1): 6})
    if what == "offset":
        talk.delete_offsets(group, topic, 0)
    elif what == "group":
        talk.delete_groups(group)
    else:
        talk.delete(topic)
        with talk.quietly():  # Kafka's group coordinator learns of it some moments later
            until(lambda: not talk.committed(group), f"the offsets of {topic} are gone")
    talk.describe(group)
    talk.offsets_of(group, None, stable=True)
    talk.end(producer, True)
    talk.offsets_of(group, None, stable=True)
    talk.describe(group)


def a_fenced_producer_of_offsets(stage: Stage, version: int) -> None:
    """Another instance begins; what was pending is gone."""
    talk = stage.talk
    topic, group = stage.topic(), stage.word("group")
    old = stage.started()
    added(stage, old, group, version)
    talk.commit_in_transaction(old, group, {(topic, 0): 5}, version)
    with talk.quietly():
        new = talk.init(old.transactional_id)
    seen(stage, group, topic, [0])
    talk.commit_in_transaction(old, group, {(topic, 0): 6}, version)
    added(stage, new, group, version)
    talk.commit_in_transaction(new, group, {(topic, 0): 7}, version)
    talk.commit_in_transaction(old, group, {(topic, 0): 6}, version)
    talk.end(new, True, 5 if version >= 5 else 4)
    talk.commit_in_transaction(new, group, {(topic, 0): 8}, version)
    seen(stage, group, topic, [0])


def pending_offsets_while_a_transaction_ends(stage: Stage, commits: bool) -> None:
    """Prepare: the markers are held, offsets stay unstable."""
    talk = stage.talk
    topic, group = stage.topic(), stage.word("group")
    with talk.quietly():
        data = stage.side.held_topic(stage.word("data"))
    producer = stage.started()
    talk.add(producer, (data, 0))
    talk.commit_in_transaction(producer, group, {(topic, 0): 5})
    with talk.quietly():
        stage.side.hold()
    ended = talk.end(producer, commits, completes=False)
    talk.commit_in_transaction(producer, group, {(topic, 0): 6}, 3, patient=False)
    talk.commit_in_transaction(ended, group, {(topic, 0): 6}, 5, patient=False)
    stage.complete(ended)
    seen(stage, group, topic, [0])


def a_member_commits(stage: Stage) -> None:
    """A consumer, a transformation, a producer: all that a client sends, with protocol 2."""
    talk = stage.talk
    source, target, group = stage.topic("source"), stage.topic("target"), stage.word("group")
    with talk.quietly():
        answer = talk.join(group)
        me, generation = answer.member_id, answer.generation_id
        talk.sync(group, me, generation, assignments={me: assignment(source, 0)})
    producer = stage.started()
    for offset in range(3):
        talk.send_batch(producer, (target, 0), 0, b"%d" % offset)
        held = {"member_id": me, "generation_id": generation}
        talk.commit_in_transaction(producer, group, {(source, 0): offset}, **held)
        producer = talk.end(producer, offset != 1)
        talk.offsets_of(group, {source: [0]}, stable=True)
    talk.fetch_at((target, 0))


ROWS: Rows = [
    *rows(offsets_of_a_transaction, *((version, commits) for version in VERSIONS for commits in (True, False))),
    *rows(stable_offsets, *range(1, 10)),
    *rows(commits_in_a_state, *((state, version) for state in STATES for version in VERSIONS)),
    *rows(commits_of_what_is_not_there, *VERSIONS),
    *rows(commits_of_members, 3, 4, 5),
    *rows(commits_of_consumers, 3, 4, 5),
    *rows(a_commit_on_top_of_a_pending_one, *((version, commits) for version in (3, 5) for commits in (True, False))),
    *rows(
        two_producers_of_a_group,
        *((version, one, two) for version in (3, 5) for one in (True, False) for two in (True, False)),
    ),
    *rows(deletions_of_pending_offsets, "offset", "group", "topic"),
    *rows(a_fenced_producer_of_offsets, 0, 3, 4, 5),
    *rows(a_member_commits),
    *rows(offsets_of_a_transaction, (3, True), (3, False), levels=(1, 0)),
    # the partition of __consumer_offsets must be on the broker that can write its markers
    *rows(pending_offsets_while_a_transaction_ends, True, False, holds=True),
]
