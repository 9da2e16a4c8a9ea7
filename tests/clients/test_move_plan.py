"""Plans of moves: which broker receives a replica, what stays where it is, and what is refused."""

import random
from collections import Counter

import pytest

from odradek.clients.move_plan import Assigned, Move, PlanError, plan_balance, plan_off

WITHOUT_RACKS = dict.fromkeys((1, 2, 3, 4))
IN_RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}


def topic(name: str, *assignments: list[int]) -> list[Assigned]:
    """The partitions of a topic, led by their first replicas, all in sync."""
    return [
        Assigned(name, number, replicas[0], tuple(replicas), tuple(replicas), tuple(replicas))
        for number, replicas in enumerate(assignments)
    ]


def targets(moves: list[Move]) -> dict[str, list[int]]:
    return {str(move.partition): list(move.target) for move in moves}


def after(partitions: list[Assigned], moves: list[Move]) -> dict[Assigned, tuple[int, ...]]:
    """The replicas of all partitions after the moves."""
    return {partition: partition.replicas for partition in partitions} | {move.partition: move.target for move in moves}


def test_the_new_replica_takes_the_place_of_the_old_one():
    partitions = topic("t", [1, 2], [2, 1], [2, 3])
    moves = plan_off(WITHOUT_RACKS, partitions, [1])
    assert targets(moves) == {"t-0": [4, 2], "t-1": [2, 3]}
    assert [(move.added, move.removed) for move in moves] == [((4,), (1,)), ((3,), (1,))]


def test_another_rack_goes_before_a_smaller_load():
    busy = topic("busy", *[[3, 6]] * 9)
    assert targets(plan_off(IN_RACKS, busy + topic("t", [1, 2]), [2])) == {"t-0": [1, 5]}
    without_5 = {broker_id: rack for broker_id, rack in IN_RACKS.items() if broker_id != 5}
    assert targets(plan_off(without_5, busy + topic("t", [1, 2]), [2])) == {"t-0": [1, 6]}, "4 is in the rack of 1"
    only = {1: "a", 2: "b", 4: "a"}
    assert targets(plan_off(only, topic("t", [1, 2]), [2])) == {"t-0": [1, 4]}, "no broker in another rack is left"


def test_the_load_of_all_topics_counts_and_the_leaders_too():
    partitions = topic("led", [2, 3], [2, 3]) + topic("t", [1, 4])
    assert targets(plan_off(WITHOUT_RACKS, partitions, [1], topics=["t"])) == {"t-0": [3, 4]}, "2 leads more than 3"
    assert plan_off(WITHOUT_RACKS, partitions, [1], topics=["led"]) == []


def test_only_the_brokers_of_to_receive_replicas():
    partitions = topic("t", [1, 2], [1, 3])
    assert targets(plan_off(WITHOUT_RACKS, partitions, [1], to=[4])) == {"t-0": [4, 2], "t-1": [4, 3]}


def test_several_brokers_are_emptied_at_once():
    moves = plan_off(IN_RACKS, topic("t", [1, 2, 3], [2, 3, 1]), [1, 2])
    assert targets(moves) == {"t-0": [4, 5, 3], "t-1": [5, 3, 4]}


def test_a_reassignment_in_progress_is_planned_from_its_target():
    partition = Assigned("t", 0, 1, (1, 3), (1, 3, 2), (1, 2))  # 3 replaces 2
    (move,) = plan_off(WITHOUT_RACKS, [partition], [3])
    assert move.target == (1, 4) and move.added == (4,) and move.removed == (3, 2)
    assert plan_off(WITHOUT_RACKS, [partition], [2]) == [], "the replica on 2 is being removed already"


def test_a_broker_that_is_down_can_be_emptied():
    registered = {1: None, 2: None}
    assert targets(plan_off(registered, topic("t", [1, 9]), [9])) == {"t-0": [1, 2]}


@pytest.mark.parametrize(
    ("partitions", "options", "words"),
    [
        (topic("t", [1, 2, 3, 4]), {}, ["'t'", "replication factor 4", "without broker 1", "only 3 brokers", "2, 3, 4"]),
        (topic("t", [1, 2]), {"to": [2]}, ["'t'", "factor 2", "partition 0", "--to 2", "2, 3, 4"]),
        (topic("t", [1, 2]), {"to": [8]}, ["--to", "broker 8 is not registered", "1, 2, 3, 4"]),
        (topic("t", [1, 2]), {"off": [9]}, ["--off", "broker 9 is not registered", "1, 2, 3, 4"]),
    ],
)  # fmt: skip
def test_an_impossible_plan_names_the_topic_the_factor_and_the_brokers(partitions, options, words):
    with pytest.raises(PlanError) as error:
        plan_off(WITHOUT_RACKS, partitions, **{"off": [1]} | options)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_many_impossible_topics_are_one_short_sentence():
    partitions = [partition for number in range(20) for partition in topic(f"t{number:02}", [1, 2, 3, 4])]
    with pytest.raises(PlanError, match="and 15 more topics") as error:
        plan_off(WITHOUT_RACKS, partitions, [1])
    assert "'t04'" in str(error.value) and "'t05'" not in str(error.value)


