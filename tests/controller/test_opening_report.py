"""What is logged about repairs of logs when they are opened: the first logs by name, the rest in one line."""

import logging

import pytest

from odradek._ext.storage.segments import LoadEvent
from odradek.controller.opening_report import EVENTS_OF_A_LOG, NAMED_LOGS, NAMED_TOPICS, OpeningReport


def event(number: int = 0, lost_bytes: int = 100, serious: bool = False) -> LoadEvent:
    return LoadEvent(f"repair {number}", "file", 0, 0, 0, lost_bytes, serious)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "odradek.controller")
    return caplog


def warnings(logged: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in logged.records if record.levelno >= logging.WARNING]


def test_few_logs_are_named(logged: pytest.LogCaptureFixture) -> None:
    report = OpeningReport(True)
    report.note("/d/t-0", "t", [event(1), event(2, 0)], 100)
    report.note("/d/t-1", "t", [event(3, 0, serious=True)], 0)
    report.finish()
    assert warnings(logged) == ["/d/t-0: repair 1", "/d/t-1: repair 3"]
    assert "/d/t-0: repair 2" in [record.getMessage() for record in logged.records], "with level DEBUG"


@pytest.mark.parametrize("clustered", [False, True])
def test_many_logs_are_a_few_lines(logged: pytest.LogCaptureFixture, clustered: bool) -> None:
    report = OpeningReport(clustered)
    for number in range(5000):
        report.note(f"/d/t{number % 100}-{number}", f"t{number % 100}", [event(number)], 7)
    report.finish()
    found = warnings(logged)
    assert found[:NAMED_LOGS] == [f"/d/t{number}-{number}: repair {number}" for number in range(NAMED_LOGS)]
    (summary,) = found[NAMED_LOGS:]
    assert summary.startswith(
        f"{5000 - NAMED_LOGS} more logs were repaired and {7 * (5000 - NAMED_LOGS)} bytes cut off them"
    )
    assert "t20 (50), t21 (50), t22 (50)" in summary and f"and {100 - NAMED_TOPICS} more topics" in summary
    assert "DEBUG" in summary and ("odradek partition explain" in summary) is clustered
    assert len([record for record in logged.records if "repair 4999" in record.getMessage()]) == 1


def test_many_repairs_of_one_log_are_a_few_lines(logged: pytest.LogCaptureFixture) -> None:
    report = OpeningReport(True)
    report.note("/d/t-0", "t", [event(number) for number in range(1000)], 100_000)
    assert warnings(logged) == [
        *(f"/d/t-0: repair {number}" for number in range(EVENTS_OF_A_LOG)),
        f"/d/t-0: {1000 - EVENTS_OF_A_LOG} further repairs are logged with level DEBUG",
    ]


def test_each_batch_of_logs_is_reported_by_itself(logged: pytest.LogCaptureFixture) -> None:
    report = OpeningReport(True)
    for _ in range(3):
        logged.clear()
        for number in range(NAMED_LOGS + 1):
            report.note(f"/d/t-{number}", "t", [event(number)], 7)
        report.finish()
        assert len(warnings(logged)) == NAMED_LOGS + 1
        assert warnings(logged)[-1].startswith(
            "1 more logs were repaired and 7 bytes cut off them, of the topics t (1);"
        )
