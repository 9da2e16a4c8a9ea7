"""The commits of a load, without Spark: a run that dies between two lines and is repeated leaves each record once.

A writer of the tests takes Spark's place: it writes the offsets of its ranges as text. A run is a child process that ends
itself, as a kill does, before the n-th line that it would execute in the modules of the load.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from odradek.cli.jobs.load import output_of
from odradek.jobs.load import commit_log, job, offsets, publishing
from odradek.jobs.load.commit_log import Head, VersionDirectory, put_if_absent
from odradek.jobs.load.errors import LoadError, LostRaceError
from odradek.jobs.load.offsets import Bounds, ClusterState, Plan, Range, TopicState
from odradek.jobs.load.scratch import scratch_directory
from odradek.jobs.load.summary import summary_of

CLUSTER = "cluster-1"
HEAD = Head("main", CLUSTER, "2026-11-01T00:00:00Z")
TRACED = {module.__file__ for module in (job, commit_log, publishing)} | {__file__}
KILLED, DONE = 77, 0
#: Lines from one death to the next. test_load_every_line.py tries every line.
STEP = 17


def state(ends: dict[int, int], earliest: int = 0, topic_id: str = "a" * 32, cluster: str = CLUSTER) -> ClusterState:
    """A cluster with one topic, whose partitions end at these offsets."""
    partitions = {number: Bounds(earliest, end) for number, end in ends.items()}
    return ClusterState(cluster, {"orders": TopicState(topic_id, partitions)})


def write(ranges: Sequence[Range], staging: Path) -> list[Any]:
    """Write a file for each range: one offset a line."""
    rows = []
    for part in ranges:
        name = f"{part.partition}.parquet"
        with open(staging / name, "x") as file:
            for offset in range(part.start, part.until):
                file.write(f"{part.partition} {offset}\n")
        rows.append(
            SimpleNamespace(
                topic=part.topic, partition=part.partition, date="2026-11-01", file=name, bytes=1, undecoded=0,
                records=part.until - part.start, first_offset=part.start, last_offset=part.until - 1,
                first_timestamp_ms=1, last_timestamp_ms=2, checksum=sum(range(part.start, part.until)),
            )
        )  # fmt: skip
    return rows


@contextmanager
def writer(_: Plan) -> Iterator[Any]:
    yield write


def run(out: Path, now: ClusterState, most: int = 7, head: Head = HEAD, said: list[str] | None = None) -> job.Outcome:
    version = job.open_version(out, head.version, head)
    return job.run(version, lambda: now, most, writer, [].append if said is None else said.append)


def visible(out: Path) -> Counter[str]:
    """What a reader of the files finds."""
    found: Counter[str] = Counter()
    for file in out.glob("version=main/topic=*/date=*/*.parquet"):
        found.update(file.read_text().splitlines())
    return found


def wanted(ends: dict[int, int], start: int = 0) -> Counter[str]:
    return Counter(f"{number} {offset}" for number, end in ends.items() for offset in range(start, end))


def die_at(line: int, work: Callable[[], Any]) -> int:
    """Do the work in a child that ends before its n-th line. Returns KILLED or DONE."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                os._exit(KILLED)
        return trace

    code = 1
    try:
        sys.settrace(trace)
        work()
        code = DONE
    finally:
        os._exit(code)


ENDS = {0: 5, 1: 9}


def deaths_before_lines(directory: Path, step: int) -> int:
    """Let a run die before each `step`-th line, and repeat it. Returns the number of its lines."""
    line = 0
    while True:
        out = directory / f"{line}"
        out.mkdir()
        ended = die_at(line, partial(run, out, state(ENDS)))
        assert ended in (KILLED, DONE)
        assert not visible(out) - wanted(ENDS), f"line {line}: a record is there twice, or is none"
        run(out, state(ENDS))
        assert visible(out) == wanted(ENDS), f"line {line}"
        assert not list((out / "version=main/_odradek_load/staging").iterdir())
        shutil.rmtree(out)
        if ended == DONE:
            return line
        line += step


