"""The steps of a load: recover, plan, and for each step read, write, commit and publish.

Runs in the process that the user started, which holds the lock of the version. The order within a step is in `_load_step`; what
happens if the process dies between any two of its lines is in docs/decisions/0042-load.md, and for Delta tables in
0043-load-delta.md. Spark's messages go to ``spark.log`` in the version's log directory.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from odradek.clock import now_ms
from odradek.jobs.load import frames
from odradek.jobs.load.commit_log import (
    LOAD,
    LOG,
    Commit,
    DataFile,
    Head,
    LoadedRange,
    VersionDirectory,
    sync_directory,
)
from odradek.jobs.load.decoding import Decoding
from odradek.jobs.load.errors import LoadError, LostRaceError
from odradek.jobs.load.offsets import (
    ClusterState,
    Finding,
    NamedPartition,
    Plan,
    Positions,
    Range,
    advanced,
    plan,
    steps,
)
from odradek.jobs.load.output import format_of
from odradek.jobs.load.recheck import Recheck
from odradek.jobs.load.scratch import scratch_directory
from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.session import first_line, spark_session, stderr_in, task_progress
from odradek.jobs.usage_report.times import iso

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say = Callable[[str], None]
SPARK_LOG = "spark.log"
#: Up to this many offsets Spark starts without compilation, which costs more than it saves.
LITTLE = 500_000
_HASHES = 1 << 64


class Writer(Protocol):
    """Reads ranges of offsets and writes their records into a directory."""

    def __call__(self, ranges: Sequence[Range], staging: Path) -> Sequence[Any]:
        """Returns an object for each file, with the columns of `files.WRITTEN` as attributes. May raise LoadError."""


@dataclass(frozen=True)
class SparkOptions:
    """How Spark runs. :param master: its URL; None for this machine. :param memory: heap size of the driver.

    :param settings: further settings
    """

    master: str | None = None
    memory: str = "1g"
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a run did. :param files: those that it wrote."""

    records: int
    commits: int
    findings: tuple[Finding, ...]
    files: tuple[DataFile, ...] = ()

    @property
    def exit_status(self) -> int:
        """0 if the output has all that was asked for, else 3."""
        return 3 if any(finding.is_loss for finding in self.findings) else 0


#: All tasks of a machine's cores; a task that fails is tried again, up to four times in all.
LOCAL = "local[*,4]"


def open_version(output: Path, name: str, head: Head) -> VersionDirectory:
    """Open a version, or create it with `head`. Raises LoadError; see `check_version`."""
    version = VersionDirectory(output, name)
    if not check_version(version, head):
        version.create(head)
    elif not version.is_begun:
        version.replace_head(head)
    return version


def check_version(version: VersionDirectory, head: Head) -> bool:
    """Return whether the version exists.

    :raises LoadError: it was loaded from another cluster, or with another period or decoding, or is no version
    """
    found = version.head()
    if found is None:
        if version.path.exists() and any(version.path.iterdir()) and not version.log.exists():
            raise LoadError(
                f"{version.path}: has files but no {LOG}: it is no version of `odradek load`; use another --version"
            )
        return False
    if found.cluster_id != head.cluster_id:
        raise LoadError(
            f"{version.path} was loaded from cluster {found.cluster_id}, and this is cluster {head.cluster_id}: use another"
            " --version or --out"
        )
    for what, before, now in (
        ("--from", found.from_ms, head.from_ms),
        ("--to", found.to_ms, head.to_ms),
        ("--value", found.decoding, head.decoding),
        ("--format", found.table, head.table),
    ):
        if before != now and version.is_begun:
            raise LoadError(
                f"{version.path} was begun with {what} {_shown(before)}, not {_shown(now)}: repeat the options of its first"
                " run, or use another --version"
            )
    return True


def _shown(value: int | str | None) -> str:
    return "unset" if value is None else iso(value) if isinstance(value, int) else value


