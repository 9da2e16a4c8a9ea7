"""What is logged about stopped partitions."""

from __future__ import annotations

import pytest

from odradek.mirror.observers import LogObserver
from odradek.mirror.routes import Moved, Route

ONE, OTHER = (Route(("t", number), ("a.t", number)) for number in range(2))


def test_a_stopped_partition_is_logged_once_until_the_reason_changes_or_it_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    observer = LogObserver("a->b")

    def lines() -> list[tuple[str, str]]:
        found = [(record.levelname, record.getMessage()) for record in caplog.records]
        caplog.clear()
        return found

    caplog.set_level("INFO", "odradek.mirror")
    for _ in range(3):
        observer.stopped(ONE, "it is too large")
    assert lines() == [
        ("ERROR", "a->b: partition t-0 of the source is not mirrored to a.t-0 any more: it is too large")
    ]
    observer.stopped(OTHER, "it is too large")
    observer.stopped(ONE, "the disk is full")
    assert [level for level, _ in lines()] == ["ERROR", "ERROR"]
    observer.progress(ONE, 5, 9, 0)
    observer.stopped(ONE, "the disk is full")
    assert lines() == []
    observer.moved(Moved(ONE, 4, 4, 5, 1, 100, 0))
    observer.stopped(ONE, "the disk is full")
    assert lines() == [], "what stands before the batch at which a partition stops does not end the stop"
    observer.resumed(ONE)
    observer.moved(Moved(ONE, 5, 5, 6, 1, 100, 0))
    assert lines() == [("INFO", "a->b: partition t-0 of the source is mirrored to a.t-0 again")]
    observer.stopped(ONE, "the disk is full")
    observer.stopped(OTHER, "it is too large")
    assert [level for level, _ in lines()] == ["ERROR"]