def test_a_run_that_dies_before_a_line_is_repeated_and_leaves_each_record_once(tmp_path: Path) -> None:
    assert deaths_before_lines(tmp_path, STEP) > 200, "the run has many lines"


def test_runs_that_die_again_and_again_end_with_each_record_once(tmp_path: Path) -> None:
    numbers, deaths = random.Random(16), 0
    for case in range(12):
        out = tmp_path / f"{case}"
        out.mkdir()
        ends = {0: 0, 1: 0}
        for _ in range(3):
            ends = {number: end + numbers.randrange(9) for number, end in ends.items()}
            work = partial(run, out, state(ends))
            while die_at(numbers.randrange(50, 700), work) != DONE:
                deaths += 1
                assert not visible(out) - wanted(ends)
            assert visible(out) == wanted(ends)
    assert deaths > 12


def test_each_run_loads_what_is_new(tmp_path: Path) -> None:
    assert run(tmp_path, state({0: 5, 1: 9})).records == 14
    assert run(tmp_path, state({0: 5, 1: 9})) == job.Outcome(0, 0, ())
    outcome = run(tmp_path, state({0: 6, 1: 30}))
    assert (outcome.records, outcome.commits, outcome.exit_status) == (22, 4, 0)
    assert visible(tmp_path) == wanted({0: 6, 1: 30})


def test_records_that_were_deleted_are_told_once_and_kept_in_the_log(tmp_path: Path) -> None:
    run(tmp_path, state({0: 5}))
    said: list[str] = []
    outcome = run(tmp_path, state({0: 20}, earliest=12), said=said)
    assert outcome.exit_status == 3
    assert "orders-0: offsets 5 to 11 were deleted before they were loaded" in said[0]
    assert visible(tmp_path) == wanted({0: 5}) + wanted({0: 20}, 12)
    version = VersionDirectory(tmp_path, "main")
    newest = version.commit(2)
    assert [finding.kind for finding in newest.findings] == [offsets.GONE]
    last = json.loads((version.log / "runs.jsonl").read_text().splitlines()[-1])
    assert last["exit_status"] == 3 and last["findings"][0]["kind"] == offsets.GONE
    assert run(tmp_path, state({0: 20}, earliest=12)).exit_status == 0
    # also if nothing is left to load, and the position moves without a file
    outcome = run(tmp_path, state({0: 25}, earliest=25))
    assert (outcome.records, outcome.exit_status) == (0, 3)
    assert run(tmp_path, state({0: 26}, earliest=25)).exit_status == 0


def test_a_topic_that_was_created_again_is_not_mixed_with_the_old_one(tmp_path: Path) -> None:
    run(tmp_path, state({0: 5}))
    outcome = run(tmp_path, state({0: 9}, topic_id="b" * 32))
    assert outcome.exit_status == 3 and outcome.findings[0].kind == offsets.RECREATED
    assert "b" * 32 in outcome.findings[0].text and "--version" in outcome.findings[0].text
    assert visible(tmp_path) == wanted({0: 5})
    assert run(tmp_path, state({0: 9}, topic_id="b" * 32)).exit_status == 3, "as long as the topic is wanted"


def test_a_log_that_ends_before_the_position_is_told(tmp_path: Path) -> None:
    run(tmp_path, state({0: 5}))
    for _ in range(2):
        outcome = run(tmp_path, state({0: 3}))
        assert outcome.exit_status == 3 and outcome.findings[0].kind == offsets.CUT
    assert run(tmp_path, state({0: 8})).records == 3


