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
"""Passes are only made here, not run."""


def passes(**settings: str) -> dict[str, upkeep.Pass]:
    given = [(key.replace("_", "."), value, "test") for key, value in settings.items()]
    made = upkeep.passes(resolve(given), TABLE, [], Retention(TABLE, []), DeletedLogs(TABLE, []))
    return {one.name: one for one in made}


@pytest.mark.parametrize("delay_ms", [0, 7, 3_600_000])
def test_background_work_on_logs_begins_after_the_configured_delay(delay_ms: int) -> None:
    found = passes(log_initial_task_delay_ms=str(delay_ms), log_retention_check_interval_ms="1000")
    assert {name: found[name].first_ms for name in DELAYED} == dict.fromkeys(DELAYED, delay_ms)
    assert found["retention"].every_ms == 1000


def test_flushes_and_the_deletion_of_renamed_files_do_not_wait_for_the_delay() -> None:
    found = passes(log_initial_task_delay_ms="3600000")
    assert all(one.first_ms == one.every_ms for name, one in found.items() if name not in DELAYED | AT_ONCE)
    assert {found[name].first_ms for name in AT_ONCE} == {0}


def test_the_default_delay_is_kafkas_but_limited_to_the_interval_of_a_pass() -> None:
    found = passes()
    assert found["retention"].first_ms == found["checkpoints"].first_ms == 30_000
    assert found["retention"].every_ms == 300_000
    assert passes(log_retention_check_interval_ms="200")["retention"].first_ms == 200
