"""A source whose log was truncated: what the leader epochs show, and what a lane does about it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.clients.cluster import Cluster, Partition
from odradek.clients.groups import CommittedOffset
from odradek.clients.topics import ListedOffset
from odradek.mirror import epochs, status
from odradek.mirror.epochs import Asked, Diverged, Epoch, Epochs, compare
from odradek.mirror.routes import LaneOptions, Route
from odradek.protocol.errors import ErrorCode
from odradek.shm.epochs import end_offset_of
from odradek.testing import Broker
from odradek.topic_partition import TopicPartition
from tests.mirror.lanes import Watcher, records_of, routes_of, running, wait_until_moved
from tests.mirror.test_lane import producer, write

PLACE = ("t", 0)
PARTITION = Partition("t", 0, 1, 9, (1,), (1,), (), ErrorCode.NONE)


def starts(log: list[int]) -> list[tuple[int, int]]:
    """(epoch, start offset) of a log, given as the epoch of each offset."""
    return [(epoch, at) for at, epoch in enumerate(log) if at == 0 or log[at - 1] != epoch]


def noted(log: list[int], first: int = 0) -> Epochs:
    """What a lane notes that copies the log from an offset on."""
    known = Epochs()
    for at in range(first, len(log)):
        assert known.note(log[at], at)
    return known


class Leaders:
    """Answers in place of the leader; `requests` counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Any, log_start: int = 0) -> None:
        self.requests = 0
        self._answer = answer
        monkeypatch.setattr(epochs, "_ask", self._ask)
        listed = {PLACE: ListedOffset(log_start, -1, ErrorCode.NONE)}
        monkeypatch.setattr(epochs.topics, "list_offsets", lambda *_: listed)

    def _ask(
        self, _: Cluster, partitions: Iterable[Partition], wanted: Mapping[TopicPartition, Any]
    ) -> dict[TopicPartition, Any]:
        self.requests += 1
        assert [(each.topic, each.number) for each in partitions] == list(wanted)
        return {place: self._answer(question.number) for place, question in wanted.items()}


def answered(epoch: int, end: int, code: int = 0) -> Any:
    return SimpleNamespace(error_code=code, leader_epoch=epoch, end_offset=end)


def answer_of(log: list[tuple[int, int]], end: int, number: int) -> Any:
    return answered(*end_offset_of(log, number, end))


def compared(known: Epochs, position: int) -> epochs.Compared:
    return compare(cast(Cluster, None), [Asked(PARTITION, position, known)])


def test_the_first_offset_that_differs_is_found_in_random_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(5)
    found = {"same": 0, "offset": 0, "unknown": 0}
    for _ in range(3000):
        common = sorted(chance.choices(range(4), k=chance.randint(0, 12)))
        last = common[-1] if common else 0
        # An epoch has one leader, so both logs have the same records in it, up to the end of the shorter one.
        copied, leader = (
            common + sorted(chance.choices([last, *range(last + 1 + odd, 9, 2)], k=chance.randint(0, 6)))
            for odd in (0, 1)
        )
        leader.append(9)  # the epoch of the leader that is asked
        if not copied:
            continue
        differs = next((at for at, epoch in enumerate(copied) if at >= len(leader) or leader[at] != epoch), None)
        first = chance.choice((0, 0, chance.randrange(len(copied))))
        Leaders(monkeypatch, partial(answer_of, starts(leader), len(leader)))
        outcome = compared(noted(copied, first), len(copied))
        assert not outcome.again and not outcome.refused
        diverged = outcome.diverged.get(PLACE)
        if diverged is None:
            assert differs is None, (copied, leader)
            found["same"] += 1
        elif diverged.offset is None:
            # Nothing is known of the epochs before `first`.
            assert differs is not None and differs <= diverged.below and differs <= first, (copied, leader, first)
            found["unknown"] += 1
        else:
            assert (diverged.offset, diverged.below) == (differs, differs), (copied, leader, first)
            found["offset"] += 1
    assert min(found.values()) > 50, found