def test_a_deleted_topic_is_told_and_the_others_are_loaded(tmp_path: Path) -> None:
    run(tmp_path, state({0: 5}))
    others = ClusterState(CLUSTER, {"pay": TopicState(None, {0: Bounds(0, 2)})}, ("orders",))
    outcome = run(tmp_path, others)
    assert outcome.records == 2 and outcome.exit_status == 3
    assert [finding.kind for finding in outcome.findings] == [offsets.DELETED]


def test_records_behind_an_open_transaction_are_told_and_no_commit_keeps_it(tmp_path: Path) -> None:
    now = ClusterState(CLUSTER, {"orders": TopicState(None, {0: Bounds(0, 5, high_watermark=8)})})
    for records in (5, 0):
        said: list[str] = []
        outcome = run(tmp_path, now, said=said)
        assert (outcome.records, outcome.exit_status) == (records, 0)
        assert (
            said[0]
            == "orders-0: 3 offsets from 5 on come after a transaction that has not ended; a later run loads them"
        )
    assert VersionDirectory(tmp_path, "main").commit(1).findings == ()


def test_partitions_that_are_there_no_more_are_told(tmp_path: Path) -> None:
    run(tmp_path, state({0: 5, 1: 4}))
    outcome = run(tmp_path, state({0: 6}))
    assert outcome.records == 1 and outcome.exit_status == 3
    assert "orders-1 does not exist any more" in outcome.findings[0].text


def test_new_partitions_are_loaded_from_their_beginning_and_told_once(tmp_path: Path) -> None:
    run(tmp_path, state({0: 5}))
    outcome = run(tmp_path, state({0: 5, 1: 4, 2: 0}))
    assert outcome.exit_status == 0 and [finding.kind for finding in outcome.findings] == [offsets.ADDED] * 2
    assert run(tmp_path, state({0: 5, 1: 4, 2: 0})).findings == ()
    assert visible(tmp_path) == wanted({0: 5, 1: 4})


def test_a_period_ends_where_its_first_run_found_its_end(tmp_path: Path) -> None:
    head = Head("main", CLUSTER, "now", 10, 20)

    def within(start: int, until: int, end: int) -> ClusterState:
        return ClusterState(CLUSTER, {"orders": TopicState("a" * 32, {0: Bounds(0, end, start, until)})})

    assert run(tmp_path, within(3, 8, 20), head=head).records == 5
    assert run(tmp_path, within(3, 20, 30), head=head).records == 0
    assert visible(tmp_path) == Counter(f"0 {offset}" for offset in range(3, 8))
    with pytest.raises(LoadError, match="--to 1970-01-01T00:00:00Z, not unset"):
        run(tmp_path, within(3, 8, 20), head=Head("main", CLUSTER, "now", 10))


def test_a_period_whose_end_is_behind_an_open_transaction_is_completed_later(tmp_path: Path) -> None:
    head = Head("main", CLUSTER, "now", 10, 20)

    def until(end: int) -> ClusterState:
        return ClusterState(CLUSTER, {"orders": TopicState(None, {0: Bounds(0, end, 3, 9, 12)})})

    for end, records, kinds in ((2, 0, [offsets.HELD]), (5, 2, [offsets.HELD]), (12, 4, []), (12, 0, [])):
        outcome = run(tmp_path, until(end), head=head)
        assert outcome.records == records and [finding.kind for finding in outcome.findings] == kinds
    assert visible(tmp_path) == Counter(f"0 {offset}" for offset in range(3, 9))


def test_another_cluster_is_refused(tmp_path: Path) -> None:
    run(tmp_path, state({0: 5}))
    with pytest.raises(LoadError, match="was loaded from cluster cluster-1, and this is cluster other"):
        run(tmp_path, state({0: 5}, cluster="other"), head=Head("main", "other", "now"))


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "version=main").mkdir()
    (tmp_path / "version=main" / "mine").write_text("x")
    with pytest.raises(LoadError, match="is no version"):
        run(tmp_path, state({0: 5}))


