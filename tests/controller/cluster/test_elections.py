"""Elections: tables of cases."""

import pytest

from odradek.controller.cluster.elections import (
    Choice,
    elect_for_reassignment,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    first_leader,
    without,
)


@pytest.mark.parametrize(
    ("replicas", "in_sync", "online", "unclean", "expected"),
    [
        ([1, 2, 3], [1, 2, 3], {2, 3}, False, Choice(2, [2, 3])),
        ([1, 2, 3], [3, 2, 1], {2, 3}, False, Choice(2, [3, 2])),  # the order of the members stays
        ([1, 2, 3], [1, 3], {2, 3}, False, Choice(3, [3])),
        ([3, 2, 1], [1, 2, 3], {1, 2, 3}, False, Choice(3, [1, 2, 3])),
        ([1, 2, 3], [1], {2, 3}, False, None),
        ([1, 2, 3], [1], {2, 3}, True, Choice(2, [2], True)),
        ([1, 2, 3], [1, 3], {2, 3}, True, Choice(3, [3])),  # in sync and online before unclean
        ([1, 2, 3], [1, 2, 3], set(), True, None),
        ([1, 2], [4], {4}, False, None),  # a member that is no replica cannot lead
        ([], [], {1}, True, None),
    ],
)
def test_offline(replicas, in_sync, online, unclean, expected):
    assert elect_offline(replicas, in_sync, online, unclean) == expected


@pytest.mark.parametrize(
    ("target", "in_sync", "online", "expected"),
    [
        ([4, 5], [1, 4, 5], {1, 4, 5}, Choice(4, [1, 4, 5])),
        ([4, 5], [1, 5], {1, 4, 5}, Choice(5, [1, 5])),
        ([4, 5], [1, 4, 5], {1, 5}, Choice(5, [1, 4, 5])),
        ([4, 5], [1], {1, 4, 5}, None),
        ([4, 5], [4, 5], {1}, None),
    ],
)
def test_reassignment(target, in_sync, online, expected):
    assert elect_for_reassignment(target, in_sync, online) == expected


@pytest.mark.parametrize(
    ("replicas", "in_sync", "online", "expected"),
    [
        ([1, 2], [2, 1], {1, 2}, Choice(1, [2, 1])),
        ([1, 2], [2], {1, 2}, None),
        ([1, 2], [1, 2], {2}, None),
        ([], [], {2}, None),
    ],
)
def test_preferred(replicas, in_sync, online, expected):
    assert elect_preferred(replicas, in_sync, online) == expected


@pytest.mark.parametrize(
    ("replicas", "in_sync", "online", "shutting_down", "expected"),
    [
        ([1, 2, 3], [1, 2, 3], {1, 2, 3}, {1}, Choice(2, [2, 3])),
        ([1, 2, 3], [1, 2, 3], {1, 2, 3}, {1, 2}, Choice(3, [3])),
        ([1, 2, 3], [1, 3], {1, 2, 3}, {1}, Choice(3, [3])),
        ([1, 2, 3], [1, 2], {1, 3}, {1}, None),  # 2 is in sync, but not online
        ([1, 2, 3], [1], {1, 2, 3}, {1}, None),
        ([1], [1], {1}, {1}, None),
    ],
)
def test_shutdown(replicas, in_sync, online, shutting_down, expected):
    assert elect_for_shutdown(replicas, in_sync, online, shutting_down) == expected


def test_a_new_partition_is_led_by_its_first_online_replica_and_all_online_replicas_are_in_sync():
    assert first_leader([3, 1, 2], {1, 2}) == Choice(1, [1, 2])
    assert first_leader([3, 1, 2], {1, 2, 3}) == Choice(3, [3, 1, 2])
    assert first_leader([3], {1}) is None


@pytest.mark.parametrize(
    ("in_sync", "leader", "leaving", "expected"),
    [
        ([1, 2, 3], 1, {2}, (1, [1, 3])),
        ([1, 2, 3], 1, {1}, (-1, [2, 3])),
        ([1], 1, {1}, (-1, [1])),  # the last member stays
        ([1, 2], 1, {1, 2}, (-1, [1, 2])),  # all fail at once: each has all committed records
        ([1, 2], 1, {3}, (1, [1, 2])),
        ([2], -1, {2}, (-1, [2])),
    ],
)
def test_the_last_members_stay_in_sync(in_sync, leader, leaving, expected):
    assert without(in_sync, leader, leaving) == expected
