"""Both server-side assignors, on random groups: complete, within subscriptions, balanced, sticky."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.groups.assignors import ASSIGNORS, Subscriber, assign_range, assign_uniform

TOPICS = [bytes([n]) * 16 for n in range(4)]
COUNTS = st.fixed_dictionaries({}, optional={topic: st.integers(1, 9) for topic in TOPICS})
SUBSCRIPTIONS = st.lists(st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=7)


def members_of(subscriptions, owned=None):
    owned = owned or {}
    return [
        Subscriber(f"m{n}", None, topics, frozenset(owned.get(f"m{n}", ()))) for n, topics in enumerate(subscriptions)
    ]


@pytest.mark.parametrize("name", ASSIGNORS)
@given(subscriptions=SUBSCRIPTIONS, counts=COUNTS)
def test_each_partition_that_somebody_reads_has_one_reader(name, subscriptions, counts):
    members = members_of(subscriptions)
    assignment = ASSIGNORS[name](members, counts)
    assert set(assignment) == {member.member_id for member in members}
    assigned = [place for places in assignment.values() for place in places]
    read = {topic for member in members for topic in member.topics}
    assert sorted(assigned) == sorted((t, p) for t, count in counts.items() if t in read for p in range(count))
    for member in members:
        assert all(topic in member.topics for topic, _ in assignment[member.member_id])


@given(subscriptions=SUBSCRIPTIONS, counts=COUNTS)
def test_uniform_leaves_no_move_that_would_even_out_more(subscriptions, counts):
    members = members_of(subscriptions)
    assignment = assign_uniform(members, counts)
    for giver in members:
        for taker in members:
            movable = [place for place in assignment[giver.member_id] if place[0] in taker.topics]
            assert not movable or len(assignment[giver.member_id]) - len(assignment[taker.member_id]) <= 1


@given(count=st.integers(1, 8), counts=COUNTS, gone=st.integers(0, 7))
def test_uniform_moves_only_what_balance_needs(count, counts, gone):
    everything = frozenset(TOPICS)
    before = assign_uniform(members_of([everything] * count), counts)
    again = assign_uniform(members_of([everything] * count, before), counts)
    assert again == before
    total = sum(counts.values())
    more = assign_uniform(members_of([everything] * (count + 1), before), counts)
    moved = sum(len(before[member_id] - more[member_id]) for member_id in before)
    assert moved == len(more[f"m{count}"])
    assert len(more[f"m{count}"]) in (total // (count + 1), total // (count + 1) + 1)


def test_range_gives_equal_partitions_of_several_topics_to_one_member():
    members = members_of([frozenset(TOPICS[:2])] * 3)
    assignment = assign_range(members, {TOPICS[0]: 7, TOPICS[1]: 7})
    assert [sorted(p for t, p in assignment[f"m{n}"] if t == TOPICS[0]) for n in range(3)] == [
        [0, 1, 2],
        [3, 4],
        [5, 6],
    ]
    for places in assignment.values():
        assert {p for t, p in places if t == TOPICS[0]} == {p for t, p in places if t == TOPICS[1]}