def test_a_second_run_at_the_same_time_is_refused(tmp_path: Path) -> None:
    run(tmp_path, state({0: 1}))
    with (
        VersionDirectory(tmp_path, "main").locked(),
        pytest.raises(LoadError, match="another command uses this version"),
    ):
        run(tmp_path, state({0: 5}))


def test_a_commit_is_never_replaced(tmp_path: Path) -> None:
    run(tmp_path, state({0: 5}))
    version = VersionDirectory(tmp_path, "main")
    commit = version.commit(1)
    with pytest.raises(LostRaceError, match=r"0001\.json was written by another run"):
        version.append(commit)
    with pytest.raises(FileExistsError):
        put_if_absent(version.log / "version.json", {})
    assert version.commit(1) == commit


def test_a_commit_with_a_value_of_another_type_is_refused(tmp_path: Path) -> None:
    run(tmp_path, state({0: 5}))
    version = VersionDirectory(tmp_path, "main")
    path = version.commits / "00000000000000000001.json"
    whole = path.read_text()
    for value in ('"records": 5', '"until": 5', '"next": 5', '"bytes": ', '"number": 1', '"cluster_id": "cluster-1"'):
        name = value.partition(":")[0]
        assert value in whole
        path.write_text(re.sub(f"{name}: [^,\n]*", f"{name}: [7]", whole))
        with pytest.raises(LoadError, match=rf"0001\.json: expected a commit .*: {name[1:-1]} is \[7\]; expected"):
            summary_of(version)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 1}', '{"format": 1, "number": "x"}'])
def test_a_damaged_commit_stops_the_run(tmp_path: Path, text: str) -> None:
    run(tmp_path, state({0: 5}))
    path = tmp_path / "version=main/_odradek_load/commits/00000000000000000001.json"
    path.write_text(text)
    with pytest.raises(LoadError, match=r"0001\.json"):
        run(tmp_path, state({0: 9}))


def test_a_missing_commit_and_a_missing_file_are_told(tmp_path: Path) -> None:
    run(tmp_path, state({0: 9}), most=5)
    version = VersionDirectory(tmp_path, "main")
    lost = version.path / version.commit(2).files[0].path
    lost.rename(tmp_path / "kept")
    with pytest.raises(LoadError, match="of commit 2 is missing"):
        run(tmp_path, state({0: 12}))
    (tmp_path / "kept").rename(lost)
    (version.commits / "00000000000000000001.json").unlink()
    with pytest.raises(LoadError, match="commit 1 is missing, but 2 exists"):
        run(tmp_path, state({0: 12}))


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("directory", ["there", "removed"])
def test_files_of_commits_that_are_lost_are_not_loaded_again(tmp_path: Path, kept: int, directory: str) -> None:
    """As after a restore of an older backup of the commits: a second load would leave records twice."""
    run(tmp_path, state({0: 9}), most=5)
    version = VersionDirectory(tmp_path, "main")
    last = version.path / version.commit(2).files[0].path
    for number in range(kept + 1, 3):
        (version.commits / f"{number:020}.json").unlink()
    if directory == "removed" and not kept:
        version.commits.rmdir()
    there = "commit 1 is the newest" if kept else "there is no commit"
    with pytest.raises(LoadError, match=f"belongs to commit [12], and in .*/commits {there}: restore the commits"):
        run(tmp_path, state({0: 9}))
    assert last.exists() and visible(tmp_path) == wanted({0: 9})


def test_a_writer_that_returns_other_offsets_commits_nothing(tmp_path: Path) -> None:
    @contextmanager
    def wrong(_: Plan) -> Iterator[Any]:
        yield lambda ranges, staging: write([part._replace(until=part.until + 1) for part in ranges], staging)

    version = job.open_version(tmp_path, "main", HEAD)
    with pytest.raises(LoadError, match="which were not asked for"):
        job.run(version, lambda: state({0: 5}), 10, wrong, [].append)
    assert version.numbers() == [] and not list(version.staging.iterdir())
    assert json.loads((version.log / "runs.jsonl").read_text())["exit_status"] == 1


