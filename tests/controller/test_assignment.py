"""The assignment of replicas: its properties in any cluster."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.assignment import Broker, assign_replicas

CLUSTERS = st.lists(st.integers(0, 50), min_size=1, max_size=9, unique=True)
PLACES = st.integers(0, 1000)


@given(CLUSTERS, st.integers(1, 40), st.data(), PLACES, PLACES)
def test_replicas_differ_and_leaders_are_even(ids, count, data, start, shift):
    factor = data.draw(st.integers(1, len(ids)))
    assignment = assign_replicas([Broker(i) for i in ids], range(count), factor, start=start, shift=shift)
    assert list(assignment) == list(range(count))
    for replicas in assignment.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= set(ids)
    leaders = Counter(dict.fromkeys(ids, 0))
    leaders.update(replicas[0] for replicas in assignment.values())
    assert max(leaders.values()) - min(leaders.values()) <= 1


@given(st.integers(2, 4), st.integers(1, 3), st.integers(1, 30), PLACES, PLACES)
def test_no_rack_has_two_replicas_while_another_has_none(racks, per_rack, count, start, shift):
    brokers = [Broker(rack * per_rack + n, f"rack-{rack}") for rack in range(racks) for n in range(per_rack)]
    for factor in range(1, len(brokers) + 1):
        for replicas in assign_replicas(brokers, range(count), factor, start=start, shift=shift).values():
            assert len(set(replicas)) == factor
            assert len({broker // per_rack for broker in replicas}) == min(factor, racks)


def test_added_partitions_go_on_where_the_old_ones_ended():
    brokers = [Broker(n) for n in range(3)]
    whole = assign_replicas(brokers, range(10), 2, start=1, shift=0)
    assert assign_replicas(brokers, range(6, 10), 2, start=1, shift=0) == {p: whole[p] for p in range(6, 10)}


def test_followers_of_one_leader_are_spread():
    brokers = [Broker(n) for n in range(4)]
    assignment = assign_replicas(brokers, range(12), 2, start=0, shift=0)
    assert {replicas[1] for replicas in assignment.values() if replicas[0] == 0} == {1, 2, 3}


def test_racks_are_ignored_unless_all_brokers_have_one():
    brokers = [Broker(0, "a"), Broker(1, "a"), Broker(2)]
    plain = [Broker(0), Broker(1), Broker(2)]
    options = {"partitions": range(6), "replication_factor": 2, "start": 0, "shift": 0}
    assert assign_replicas(brokers, **options) == assign_replicas(plain, **options)


@pytest.mark.parametrize("factor", [0, -1, 3])
def test_more_replicas_than_brokers_are_refused(factor):
    with pytest.raises(ValueError, match="2 brokers"):
        assign_replicas([Broker(1), Broker(2)], [0], factor, start=0, shift=0)
