"""How followed partitions are distributed to replica fetchers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek._ext.replication.followed_slots import Followed
from odradek.replication.fetchers import FIRST_LANE, MAX_FETCHERS, Fetchers, fetcher_number, fetchers_per_leader

OWN = 1


class FakeFetcher:
    """A fetcher without a thread: what it was told."""

    def __init__(self, leader_id: int, number: int, lane: int) -> None:
        self.place = leader_id, number
        self.lane = lane
        self.slots: dict[int, Followed] = {}
        self.started = self.stopped = self.ended = False
        self.looks = 0
        self.records_bytes = 0

    def start(self) -> None:
        self.started = True

    def add(self, slot: int, followed: Followed) -> None:
        self.slots[slot] = followed

    def remove(self, slot: int) -> None:
        del self.slots[slot]

    def look(self) -> None:
        self.looks += 1

    def stop(self) -> None:
        self.stopped = True

    def join(self, timeout_s: float) -> None:
        self.ended = True


class Made:
    """The fetchers that were made, and `Fetchers` that makes them."""

    def __init__(self, wanted: int = 2) -> None:
        self.all: list[FakeFetcher] = []
        self.fetchers = Fetchers(self._make, OWN, wanted)

    def _make(self, leader_id: int, number: int, lane: int) -> FakeFetcher:
        self.all.append(FakeFetcher(leader_id, number, lane))
        return self.all[-1]

    def running(self) -> list[FakeFetcher]:
        return [fetcher for fetcher in self.all if fetcher.started and not fetcher.stopped and not fetcher.ended]


def followed(leader_id: int, partition: int = 0, epoch: int = 1, topic: str = "t") -> Followed:
    return Followed(topic, bytes(16), partition, 1, leader_id, epoch)


@pytest.mark.parametrize(
    ("topic", "partition", "fetchers", "number"),
    [("orders", 0, 4, 1), ("orders", 3, 4, 2), ("__consumer_offsets", 17, 3, 0), ("a-long.topic_name", 5, 7, 3)],
)
def test_the_fetcher_is_the_one_that_kafka_chooses(topic: str, partition: int, fetchers: int, number: int) -> None:
    assert fetcher_number(topic, partition, fetchers) == number


def test_no_more_fetchers_than_lanes() -> None:
    assert fetchers_per_leader(1, 63) == 1
    assert fetchers_per_leader(4, 2) == 4
    assert fetchers_per_leader(100, 2) == MAX_FETCHERS // 4
    assert all(fetchers_per_leader(50, leaders) * leaders <= MAX_FETCHERS for leaders in range(1, 64))


def test_a_partition_follows_its_leader() -> None:
    made = Made(1)
    made.fetchers.change([(7, followed(2)), (8, followed(3)), (9, followed(-1)), (10, followed(OWN))])
    assert [(fetcher.place, set(fetcher.slots)) for fetcher in made.all] == [((2, 0), {7}), ((3, 0), {8})]
    made.fetchers.change([(7, followed(3, epoch=2))])
    assert set(made.all[1].slots) == {7, 8}
    assert made.all[0].stopped, "it has no partition any more"
    made.fetchers.change([(7, None), (8, followed(-1))])
    assert not made.running()


def test_a_new_epoch_of_the_same_leader_goes_to_the_same_fetcher() -> None:
    made = Made(1)
    made.fetchers.change([(7, followed(2))])
    made.fetchers.change([(7, followed(2, epoch=2))])
    (fetcher,) = made.all
    assert fetcher.slots[7].leader_epoch == 2
    assert not fetcher.stopped


def test_the_lane_of_a_fetcher_is_used_again_only_after_its_end() -> None:
    made = Made(1)
    for leader in range(2, 2 + 3 * MAX_FETCHERS):
        made.fetchers.change([(7, followed(leader))])
        running = made.running()
        assert len(running) == 1
        lanes = [fetcher.lane for fetcher in made.all if not fetcher.ended]
        assert len(set(lanes)) == len(lanes)
        assert all(FIRST_LANE <= lane < FIRST_LANE + MAX_FETCHERS for lane in lanes)
    for fetcher in made.all:
        fetcher.ended = fetcher.ended or fetcher.stopped
    made.fetchers.revive()
    assert made.fetchers.count == 1


def test_a_fetcher_whose_thread_ended_is_replaced() -> None:
    made = Made(1)
    made.fetchers.change([(7, followed(2)), (8, followed(2, 1))])
    made.all[0].records_bytes = 500
    made.all[0].ended = True
    made.fetchers.revive()
    assert set(made.all[1].slots) == {7, 8}
    assert made.fetchers.records_bytes == 500, "what the former one appended stays counted"


def test_another_number_of_fetchers_distributes_all_partitions_again() -> None:
    made = Made(1)
    made.fetchers.change([(slot, followed(2, slot)) for slot in range(20)])
    made.fetchers.set_wanted(3)
    placed = {slot: fetcher.place[1] for fetcher in made.running() for slot in fetcher.slots}
    assert placed == {slot: fetcher_number("t", slot, 3) for slot in range(20)}


changes = st.lists(
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.one_of(st.none(), st.builds(followed, st.integers(-1, 5), st.just(0), st.integers(1, 3))),
        ),
        max_size=6,
    ),
    max_size=20,
)


@given(changes, st.integers(1, 3))
def test_each_followed_partition_is_in_exactly_one_fetcher(
    history: list[list[tuple[int, Followed | None]]], wanted: int
) -> None:
    made = Made(wanted)
    known: dict[int, Followed | None] = {}
    for step in history:
        made.fetchers.change(step)
        known |= dict(step)
    fetched = {slot: item for slot, item in known.items() if item is not None and item.leader_id not in (-1, OWN)}
    assert {slot: item for fetcher in made.running() for slot, item in fetcher.slots.items()} == fetched
    assert sum(len(fetcher.slots) for fetcher in made.running()) == len(fetched)
    assert all(fetcher.place[0] == item.leader_id for fetcher in made.running() for item in fetcher.slots.values())
    assert all(fetcher.slots for fetcher in made.running())