def test_steps_cover_the_ranges_once() -> None:
    ranges = [Range("a", 0, 3, 50), Range("a", 1, 0, 1), Range("b", 0, 7, 1000)]
    for most in (1, 3, 100, 10_000):
        covered = Counter((part.place, offset) for step in offsets.steps(ranges, most) for part in step
                          for offset in range(part.start, part.until))  # fmt: skip
        assert covered == Counter((part.place, offset) for part in ranges for offset in range(part.start, part.until))
        assert max(sum(part.until - part.start for part in step) for step in offsets.steps(ranges, most)) <= most + 3


def test_progress_is_printed_while_the_messages_of_spark_go_to_its_log(tmp_path: Path) -> None:
    code = """
import os, sys, threading
from pathlib import Path
from types import SimpleNamespace
from odradek.cli.jobs.load import printer
from odradek.jobs.load import job
from odradek.jobs.usage_report import session
said = threading.Event()
stage = SimpleNamespace(numCompletedTasks=1, numTasks=7, numActiveTasks=2)
tracker = SimpleNamespace(getActiveStageIds=lambda: [0], getStageInfo=lambda stage_id: stage)
spark = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
session._PROGRESS_S = 0.01
out = printer()
def say(line):
    out(line)
    said.set()
with job.task_progress(spark, say), job.quietly(SimpleNamespace(log=Path(sys.argv[1]))):
    os.write(2, b"a message of Spark\\n")
    said.wait()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.startswith("1 of 7 tasks ended, 2 are running\n")
    assert (tmp_path / job.SPARK_LOG).read_text() == "a message of Spark\n"


def test_a_version_is_no_output(tmp_path: Path) -> None:
    VersionDirectory(tmp_path, "main").create(HEAD)
    assert output_of(str(tmp_path)) == tmp_path
    with pytest.raises(LoadError, match=f"version=main: is a version; expected the directory above it, {tmp_path}$"):
        output_of(str(tmp_path / "version=main"))


def test_a_run_removes_the_scratch_directories_of_killed_runs_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    starting, foreign = tmp_path / "odradek-load-starting", tmp_path / "other"
    starting.mkdir()
    foreign.mkdir()
    code = """
import os, sys, tempfile
tempfile.tempdir = sys.argv[1]
from odradek.jobs.load.scratch import scratch_directory
from odradek.jobs.load.summary import summary_of
with scratch_directory() as path:
    (path / "spilled").write_text("x")
    print(path, flush=True)
    sys.stdin.read()
"""
    killed, running = (
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    )
    with killed, running:
        assert killed.stdout and running.stdout and running.stdin
        left, used = (Path(process.stdout.readline().strip()) for process in (killed, running) if process.stdout)
        killed.kill()
        killed.wait()
        assert (left / "spilled").exists()
        with scratch_directory() as own:
            assert set(tmp_path.iterdir()) == {starting, foreign, used, own}
        assert set(tmp_path.iterdir()) == {starting, foreign, used}
        running.stdin.close()
        assert running.wait(60) == 0
    assert set(tmp_path.iterdir()) == {starting, foreign}


@pytest.mark.parametrize(
    "said", ["MemoryError", "struct.error: unpack requires a buffer of 4 bytes", "RuntimeError: a-0: x"]
)
def test_an_exception_in_a_worker_of_spark_is_one_sentence(tmp_path: Path, said: str) -> None:
    text = (
        "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
        'Traceback (most recent call last):\n  File "reader.py", line 12, in read\n    raise x\n'
        f"{said}\n\n\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:581)\n"
    )
    found = job._translated(RuntimeError(text), tmp_path / "spark.log")
    assert str(found) == f"Spark failed: {said.removeprefix('RuntimeError: ')}; see {tmp_path / 'spark.log'}"
