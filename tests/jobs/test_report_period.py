"""The period of a report: the first day of a broker, hours that have not begun, hints when there is nothing."""

from pathlib import Path

import pytest

from odradek.jobs.usage_report import job
from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.options import Job, Source, check_out
from odradek.jobs.usage_report.times import DAY_MS, HOUR_MS, moment, parse_range
from tests.jobs.spools import Boot, at

TODAY = at("2026-03-10")
NOW = at("2026-03-10T05:20")


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The spool of a broker that was started this morning; the current time is 05:20."""
    monkeypatch.setattr(job, "now_ms", lambda: NOW)
    directory = tmp_path / "spool"
    directory.mkdir()
    boot = Boot(directory, "0a", at("2026-03-10T03:00"))
    for _ in range(140):
        boot.tick()
    return directory


def made(spool: Path, from_: str | None = None, to: str | None = None) -> Job:
    first, last = parse_range(from_, to, moment(NOW))
    source = Source(spools=(str(spool),))
    return Job(source, first, last, check_out(str(spool / "out")), default_period=from_ is None and to is None)


def test_on_the_first_day_the_report_is_of_today_so_far(spool: Path) -> None:
    said: list[str] = []
    chosen, spools = job._with_data(made(spool), said.append)
    assert len(spools.files) > 0
    assert (chosen.from_ms, chosen.to_ms) == (TODAY, TODAY + DAY_MS)
    assert said == ["There are no data for yesterday yet; this report covers today until now (2026-03-10)."]


def test_an_explicit_period_is_not_replaced_and_the_error_suggests_another(spool: Path) -> None:
    with pytest.raises(ReportError, match=r"files cover the hours from .* try --from today --to tomorrow$"):
        job._with_data(made(spool, "yesterday"), print)
    assert job._with_data(made(spool, "today", "tomorrow"), print)[0].to_ms == TODAY + DAY_MS


def test_the_hint_for_an_old_spool_names_its_days(spool: Path) -> None:
    for path in spool.glob("usage-*"):
        path.rename(path.with_name(path.name.replace("20260310", "20260215")))
    with pytest.raises(ReportError, match=r"try --from 2026-02-15 --to 2026-02-16$"):
        job._with_data(made(spool), print)


def test_hours_that_have_not_begun_do_not_belong_to_the_page(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert job.end_of_page_ms(made(spool, "today", "tomorrow")) == TODAY + 6 * HOUR_MS
    assert job.end_of_page_ms(made(spool, "-3d")) == TODAY
    monkeypatch.setattr(job, "now_ms", lambda: at("2026-03-10T05:00"))
    assert job.end_of_page_ms(made(spool, "2026-03-10T05:00", "tomorrow")) == TODAY + 6 * HOUR_MS
