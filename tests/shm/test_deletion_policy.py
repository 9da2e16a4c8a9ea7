"""The operator's deletion policy: its input, what it may delete, and that its failures affect no other log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slots
from odradek._ext.testing import slot_probe
from odradek.cleaner.deletion_policy import Answer, LogView, PolicyThread, Question
from odradek.cleaner.retention import Retention
from tests.shm.one_broker import OneBroker, batch
from tests.waiting import until

SIZE = len(batch(2))


class Asked:
    """A policy that answers what the test says, by topic, and notes what it was asked."""

    def __init__(self, answer: Callable[[LogView], object]) -> None:
        self.answer = answer
        self.logs: list[LogView] = []

    def deletable(self, log: LogView) -> object:
        self.logs.append(log)
        return self.answer(log)


@pytest.fixture
def clock() -> Iterator[list[float]]:
    yield [100.0]


def four_segments(broker: OneBroker, topic: str = "t", **settings: int) -> int:
    slot = broker.create(topic, segment_bytes=SIZE, **settings)
    for number in range(4):
        slot_probe.append(slot, [batch(2, timestamp=1000 * (number + 1))])
    return slot


def bases(broker: OneBroker, slot: int) -> list[int]:
    return sorted(int(path.stem) for path in broker.table.path(slot).glob("*.log"))


_threads: list[PolicyThread] = []


def policy_thread(policy: object, **options: object) -> PolicyThread:
    _threads.append(PolicyThread(policy, **options))  # type: ignore[arg-type]
    return _threads[-1]


@pytest.fixture(autouse=True)
def ended_threads() -> Iterator[None]:
    yield
    while _threads:
        _threads.pop().close()


def ruled_by(broker: OneBroker, policy: object, **options: object) -> tuple[Retention, PolicyThread]:
    thread = policy_thread(policy, **options)
    return Retention(broker.shm, [broker.path], thread), thread


def asked_about(policy: Asked, count: int) -> None:
    until(lambda: len(policy.logs) >= count, lambda: f"asked {len(policy.logs)} times")


def test_it_deletes_the_oldest_segments(broker: OneBroker) -> None:
    slot = four_segments(broker)
    policy = Asked(lambda log: sum(segment.largest_timestamp_ms <= 2000 for segment in log.segments))
    retention, _ = ruled_by(broker, policy)
    retention.run(5000)

    def is_done() -> bool:
        retention.follow_policy()
        return bases(broker, slot) == [4, 6]

    until(is_done, lambda: f"{bases(broker, slot)}")
    assert (slot_facts.describe(slot).log_start_offset, retention.removed_segments) == (4, 2)
    retention.run(5000)
    asked_about(policy, 2)
    assert [segment.base_offset for segment in policy.logs[1].segments] == [4, 6]


def test_it_sees_segments_and_settings(broker: OneBroker) -> None:
    slot = four_segments(broker, "seen", retention_ms=10**9, compact=1, delete_=1)
    policy = Asked(lambda log: 0)
    retention, _ = ruled_by(broker, policy)
    retention.run(5000)
    asked_about(policy, 1)
    (log,) = policy.logs
    assert (log.topic, log.partition, log.log_start_offset, log.high_watermark, log.log_end_offset) == (
        "seen", 0, 0, 8, 8
    )  # fmt: skip
    assert [(one.base_offset, one.end_offset, one.size, one.largest_timestamp_ms, one.is_active)
            for one in log.segments] == [
        (0, 2, SIZE, 1000, False), (2, 4, SIZE, 2000, False), (4, 6, SIZE, 3000, False), (6, 8, SIZE, 4000, True),
    ]  # fmt: skip
    assert log.settings["retention.ms"] == 10**9 and log.settings["segment.bytes"] == SIZE
    assert log.settings["cleanup.policy"] == ("compact", "delete")
    assert bases(broker, slot) == [0, 2, 4, 6]


def test_it_deletes_neither_the_active_segment_nor_what_is_not_committed(broker: OneBroker) -> None:
    slot = four_segments(broker)
    followed = broker.create("followed", alone=False, segment_bytes=SIZE)
    for _ in range(4):
        slot_probe.append(followed, [batch(2)])
    slots.raise_high_watermark(followed, 3)
    retention, _ = ruled_by(broker, Asked(lambda log: 10**9))
    retention.run(5000)

    def is_done() -> bool:
        retention.follow_policy()
        return (bases(broker, slot), bases(broker, followed)) == ([6], [2, 4, 6])

    until(is_done, lambda: f"{bases(broker, slot)} {bases(broker, followed)}")
    assert slot_facts.describe(slot).log_end_offset == 8


def test_it_is_not_asked_about_compacted_logs_and_those_without_a_closed_segment(broker: OneBroker) -> None:
    four_segments(broker, "compacted", compact=1, delete_=0)
    slot_probe.append(broker.create("one"), [batch(2)])
    four_segments(broker, "asked")
    policy = Asked(lambda log: 0)
    retention, _ = ruled_by(broker, policy)
    retention.run(5000)
    asked_about(policy, 1)
    assert [log.topic for log in policy.logs] == ["asked"]


def test_time_and_size_stay_in_force_beside_it(broker: OneBroker) -> None:
    slot = four_segments(broker, retention_bytes=2 * SIZE)
    policy = Asked(lambda log: 1)
    retention, _ = ruled_by(broker, policy)
    retention.run(5000)
    assert bases(broker, slot) == [4, 6], "at once, whatever the class says"

    def is_done() -> bool:
        retention.follow_policy()
        return bases(broker, slot) == [6]

    until(is_done, lambda: f"{bases(broker, slot)}")
    assert [one.base_offset for one in policy.logs[0].segments] == [4, 6]


@pytest.mark.parametrize("result", [-1, None, "1", 1.0, True, [0]])
def test_a_result_that_is_no_number_of_segments_deletes_nothing(
    broker: OneBroker, caplog: pytest.LogCaptureFixture, result: object
) -> None:
    slot = four_segments(broker)
    retention, _ = ruled_by(broker, Asked(lambda log: result))
    retention.run(5000)
    until(lambda: "instead of a number of segments" in caplog.text, "no line says so")
    assert "test_deletion_policy:Asked failed for t-0: it deletes nothing there" in caplog.text
    retention.follow_policy()
    assert bases(broker, slot) == [0, 2, 4, 6]


def test_an_error_concerns_its_log_alone(broker: OneBroker, caplog: pytest.LogCaptureFixture) -> None:
    bad, good = four_segments(broker, "bad"), four_segments(broker, "good")
    policy = Asked(lambda log: 1 // (log.topic != "bad"))
    retention, _ = ruled_by(broker, policy)
    retention.run(5000)

    def is_done() -> bool:
        retention.follow_policy()
        return bases(broker, good) == [2, 4, 6]

    until(is_done, lambda: f"{bases(broker, good)}")
    assert bases(broker, bad) == [0, 2, 4, 6]
    assert "ZeroDivisionError" in caplog.text


def test_many_errors_of_one_pass_are_one_traceback_and_a_count(
    broker: OneBroker, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        four_segments(broker, f"t{number}")
    retention, thread = ruled_by(broker, Asked(lambda log: 1 // 0))
    retention.run(5000)
    until(lambda: len(thread.failures()) == 5, lambda: caplog.text)
    assert caplog.text.count("ZeroDivisionError:") == 1
    retention.run(5000)
    until(lambda: "failed for 4 more logs" in caplog.text, lambda: caplog.text)
    until(lambda: caplog.text.count("ZeroDivisionError:") == 2, lambda: caplog.text)


def test_what_changed_since_it_was_judged_is_judged_again(broker: OneBroker) -> None:
    slot = four_segments(broker)
    retention, thread = ruled_by(broker, Asked(lambda log: 0))
    incarnation = slot_probe.incarnation_of(slot)
    answers = [
        Answer(slot, incarnation, 3),  # no segment begins there
        Answer(slot, incarnation, 8),  # the active one ends there
        Answer(slot, incarnation + 1, 2),
        Answer(slot, incarnation, 0),
        Answer(slot, incarnation, 2),
    ]
    for answer in answers[:-1]:
        thread._answers = [answer]
        retention.follow_policy()
        assert bases(broker, slot) == [0, 2, 4, 6]
    thread._answers = answers[-1:]
    retention.follow_policy()
    assert bases(broker, slot) == [2, 4, 6]


# -- a class that hangs -------------------------------------------------------------------------------------------------


class Hanging:
    """Hangs on some topics until it is released; deletes a segment of each."""

    def __init__(self, *topics: str) -> None:
        self.released = threading.Event()
        self.topics = topics
        self.hanging: list[str] = []
        self.asked: list[str] = []

    def deletable(self, log: LogView) -> int:
        self.asked.append(log.topic)
        if log.topic in self.topics:
            self.hanging.append(log.topic)
            self.released.wait()
        return 1


def questions(*topics: str) -> list[Question]:
    class Segment:
        def __init__(self, base_offset: int) -> None:
            self.base_offset = base_offset

    segments: tuple = (Segment(0), Segment(7))
    return [
        Question(slot, 1, LogView(topic, 0, segments, 0, 9, 9, {}), 1) for slot, topic in enumerate(topics, start=1)
    ]


def gathered(thread: PolicyThread, found: list[Answer]) -> list[int]:
    found += thread.answers()
    return [answer.slot for answer in found]


def test_a_class_that_hangs_delays_no_other_log(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    policy = Hanging("b")
    thread = policy_thread(policy, clock=lambda: clock[0], patience_s=30)
    found: list[Answer] = []
    thread.ask(questions("a", "b", "c"))
    until(lambda: policy.hanging, "not asked about b")
    thread.look()
    assert policy.asked == ["a", "b"], "it is given its time"
    clock[0] += 30
    thread.look()
    until(lambda: gathered(thread, found) == [1, 3], lambda: f"{found}")
    assert "has not returned for b-0 within 30 s" in caplog.text
    thread.ask(questions("a", "b", "c"))
    until(lambda: gathered(thread, found) == [1, 3, 1, 3], lambda: f"{found}")
    assert policy.asked.count("b") == 1, "it is not asked about b while that call lasts"
    policy.released.set()
    until(lambda: "for b-0 has returned" in caplog.text, "no line says so")
    thread.ask(questions("a", "b"))
    until(lambda: gathered(thread, found) == [1, 3, 1, 3, 1, 2], lambda: f"{found}")


def test_a_class_that_hangs_everywhere_is_not_asked_any_more_until_it_returns(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"t{number}" for number in range(6)]
    policy = Hanging(*names)
    thread = policy_thread(policy, clock=lambda: clock[0], patience_s=30)
    thread.ask(questions(*names))
    for number in range(1, 4):
        until(lambda number=number: len(policy.hanging) == number, lambda: f"{policy.hanging}")
        clock[0] += 30
        thread.look()
    assert "3 calls of the deletion policy" in caplog.text
    threads = threading.active_count()
    thread.ask(questions(*names))
    thread.look()
    assert threading.active_count() == threads and len(policy.hanging) == 3
    policy.released.set()
    until(lambda: not thread._stuck, "the calls do not return")
    found: list[Answer] = []
    thread.ask(questions(*names))
    until(lambda: gathered(thread, found) == [1, 2, 3, 4, 5, 6], lambda: f"{found}")


def test_a_segment_that_was_removed_meanwhile_is_no_error(
    broker: OneBroker, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    slot = four_segments(broker)

    def look(log: LogView) -> int:
        (broker.table.path(slot) / f"{0:020d}.log").rename(tmp_path / "gone")
        return log.segments[0].size

    policy = Asked(look)
    retention, thread = ruled_by(broker, policy)
    retention.run(5000)
    asked_about(policy, 1)
    until(lambda: not thread._running, "it did not return")
    assert "failed" not in caplog.text
