"""log.initial.task.delay.ms: when the cleaner's background work on logs begins."""

from typing import Any

import pytest

from odradek.cleaner import upkeep
from odradek.cleaner.deleted_logs import DeletedLogs
from odradek.cleaner.retention import Retention
from odradek.config.broker_config import resolve

DELAYED = {"checkpoints", "removal of deleted logs", "retention"}
AT_ONCE = {"gap limits"}


TABLE: Any = object()
"""The passes are created here, but not run."""


def passes(**settings: str) -> dict[str, upkeep.Pass]:
    rows = [(key.replace("_", "."), value, "test") for key, value in settings.items()]
    all_passes = upkeep.passes(resolve(rows), TABLE, [], Retention(TABLE, []), DeletedLogs(TABLE, []))
    return {item.name: item for item in all_passes}


@pytest.mark.parametrize("delay_ms", [0, 7, 3_600_000])
def test_background_work_on_logs_begins_after_the_configured_delay(delay_ms: int) -> None:
    by_name = passes(log_initial_task_delay_ms=str(delay_ms), log_retention_check_interval_ms="1000")
    assert {name: by_name[name].first_ms for name in DELAYED} == dict.fromkeys(DELAYED, delay_ms)
    assert by_name["retention"].every_ms == 1000


def test_flushes_and_the_deletion_of_renamed_files_do_not_wait_for_the_delay() -> None:
    by_name = passes(log_initial_task_delay_ms="3600000")
    assert all(item.first_ms == item.every_ms for name, item in by_name.items() if name not in DELAYED | AT_ONCE)
    assert {by_name[name].first_ms for name in AT_ONCE} == {0}


def test_the_default_delay_is_kafkas_but_limited_to_the_interval_of_a_pass() -> None:
    by_name = passes()
    assert by_name["retention"].first_ms == by_name["checkpoints"].first_ms == 30_000
    assert by_name["retention"].every_ms == 300_000
    assert passes(log_retention_check_interval_ms="200")["retention"].first_ms == 200