def test_a_leader_that_cannot_be_asked_is_no_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    leaders = Leaders(monkeypatch, lambda _: None)
    assert compared(noted([3]), 1) == ({}, set(), {})
    assert compared(Epochs(), 1) == ({}, set(), {}) and leaders.requests == 1
    Leaders(monkeypatch, lambda _: answered(-1, -1, ErrorCode.FENCED_LEADER_EPOCH))
    assert compared(noted([3]), 1) == ({}, {PLACE}, {})
    Leaders(monkeypatch, lambda _: answered(-1, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert compared(noted([3]), 1) == ({}, set(), {PLACE: ErrorCode.TOPIC_AUTHORIZATION_FAILED})


@pytest.mark.parametrize("answer", [(-1, -1), (3, -1), (-1, 7), (4, 9), (2, -1), (0, 1 << 62)])
def test_no_answer_of_a_lying_leader_is_agreement_or_ends_in_a_loop(
    answer: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    leaders = Leaders(monkeypatch, lambda _: answered(*answer))
    diverged = compared(noted([1, 1, 3]), 3).diverged[PLACE]
    assert diverged.below <= 3 and (diverged.offset is None or 0 <= diverged.offset < 3)
    assert leaders.requests <= 3


def test_a_leader_that_has_deleted_everything_cannot_know_the_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    Leaders(monkeypatch, lambda _: answered(-1, -1), log_start=3)
    assert compared(noted([1, 1, 3]), 3).diverged == {}
    Leaders(monkeypatch, lambda _: answered(-1, -1), log_start=2)
    assert compared(noted([1, 1, 3]), 3).diverged == {PLACE: Diverged(None, 3)}


def test_epochs_are_kept_in_the_metadata_of_a_position() -> None:
    known = noted([1, 1, 3, 5])
    assert known.before(3) == [(1, 0), (3, 2)] and known.before(4)[-1] == (5, 3)
    assert Epochs.noted({"epochs": [list(pair) for pair in known.known]}) == known
    assert not known.note(4, 9) and known.note(-1, 9) and known.newest == 5
    for number in range(6, 40):
        assert known.note(number, number)
    assert len(known.known) == epochs.MOST and known.newest == 39
    known.cut(39)
    assert known.known[-1] == Epoch(38, 38)


@pytest.mark.parametrize(
    "metadata",
    [{}, {"epochs": 3}, {"epochs": [1]}, {"epochs": [[1]]}, {"epochs": [["1", 2]]}, {"epochs": [[5, 1], [3, 9]]}],
)
def test_metadata_of_others_are_no_epochs(metadata: dict[str, object]) -> None:
    assert Epochs.noted(metadata).newest == -1


class TruncatedSource:
    """A source that is restarted with an older copy of its data, and then gets other records."""

    def __init__(self, directory: Path) -> None:
        self.saved = directory / "saved"
        self.broker = Broker(topics={"t": 1}, directory=directory / "source")

    def write(self, numbers: range) -> None:
        write(producer(self.broker.bootstrap_servers), "t", 1, numbers)

    def save(self) -> None:
        self.broker.stop()
        shutil.copytree(self.broker.data_dir, self.saved)
        self.broker.start()

    def restore(self) -> None:
        self.broker.kill()
        shutil.rmtree(self.broker.data_dir)
        shutil.copytree(self.saved, self.broker.data_dir)
        self.broker.start()


@pytest.fixture
def source(tmp_path: Path) -> Any:
    truncated = TruncatedSource(tmp_path)
    with truncated.broker:
        yield truncated


@pytest.fixture(scope="module")
def target() -> Any:
    with Broker() as broker:
        yield broker


def a_route(source: TruncatedSource, target: Broker, copy: str) -> Route:
    target.topics[copy] = 1
    with Cluster(target.bootstrap_servers) as cluster:
        epochs.topics.create(cluster, copy, 1)
    (route,) = routes_of(source.broker.bootstrap_servers, ["t"])
    return Route(route.source, (copy, 0), route.source_topic_id)


OPTIONS = {"fetch_wait_ms": 100, "request_timeout_s": 20.0}


@pytest.mark.parametrize("while_running", [True, False])
def test_a_partition_stops_when_its_source_was_truncated_and_goes_on_when_it_may(
    source: TruncatedSource, target: Broker, while_running: bool
) -> None:
    servers = source.broker.bootstrap_servers, target.bootstrap_servers
    route = a_route(source, target, f"copy-{while_running}")
    source.write(range(100))
    source.save()
    source.write(range(100, 150))
    watcher = Watcher()

    with running(*servers, [route], LaneOptions(**OPTIONS), watcher):  # type: ignore[arg-type]
        wait_until_moved(watcher, *servers, [route])
        if while_running:
            source.restore()
            watcher.wait(lambda: route.target in watcher.stops, "the partition stops")
    if not while_running:
        source.restore()
        with running(*servers, [route], LaneOptions(**OPTIONS), watcher):  # type: ignore[arg-type]
            watcher.wait(lambda: route.target in watcher.stops, "the partition stops")
    copy = route.target[0]
    assert watcher.stops[route.target] == (
        f"the source's log of t-0 was truncated: the copy {copy}-0 has the records of the source's offsets 100 to 149, which "
        "the source does not have any more; to keep them and to copy on from offset 100, set "
        "odradek.mirror.source.truncation=continue, or delete the copy to begin again"
    )
    source.write(range(1000, 1080))  # the log is longer than the position now, and has the same epoch
    watcher.stops.clear()
    with running(*servers, [route], LaneOptions(**OPTIONS), watcher):  # type: ignore[arg-type]
        watcher.wait(lambda: route.target in watcher.stops, "the partition is stopped")
    assert "offsets 100 to 149, which" in watcher.stops[route.target]
    assert len(records_of(servers[1], route.target)) == 150
    again = Watcher()
    options = LaneOptions(continue_truncated=True, **OPTIONS)  # type: ignore[arg-type]
    for _ in range(2):  # the second session has nothing to mend
        with running(*servers, [route], options, again):
            wait_until_moved(again, *servers, [route])
            source.write(range(2000, 2010))
            wait_until_moved(again, *servers, [route])
    assert not again.stops
    continued = [reason for reason in again.failures if reason.endswith("; continuing at offset 100")]
    assert len(continued) == 1 and "source.truncation=continue" not in continued[0]
    moved, there = records_of(servers[1], route.target), records_of(servers[0], route.source)
    assert len(moved) == 150 + 80 + 20
    assert moved[:100] + moved[150:] == there


def test_epochs_that_go_back_stop_a_partition_of_any_source(
    source: TruncatedSource, target: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a source before Kafka 2.3, which is not asked."""
    servers = source.broker.bootstrap_servers, target.bootstrap_servers
    route = a_route(source, target, "copy-back")
    monkeypatch.setattr(epochs, "OF_CONSUMERS", 1000)
    source.write(range(10))
    watcher = Watcher()
    with running(*servers, [route], LaneOptions(**OPTIONS), watcher):  # type: ignore[arg-type]
        wait_until_moved(watcher, *servers, [route])
        monkeypatch.setattr(Epochs, "newest", property(lambda _: 7))
        source.write(range(10, 20))
        watcher.wait(lambda: route.target in watcher.stops, "the partition stops")
    assert (
        "t-0 of the source has leader epoch 0 behind offset 10, and 7 before: its log was truncated"
        in (watcher.stops[route.target])
    )
    assert len(records_of(servers[1], route.target)) == 10


def test_the_status_shows_a_truncated_source_without_the_metrics_of_workers() -> None:
    position = CommittedOffset(150, metadata='{"epochs":[[0,0]],"truncated":100}')
    shown = status._truncated(("t", 0), ("a.t", 0), position)
    assert "the copy a.t-0 has the records of the source's offsets 100 to 149" in shown
    for other in (None, CommittedOffset(100, metadata='{"truncated":100}'), CommittedOffset(150, metadata="x")):
        assert status._truncated(("t", 0), ("a.t", 0), other) == ""