def some_cluster(chance: random.Random, racks: bool) -> tuple[dict[int, str | None], list[Assigned]]:
    brokers = list(range(1, chance.randint(5, 9)))
    partitions = []
    for number in range(chance.randint(1, 4)):
        factor = chance.randint(1, 3)
        rows = [chance.sample(brokers, factor) for _ in range(chance.randint(1, 20))]
        partitions += topic(f"t{number}", *rows)
    return {broker_id: chance.choice("abc") if racks else None for broker_id in brokers}, partitions


@pytest.mark.parametrize("seed", range(100))
def test_any_cluster_is_emptied_without_another_change(seed):
    racks, partitions = some_cluster(random.Random(seed), racks=seed % 2 > 0)
    moves = plan_off(racks, partitions, [1])
    for partition, replicas in after(partitions, moves).items():
        assert 1 not in replicas and len(set(replicas)) == len(partition.replicas)
        changed = [(old, new) for old, new in zip(partition.replicas, replicas, strict=True) if old != new]
        assert all(old == 1 for old, _ in changed) and len(changed) <= 1
        for _, new in changed:
            kept = set(replicas) - {new}
            used = {racks[broker_id] for broker_id in kept}
            free = [broker_id for broker_id in racks if broker_id not in {1} | kept and racks[broker_id] not in used]
            assert racks[new] is None or racks[new] not in used or not free


def counts(racks, assignments):
    replicas = Counter(broker_id for target in assignments for broker_id in target)
    leaders = Counter(target[0] for target in assignments)
    return [replicas[broker_id] for broker_id in racks], [leaders[broker_id] for broker_id in racks]


@pytest.mark.parametrize("seed", range(100))
def test_a_balance_is_even_with_the_fewest_copies(seed):
    racks, partitions = some_cluster(random.Random(seed), racks=False)
    racks[len(racks) + 1] = None  # an empty broker
    moves = plan_balance(racks, partitions)
    targets_after = list(after(partitions, moves).values())
    assert all(len(set(target)) == len(target) for target in targets_after)
    replicas, leaders = counts(racks, targets_after)
    assert max(replicas) - min(replicas) <= 1
    assert max(leaders) - min(leaders) <= 2, "swaps between pairs of brokers that share no partition are not possible"
    before = sorted(counts(racks, [partition.replicas for partition in partitions])[0], reverse=True)
    size, rest = divmod(sum(before), len(before))
    least = sum(max(count - size - (place < rest), 0) for place, count in enumerate(before))
    assert sum(len(move.added) for move in moves) == least
    assert plan_balance(racks, [
        Assigned(partition.topic, partition.number, target[0], target, target, target)
        for partition, target in zip(after(partitions, moves), targets_after, strict=True)
    ]) == []  # fmt: skip


@pytest.mark.parametrize("seed", range(50))
def test_a_balance_does_not_put_more_replicas_into_one_rack(seed):
    racks, partitions = some_cluster(random.Random(seed), racks=True)
    racks[len(racks) + 1] = "a"

    def shared(target):
        used = [racks[broker_id] for broker_id in target]
        return len(used) - len(set(used))

    for move in plan_balance(racks, partitions):
        assert shared(move.target) <= shared(move.partition.replicas)


def test_a_balance_of_some_brokers_or_topics_leaves_the_others():
    partitions = topic("t", *[[1]] * 8) + topic("u", *[[2]] * 4)
    moves = plan_balance(WITHOUT_RACKS, partitions, to=[1, 3])
    assert Counter(move.target for move in moves) == {(3,): 4} and {move.partition.topic for move in moves} == {"t"}
    moves = plan_balance(WITHOUT_RACKS, partitions, topics=["u"])
    assert {move.partition.topic for move in moves} == {"u"}


def test_a_large_cluster_is_planned_quickly():
    """With 10,000 partitions of 20 brokers: the bound is for a busy machine, and far below that of a quadratic plan."""
    chance = random.Random(0)
    partitions = topic("t", *[chance.sample(range(20), 3) for _ in range(10_000)])
    racks = {broker_id: "abc"[broker_id % 3] for broker_id in range(21)}
    replicas, leaders = counts(racks, list(after(partitions, plan_balance(racks, partitions)).values()))
    assert max(replicas) - min(replicas) <= 1 and max(leaders) - min(leaders) <= 1