def plan_of(version: VersionDirectory, state: ClusterState) -> Plan:
    """What a run would do now. Raises LoadError."""
    newest = version.newest()
    return plan(newest.positions if newest else {}, state, _another(version))


def _another(version: VersionDirectory) -> str:
    return f"--version NAME (this is {version.name})"


def run(
    version: VersionDirectory,
    look: Callable[[], ClusterState],
    most: int,
    writer: Callable[[Plan], AbstractContextManager[Writer]],
    say: Say,
    merge_at: int = 0,
) -> Outcome:
    """Load what the cluster has and the version has not.

    :param look: asks the brokers; called when no other run can write, and directly before each commit
    :param most: the number of offsets of a commit
    :param writer: makes a context manager that yields a `Writer`; it is entered
        only if there is something to load
    :param say: prints a line of progress
    :param merge_at: merge small files of directories that have this number of them, or more; 0: merge nothing
    :raises LoadError: the load cannot be done; what was committed before stays loaded
    """
    begun = iso(now_ms())
    with version.locked():
        try:
            outcome = _run(version, look, most, writer, say)
            if merge_at and outcome.files and format_of(version).crowded(version, outcome.files, merge_at):
                _merge_if_alone(version, merge_at, say)
        except LoadError as error:
            version.note_run({"started": begun, "ended": iso(now_ms()), "exit_status": 1, "error": str(error)})
            raise
        findings = [vars(finding) for finding in outcome.findings]
        counts = {"records": outcome.records, "commits": outcome.commits, "exit_status": outcome.exit_status}
        version.note_run({"started": begun, "ended": iso(now_ms()), **counts, "findings": findings})
    return outcome


def _run(
    version: VersionDirectory,
    look: Callable[[], ClusterState],
    most: int,
    writer: Callable[[Plan], AbstractContextManager[Writer]],
    say: Say,
) -> Outcome:
    state = look()
    newest = format_of(version).recover(version)
    before: Positions = newest.positions if newest else {}
    number = newest.number if newest else 0
    planned = plan(before, state, _another(version))
    for finding in planned.findings:
        say(f"{'warning: ' if finding.is_loss else ''}{finding.text}")
    if planned.ranges:
        recheck = Recheck(look, state.cluster_id, before, _another(version))
        with writer(planned) as write:
            return _load(version, state.cluster_id, planned, most, number, write, say, recheck)
    if planned.positions == before:
        return Outcome(0, 0, planned.findings)
    now = iso(now_ms())
    found = planned.lasting_findings
    commit = Commit(number + 1, LOAD, state.cluster_id, now, now, planned.positions, findings=found)
    format_of(version).commit(version, commit)
    return Outcome(0, 1, planned.findings)


def _load(
    version: VersionDirectory,
    cluster_id: str,
    planned: Plan,
    most: int,
    number: int,
    write: Writer,
    say: Say,
    recheck: Recheck,
) -> Outcome:
    """Load the ranges of a plan step by step. :param number: of the commit before."""
    positions, findings = planned.positions, planned.lasting_findings
    records = loaded = done = 0
    files: tuple[DataFile, ...] = ()
    for whole in steps(planned.ranges, most):
        step = recheck.unchanged(whole)
        loaded += sum(part.until - part.start for part in whole)
        if not step:
            continue
        begun = time.monotonic()
        begin = Commit(number + done + 1, LOAD, cluster_id, iso(now_ms()), "", positions, findings=findings)
        known = len(recheck.findings)
        commit = _load_step(version, begin, step, write, recheck)
        for finding in recheck.findings[known:]:
            say(f"warning: {finding.text}")
        if commit is None:
            positions, findings = recheck.without_changed(positions), (*findings, *recheck.findings[known:])
            continue
        done += 1
        positions, findings = commit.positions, ()  # the first commit has them
        records += commit.records
        files += commit.files
        undecoded = sum(file.undecoded for file in commit.files)
        if undecoded:
            say(
                f"warning: commit {commit.number}: {undecoded} values could not be decoded; their decode_error says why"
            )
        say(
            f"commit {commit.number}: {commit.records} records, {sum(file.bytes for file in commit.files)} bytes in"
            f" {len(commit.files)} files, {time.monotonic() - begun:.1f} s; {100 * loaded // planned.offsets} % of the offsets"
        )
    return Outcome(records, done, (*planned.findings, *recheck.findings), files)


