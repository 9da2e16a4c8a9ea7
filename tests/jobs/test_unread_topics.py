"""Unread topics of the report: topics of which no bytes were sent to a client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.jobs.usage_report.aggregates import aggregate
from tests.jobs import report_tables

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1200), pytest.mark.java]

A_PART_OF_A_RECORD = 2e-8  # of the traffic of an hour: some bytes in each, and not one whole record


@pytest.mark.parametrize("read", [False, True])
def test_a_topic_of_which_a_client_was_sent_bytes_is_not_unread(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: bool
) -> None:
    reader = ("User:ANONYMOUS", "kcat", "audit.trail", 0.0, A_PART_OF_A_RECORD)
    monkeypatch.setattr(report_tables, "CLIENTS", [*report_tables.CLIENTS, *([reader] if read else [])])
    tables = report_tables.make_tables(tmp_path, days=2, gap=None, more_topics=0)
    end = report_tables.END
    figures = aggregate(spark, tables, end - report_tables.DAY, end)
    assert ("audit.trail" in list(figures.unread["topic"])) is not read
