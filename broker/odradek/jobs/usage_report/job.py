"""The steps of a run: read the source, aggregate, write the tables, make the page from them.

Runs in the process that the user started. A lock on ``.lock`` in the output directory prevents a second run at the same time.
Spark's messages go to ``spark.log`` there. The tables of a day are kept if an earlier run had more data for it (files of the
spool have been deleted since).
"""

import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.clock import now_ms
from odradek.jobs.usage_report.errors import INSTALL, ReportError
from odradek.jobs.usage_report.gaps import Gap, Span
from odradek.jobs.usage_report.options import Job
from odradek.jobs.usage_report.page.text import counted
from odradek.jobs.usage_report.session import first_line, spark_session, stderr_in, task_progress
from odradek.jobs.usage_report.times import DAY_MS, HOUR_MS, iso, moment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from odradek.jobs.usage_report.spool import SpoolFile
    from odradek.jobs.usage_report.spool_sources import Spools

_SMALL = (*Span._fields, "reason", "damaged_file")
Say = Callable[[str], None]
#: A run has little data up to this many bytes of compressed spool, or this much time in Prometheus.
_LITTLE_BYTES = 64 << 20
_LITTLE_MS = 2 * DAY_MS
#: Approximate compression ratio of a file of the spool.
_PACKED = 7
LOG = "spark.log"


def run(job: Job, say: Say) -> None:
    """Make the report.

    :param say: prints a line for the user; the line has no line end
    :raises ReportError: the report cannot be made
    """
    try:
        from odradek.jobs.usage_report import report
    except ModuleNotFoundError as error:
        raise ReportError(f"the Python package {error.name or error} is missing; install it with {INSTALL}") from None
    except ImportError as error:  # numpy explains the failure of a library with a page of text
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise ReportError(f"the Python packages of the report cannot be loaded: {cause}") from error
    report.check(job.options)
    job, spools = _with_data(job, say)
    say(f"starting Spark; its messages are in {job.out / LOG}")
    with _opened(job, spools) as (spark, log, scratch), task_progress(spark, say):
        _write_tables(spark, job, spools, scratch, log, say)
        to_ms = end_of_page_ms(job)
        say("writing the page")
        with _errors_in_one_line(log):
            result = report.build(spark, job.out / "tables", job.out, moment(job.from_ms), moment(to_ms), job.options)
        for line in result.lines():
            say(line)


def make_tables(job: Job, say: Say) -> None:
    """Write only the tables, as `run` writes them."""
    job, spools = _with_data(job, say)
    with _opened(job, spools) as (spark, log, scratch):
        _write_tables(spark, job, spools, scratch, log, say)


@contextmanager
def _opened(job: Job, spools: "Spools") -> Iterator[tuple["SparkSession", Path, Path]]:
    """Yield a Spark session, the path of its log, and a directory that is removed at the end; the output directory is locked
    meanwhile."""
    log = job.out / LOG
    lean = _expects_little(job, spools)
    with (
        _alone(job.out),
        _scratch(job.out) as scratch,
        spark_session(job.master, log, scratch, job.memory, lean) as spark,
    ):
        yield spark, log, scratch


