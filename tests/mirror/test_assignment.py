"""The assignment of lanes: complete, even, and with as few moves as possible; and its bytes."""

import json

from hypothesis import given
from hypothesis import strategies as st

from odradek.mirror.assignment import (
    assign,
    assigned_by,
    encode_assignment,
    encode_member,
    lane_of,
    lanes_in,
    owned_by,
    protocol_name,
    worker_in,
)

LANES = st.integers(1, 40)
MEMBERS = st.lists(st.text("abcdef", min_size=1, max_size=4), unique=True, max_size=12)


@st.composite
def groups(draw):
    """Members with any claims, also contradictory and impossible ones."""
    lanes = draw(LANES)
    claims = st.frozensets(st.integers(0, lanes + 3))
    return lanes, {member: draw(claims) for member in draw(MEMBERS)}


@given(groups())
def test_every_lane_has_exactly_one_owner_and_numbers_differ_by_at_most_one(group):
    lanes, owned = group
    assigned = assign(owned, lanes)
    assert set(assigned) == set(owned)
    if owned:
        assert sorted(lane for numbers in assigned.values() for lane in numbers) == list(range(lanes))
        sizes = [len(numbers) for numbers in assigned.values()]
        assert max(sizes) - min(sizes) <= 1


@given(groups())
def test_an_assignment_that_is_repeated_moves_nothing(group):
    lanes, owned = group
    assigned = assign(owned, lanes)
    assert assign(assigned, lanes) == assigned


@given(LANES, st.integers(1, 12), st.integers(1, 12))
def test_when_members_come_or_go_only_the_lanes_that_must_move_do(lanes, before, after):
    first = assign({f"m{number:02}": frozenset() for number in range(before)}, lanes)
    second = assign({f"m{number:02}": first.get(f"m{number:02}", frozenset()) for number in range(after)}, lanes)
    moved = sum(len(second.get(member, frozenset()) - numbers) for member, numbers in first.items())
    if after <= before:  # survivors keep all that they had
        assert all(first[member] <= second[member] for member in second)
    else:
        assert moved == 0  # nobody who was there receives a lane


def test_a_lane_depends_on_the_name_and_consecutive_partitions_are_in_different_lanes():
    assert lane_of(("orders", 3), 8) == lane_of(("orders", 3), 8)
    assert sorted(lane_of(("orders", partition), 8) for partition in range(8)) == list(range(8))
    assert {lane_of((f"t{number}", 0), 8) for number in range(100)} == set(range(8))


@given(st.text(max_size=20), st.frozensets(st.integers(0, 1000)))
def test_the_bytes_of_members_and_assignments_are_read_again(worker, lanes):
    assert owned_by(encode_member(worker, lanes)) == lanes
    assert worker_in(encode_member(worker, lanes)) == worker
    assert assigned_by(encode_assignment(lanes)) == lanes


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(
        lambda v: json.dumps(v).encode()
    )
)
def test_bytes_of_others_are_no_lanes(data):
    assert owned_by(data) == assigned_by(data) == frozenset()
    assert worker_in(data) == ""


def test_claims_that_are_no_numbers_are_ignored():
    assert owned_by(b'{"owned": [1, true, "2", -3, 4.0, null, 5]}') == {1, 5}
    assert owned_by(b"[" * 100_000) == frozenset()


def test_the_protocol_contains_the_number_of_lanes():
    assert lanes_in(protocol_name(12)) == 12
    assert lanes_in("range") is None and lanes_in("") is None and lanes_in("lanes-x") is None