def merge_small(version: VersionDirectory, least: int, say: Say) -> Commit | None:
    """Merge small files of directories that have at least `least` of them; see `output.Output`. Raises LoadError."""
    commit = format_of(version).merge(version, least)
    if commit is not None:
        say(f"commit {commit.number}: {len(commit.removed)} small files were merged into {len(commit.files)}")
    return commit


def _merge_if_alone(version: VersionDirectory, least: int, say: Say) -> None:
    try:
        merge_small(version, least, say)
    except LostRaceError as error:  # another writer of a Delta table was faster; a later run merges
        say(f"warning: no files were merged: {error}")


def _load_step(
    version: VersionDirectory, begun: Commit, step: Sequence[Range], write: Writer, recheck: Recheck
) -> Commit | None:
    """Read, write, compare with the cluster, commit and publish. Returns None if all topics of the step have changed.

    :param begun: the commit with the positions and findings before the step
    """
    with version.staged(begun.number) as staging:
        written = write(step, staging)
        sync_directory(staging)
        sync_directory(version.staging)
        kept, rows, found = recheck.compare(step, begun.positions, written)
        if not kept:
            return None
        files, ranges = described(rows, kept, begun.number, staging.relative_to(version.path))
        for file in files:
            if not (version.path / file.staging).is_file():
                raise LoadError(
                    f"{version.path / file.staging} was written by a task and is not there: the directory of --out must be"
                    " shared by all machines of the Spark cluster"
                )
        positions = advanced(recheck.without_changed(begun.positions), kept)
        commit = replace(
            begun,
            ended=iso(now_ms()),
            positions=positions,
            ranges=ranges,
            files=files,
            findings=(*begun.findings, *found),
        )
        commit = format_of(version).commit(version, commit)
        recheck.committed = commit.positions
    return commit


def described(
    written: Sequence[Any], step: Sequence[Range], number: int, staging: Path
) -> tuple[tuple[DataFile, ...], dict[str, dict[int, LoadedRange]]]:
    """The files and ranges of a commit, from the rows that the tasks returned.

    :raises LoadError: a row is outside of the ranges, or has a record twice
    """
    ranges = {part.place: LoadedRange(part.start, part.until) for part in step}
    files = []
    rows = sorted(written, key=lambda row: (row.topic, row.date, row.partition, row.first_offset, row.file))
    for index, row in enumerate(rows):
        place = NamedPartition(row.topic, row.partition)
        whole = ranges.get(place)
        if whole is None or row.first_offset < whole.start or row.last_offset >= whole.until:
            raise LoadError(
                f"{row.topic}-{row.partition}: Spark returned offsets {row.first_offset} to {row.last_offset}, which were not"
                " asked for"
            )
        ranges[place] = replace(
            whole,
            records=whole.records + row.records,
            first_offset=_least(whole.first_offset, row.first_offset),
            last_offset=_greatest(whole.last_offset, row.last_offset),
            first_timestamp_ms=_least(whole.first_timestamp_ms, row.first_timestamp_ms),
            last_timestamp_ms=_greatest(whole.last_timestamp_ms, row.last_timestamp_ms),
            checksum=(whole.checksum + row.checksum) % _HASHES,
        )
        path = f"topic={row.topic}/date={row.date}/part-{number:010}-{index:05}.parquet"
        files.append(DataFile(f"{staging}/{row.file}", path, row.bytes, row.records, row.undecoded))
    for place, whole in ranges.items():
        if whole.records > whole.until - whole.start:
            raise LoadError(f"{place}: Spark returned {whole.records} records of {whole.until - whole.start} offsets")
    by_topic: dict[str, dict[int, LoadedRange]] = {}
    for place, whole in sorted(ranges.items()):
        by_topic.setdefault(place.topic, {})[place.partition] = whole
    return tuple(files), by_topic