def _expects_little(job: Job, spools: "Spools") -> bool:
    """Whether there is little data, so that Spark should start without compilation: see `session.tune`."""
    from_ms, to_ms = _whole_days(job)
    if job.source.prometheus is not None:
        return to_ms - from_ms <= _LITTLE_MS
    from odradek.jobs.usage_report import spool

    files = spool.needed([*spools.files], from_ms, to_ms)
    packed = sum(file.size if file.path.suffix == ".gz" else file.size // _PACKED for file in files)
    return packed <= _LITTLE_BYTES


def _whole_days(job: Job) -> tuple[int, int]:
    """Return the period for which tables are written: whole days, but for today only the hours that have begun."""
    begun_hours_end_ms = -(-now_ms() // HOUR_MS) * HOUR_MS
    return job.from_ms // DAY_MS * DAY_MS, min(-(-job.to_ms // DAY_MS) * DAY_MS, begun_hours_end_ms)


def end_of_page_ms(job: Job) -> int:
    """Return the end of the period of the page: hours in the future are not part of it, so they do not count as missing.

    The period has at least one hour, even if it begins now, at a full hour.
    """
    return max(job.from_ms + HOUR_MS, min(job.to_ms, _whole_days(job)[1]))


def _with_data(job: Job, say: Say) -> tuple[Job, "Spools"]:
    """Check that the source has data of the period, before Spark starts, which takes seconds; return the job and its spools.

    If the period is the default (yesterday) and only today has data (the broker's first day), return the job for today.
    """
    from odradek.jobs.usage_report import spool_sources

    spools = spool_sources.listed(job.source.spools, say)
    try:
        _check_source(job, spools)
    except ReportError:
        if not job.default_period:
            raise
        today_ms = now_ms() // DAY_MS * DAY_MS
        today = replace(job, from_ms=today_ms, to_ms=today_ms + DAY_MS)
        try:
            _check_source(today, spools)
        except ReportError:
            pass
        else:
            say(f"There are no data for yesterday yet; this report covers today until now ({iso(today_ms)[:10]}).")
            return today, spools
        raise
    return job, spools


def _check_source(job: Job, spools: "Spools") -> None:
    """:raises ReportError: the source has no data of the period"""
    from_ms, to_ms = _whole_days(job)
    source = job.source
    if source.prometheus is None:
        from odradek.jobs.usage_report import spool

        if not spool.needed([*spools.files], from_ms, to_ms):
            raise _nothing(job, from_ms, to_ms, spools.files)
        return
    from odradek.jobs.usage_report.prometheus import BOOT
    from odradek.jobs.usage_report.prometheus_http import Prometheus

    prometheus = Prometheus(source.prometheus, source.match, source.step_s)
    if not prometheus.label_values("instance", BOOT, from_ms, to_ms):
        matched = f" with {{{source.match}}}" if source.match else ""
        raise ReportError(
            f"{prometheus.about} has no samples of {BOOT.metric}{matched} from {iso(from_ms)} to {iso(to_ms)}: "
            "expected a Prometheus that scraped the broker's metrics.listener in this time"
        )


def _write_tables(spark: "SparkSession", job: Job, spools: "Spools", scratch: Path, log: Path, say: Say) -> None:
    """Write the tables of all days of the period, always whole days: a part of a day would replace the whole day."""
    from odradek.jobs.usage_report import tables

    from_ms, to_ms = _whole_days(job)
    tables.prepare(spark)
    begun = time.monotonic()
    with _errors_in_one_line(log):
        if job.source.prometheus is None:
            _from_spools(spark, job, spools, scratch, from_ms, to_ms, say)
        else:
            _from_prometheus(spark, job, from_ms, to_ms, say)
    say(f"tables: {job.out / 'tables'} ({time.monotonic() - begun:.0f} s)")


@contextmanager
def _errors_in_one_line(log: Path) -> Iterator[None]:
    """Redirect Spark's output to `log`; turn its exceptions into a `ReportError` of one line, with the full text in `log`."""
    from pyspark.errors import PySparkException

    with stderr_in(log):
        try:
            yield
        except ReportError:
            raise
        except (PySparkException, OSError) as error:
            raise _translated(error, log) from None
        except Exception as error:
            if type(error).__module__.startswith("py4j"):
                raise _translated(error, log) from None
            raise


def _from_spools(
    spark: "SparkSession", job: Job, spools: "Spools", scratch: Path, from_ms: int, to_ms: int, say: Say
) -> None:
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    from odradek.jobs.usage_report import gaps, small_tables, spool, spool_sources, tables

    needed = spool.needed([*spools.files], from_ms, to_ms)
    say(f"reading {counted(len(needed), 'file')} of the spool")
    files, gap_rows = spool_sources.copied(needed, scratch, from_ms, to_ms, say)
    gap_rows += spool_sources.gaps_of_places(job.source.spools, spools, from_ms, to_ms)
    shuffles = min(64, max(1, sum(file.size for file in files) >> 22))
    spark.conf.set("spark.sql.shuffle.partitions", str(shuffles))
    tasks = 4 * spark.sparkContext.defaultParallelism
    facts = spool.facts(spark, files, from_ms, to_ms, tasks).persist(StorageLevel.DISK_ONLY)
    try:
        # a few rows an hour
        small = facts.where(F.col("kind").isin("span", "damage", "member")).select("kind", "page", *_SMALL).collect()
        spans = [gaps.Span(*(row[name] for name in gaps.Span._fields)) for row in small if row["kind"] == "span"]
        damages = [
            gaps.FileDamage(*(row[name] for name in gaps.FileDamage._fields))
            for row in small
            if row["kind"] == "damage"
        ]
        for damage in sorted(damages, key=lambda damage: damage.source):
            say(f"warning: skipped: {damage.source}: {damage.reason}")
        spool_sources.check_brokers(spans, files)
        brokers = {span.broker for span in spans}
        members: dict[int, set[int]] = {}
        for row in small:
            if row["kind"] == "member" and row["hour"] is not None:
                members.setdefault(row["page"], set()).add(row["hour"])
        known_from = gaps.known_from(spans)
        known_before = small_tables.brokers_before(job.out / "tables", from_ms // 1000)
        if known_before is not None:
            known_before |= spool_sources.brokers_before(spools.files, spans, from_ms)
        gap_rows += gaps.find_gaps_of_brokers(spans, damages, from_ms, to_ms, spools.listed_ms, known_before)
        gap_rows += gaps.find_unread_members(members, brokers, from_ms, to_ms)
        for boot, count in tables.without_start(facts, known_from):
            at_ms = max(from_ms, known_from[boot] or from_ms)
            began = counted(count, "counter")
            reason = f"{began} began before the oldest file of the spool; their counts before that file are not known"
            gap_rows.append(gaps.Gap(at_ms, at_ms, reason, f"boot {boot}"))
        if not any(span.hour is not None for span in spans):
            raise _nothing(job, from_ms, to_ms, files)
        intervals = sum(span.intervals for span in spans if span.hour is not None)
        whose = f"{counted(len(brokers), 'broker')}, " if len(brokers) > 1 else ""
        say(f"{whose}{counted(len(files), 'file')}, {counted(intervals, 'interval')}; writing the tables")
        made = tables.from_spool(facts, known_from, len(brokers))
        _write(job, from_ms, to_ms, made, gap_rows, gaps.coverage(spans), say)
    finally:
        facts.unpersist()


def _nothing(job: Job, from_ms: int, to_ms: int, files: Sequence["SpoolFile"]) -> ReportError:
    """Return the error for a spool without an interval of the period."""
    if not files:
        contents = "it has no file usage-YYYYMMDDTHH-BOOT.jsonl"
    else:
        first_ms, last_ms = min(file.hour_ms for file in files), max(file.hour_ms for file in files)
        today_ms = now_ms() // DAY_MS * DAY_MS
        if last_ms >= today_ms:
            hint = "--from today --to tomorrow"
        else:
            hint = f"--from {iso(first_ms)[:10]} --to {iso(last_ms + DAY_MS)[:10]}"
        contents = f"its files cover the hours from {iso(first_ms)} to {iso(last_ms)}: try {hint}"
    return ReportError(f"{job.source}: has no data from {iso(from_ms)} to {iso(to_ms)}; {contents}")


def _from_prometheus(spark: "SparkSession", job: Job, from_ms: int, to_ms: int, say: Say) -> None:
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    from odradek.jobs.usage_report import gaps, prometheus, tables
    from odradek.jobs.usage_report.prometheus_http import Prometheus

    source, read_ms = job.source, now_ms()
    assert source.prometheus is not None
    server = Prometheus(source.prometheus, source.match, source.step_s)
    say(f"reading {server.url}")
    members = server.label_values("id", prometheus.BROKERS, from_ms, to_ms)
    own = server.series(prometheus.OWN_IDS, from_ms, to_ms)
    spark.dataSource.register(prometheus.PrometheusSource)
    spark.conf.set("spark.sql.shuffle.partitions", str(2 * spark.sparkContext.defaultParallelism))
    facts = (
        spark.read.format(prometheus.NAME)
        .options(url=source.prometheus, match=source.match, step_s=str(source.step_s))
        .options(from_ms=str(from_ms), to_ms=str(to_ms))
        .load()
        .persist(StorageLevel.DISK_ONLY)
    )
    try:
        small = facts.where(F.col("kind") == "span").withColumnRenamed("count", "samples")
        spans = [gaps.Scraped(*row) for row in small.select(*gaps.Scraped._fields).collect()]
        older = prometheus.older_instances(server, from_ms)
        gap_rows = gaps.find_scrape_gaps(spans, from_ms, to_ms, read_ms, source.step_s * 1000, older)
        unknown = facts.where(F.col("unknown") > 0).groupBy("hour").agg(F.sum("unknown").alias("count"))
        for row in unknown.orderBy("hour").collect():
            lost = counted(row["count"], "sample")
            reason = f"{lost} of counters without an earlier sample; the increase of these counters is not known"
            gap_rows.append(gaps.Gap(row["hour"], row["hour"], reason, server.url))
        instances = {span.instance for span in spans}
        ids = gaps.brokers_of(own, instances, members)
        gaps.check_instances(spans, ids, source.match, source.step_s * 1000)
        if len(ids) == len(instances):
            known = dict.fromkeys(map(int, members), range(from_ms, to_ms, HOUR_MS))
            gap_rows += gaps.find_unread_members(known, set(ids.values()), from_ms, to_ms)
        samples = sum(span.samples for span in spans)
        say(f"{counted(len(instances), 'broker')}, {counted(samples, 'sample')}; writing the tables")
        made = tables.from_prometheus(facts, ids)
        _write(job, from_ms, to_ms, made, gap_rows, gaps.scrape_coverage(spans, ids), say)
    finally:
        facts.unpersist()


def _write(
    job: Job, from_ms: int, to_ms: int, new_tables: dict[str, "DataFrame"], new_gaps: Sequence[Gap],
    covered: Sequence[Mapping[str, Any]], say: Say,
) -> None:  # fmt: skip
    """Replace the tables of the days, except days for which an earlier run had more data."""
    from odradek.jobs.usage_report import gaps, table_files, tables

    directory = job.out / "tables"
    table_files.remove_staging(directory)
    new_gaps = gaps.clip(new_gaps, from_ms, to_ms)
    days = tables.days_of(from_ms, to_ms)
    kind = "spool" if job.source.prometheus is None else "prometheus"
    now = tables.coverage_by_day({**row, "source": kind} for row in covered)
    kept = []
    for day, before in tables.written_coverage(directory, days).items():
        lost = before.lost(now.get(day))
        if lost and (before.source == kind or day not in now):
            kept.append(day)
            say(f"warning: the tables of {day} are kept: the source now has {lost} from which they were written")
    coverage = [{**row, "source": kind} for row in covered]
    table_files.write(directory, new_tables, new_gaps, coverage, [day for day in days if day not in kept])
    if new_gaps:
        say(f"{counted(len(new_gaps), 'gap')}, listed in the report")


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    descriptor = os.open(out / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ReportError(f"--out {out}: another run is writing to this directory; wait until it ends") from None
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _scratch(out: Path) -> Iterator[Path]:
    for left in out.glob(".scratch-*"):
        shutil.rmtree(left, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=".scratch-", dir=out))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _translated(error: BaseException, log: Path) -> ReportError:
    """Return a `ReportError` for an exception of Spark; if Spark wrapped a `ReportError`, with the text of that one."""
    for line in str(error).splitlines():
        _, mark, message = line.partition(f"{ReportError.__module__}.{ReportError.__qualname__}: ")
        if mark:
            return ReportError(message)
        _, mark, message = line.partition(f"{ReportError.__qualname__}: ")
        if mark:
            return ReportError(message)
    print(error, file=sys.stderr)
    return ReportError(f"Spark failed: {first_line(error)}; see {log}")


def now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)