def _least(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)


def _greatest(one: int | None, other: int) -> int:
    return other if one is None else max(one, other)


@contextmanager
def spark_of(version: VersionDirectory, options: SparkOptions, lean: bool) -> "Iterator[SparkSession]":
    """A Spark session whose messages go to the log of the version. Raises LoadError, also for what Spark raises inside."""
    from pyspark.errors import PySparkException

    log = version.log / SPARK_LOG
    settings = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",  # each may have a megabyte
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
        **options.settings,
    }
    try:
        master = options.master or LOCAL
        with (
            scratch_directory() as scratch,
            spark_session(master, log, scratch, options.memory, lean, "odradek load", settings) as spark,
        ):
            for key in ("spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.session.timeZone"):
                spark.conf.set(key, settings.get(key, "UTC"))
            yield spark
    except ReportError as error:
        raise LoadError(str(error)) from None
    except PySparkException as error:
        raise _translated(error, log) from None
    except Exception as error:
        if type(error).__module__.startswith("py4j"):
            raise _translated(error, log) from None
        raise


def quietly(version: VersionDirectory) -> AbstractContextManager[None]:
    """Redirect what Spark writes to stderr to its log."""
    return stderr_in(version.log / SPARK_LOG)


@contextmanager
def spark_writer(
    version: VersionDirectory,
    reader: frames.Reader,
    options: SparkOptions,
    decoding: Decoding,
    say: Say,
    planned: Plan,
) -> Iterator[Writer]:
    """Start Spark for a plan; yield its `Writer`. Raises LoadError."""
    say(f"offsets to load: {planned.offsets}; starting Spark, whose messages are in {version.log / SPARK_LOG}")
    with spark_of(version, options, planned.offsets <= LITTLE) as spark:

        def write(ranges: Sequence[Range], staging: Path) -> Sequence[Any]:
            with task_progress(spark, say), quietly(version):
                return frames.write(frames.read(spark, reader, ranges), staging, decoding)

        yield write


def _translated(error: BaseException, log: Path) -> LoadError:
    with stderr_in(log):
        print(error, file=sys.stderr)
    text = str(error)
    if "KafkaRecordToRowConverter" in text and "long overflow" in text:
        return LoadError(
            "a record has a timestamp that Spark's Kafka connector cannot read, of 292,000 years from now or ago: use --reader"
            f" python; see {log}"
        )
    raised = [line.partition(mark)[2] for line in text.splitlines() for mark in _MARKS if line.strip().startswith(mark)]
    reason = raised[-1] if raised else _exception_of_python(text) or _cause(text) or first_line(error)
    return LoadError(f"Spark failed: {reason}; see {log}")


#: How exceptions of the load's own code begin in the text of Spark's Python workers.
_MARKS = ("RuntimeError: ", "OSError: ", f"{LoadError.__module__}.{LoadError.__qualname__}: ")


def _exception_of_python(text: str) -> str:
    """The line after the last traceback of Python, which is the exception: for example MemoryError."""
    found, inside = "", False
    for line in text.splitlines():
        if line.endswith("Traceback (most recent call last):"):
            inside = True
        elif inside and line and not line[0].isspace():
            found, inside = line[:400], False
    return found


def _cause(text: str) -> str:
    """The last cause that a Java exception names, which is the one that explains it."""
    causes = [
        line.strip().removeprefix("Caused by: ") for line in text.splitlines() if line.strip().startswith("Caused by: ")
    ]
    return causes[-1][:400] if causes else ""
