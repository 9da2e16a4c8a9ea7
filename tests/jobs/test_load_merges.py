"""Merges of small files: a merge that dies before a line leaves each record once for readers, at any time."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from odradek.jobs.load import job, merge, publishing
from odradek.jobs.load.commit_log import MERGE, VersionDirectory
from odradek.jobs.load.errors import LoadError
from odradek.jobs.load.summary import summary_of
from tests.jobs import test_load_commits as commits
from tests.jobs.test_load_commits import DONE, STEP, die_at, run, state, visible, wanted


def write_text(sources: list[Path], target: Path) -> int:
    """Takes the place of `merge.write_merged` for files of text, in which a child that dies can use no thread of Arrow."""
    text = "".join(source.read_text() for source in sources)
    target.write_text(text)
    return len(text.splitlines())


@pytest.fixture
def of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "write_merged", write_text)
    monkeypatch.setattr(commits, "TRACED", commits.TRACED | {merge.__file__})


def merged(version: VersionDirectory) -> Any:
    with version.locked():
        publishing.recover(version)
        return merge.merge(version, 2, threads=1)


ENDS = {0: 9, 1: 12}


def deaths_before_lines(directory: Path, step: int) -> int:
    """Let a merge die before each `step`-th line, and repeat it. Returns the number of its lines."""
    line = 0
    while True:
        out = directory / f"{line}"
        out.mkdir()
        run(out, state(ENDS))
        (out / "version=main/topic=orders/date=2026-11-01/mine.txt").write_text("stays")
        version = VersionDirectory(out, "main")
        ended = die_at(line, partial(merged, version))
        assert visible(out) == wanted(ENDS), f"line {line}: before the repetition"
        run(out, state({0: 11, 1: 12}))
        assert visible(out) == wanted({0: 11, 1: 12}), f"line {line}"
        assert (out / "version=main/topic=orders/date=2026-11-01/mine.txt").read_text() == "stays"
        listed = {str(path.relative_to(version.path)) for path in version.path.glob("topic=*/*/*.parquet")}
        assert listed == set(summary_of(version).files)
        assert not list(version.staging.iterdir())
        if ended == DONE:
            assert any(commit.kind == MERGE for commit in version.all_commits())
            return line
        shutil.rmtree(out)
        line += step


@pytest.mark.usefixtures("of_text")
def test_a_merge_that_dies_before_a_line_leaves_each_record_once(tmp_path: Path) -> None:
    assert deaths_before_lines(tmp_path, STEP) > 100


@pytest.mark.usefixtures("of_text")
def test_a_run_merges_when_there_are_many_files(tmp_path: Path) -> None:
    version = job.open_version(tmp_path, "main", commits.HEAD)
    for end in (5, 10, 15):
        job.run(version, lambda end=end: state({0: end, 1: end}), 100, commits.writer, [].append, 5)  # type: ignore[misc]
    assert [commit.kind for commit in version.all_commits()] == ["load", "load", "load", MERGE]
    assert len(summary_of(version).files) == 1 and visible(tmp_path) == wanted({0: 15, 1: 15})
    assert merged(version) is None


@pytest.mark.usefixtures("of_text")
def test_damaged_files_and_directories_of_others_are_not_merged(tmp_path: Path) -> None:
    run(tmp_path, state(ENDS))
    version = VersionDirectory(tmp_path, "main")
    file = next(version.path.glob("topic=*/*/*.parquet"))
    kept = file.read_text()
    file.write_text("")
    with pytest.raises(LoadError, match="files to merge have"):
        merged(version)
    assert not list(version.staging.iterdir())
    file.write_text(kept)
    (file.parent / "mine").mkdir()
    assert merged(version) is None


def test_a_file_system_that_cannot_exchange_directories_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, state(ENDS))
    monkeypatch.setattr(merge, "can_exchange", lambda _: False)
    with pytest.raises(LoadError, match="cannot exchange directories"):
        merged(VersionDirectory(tmp_path, "main"))
    assert visible(tmp_path) == wanted(ENDS)


def test_the_rows_of_parquet_files_are_merged_in_order(tmp_path: Path) -> None:
    sources = []
    for number in range(3):
        sources.append(tmp_path / f"{number}.parquet")
        pq.write_table(pa.table({"offset": [number * 2, number * 2 + 1], "value": [os.urandom(5), None]}), sources[-1])
    assert merge.write_merged(sources, tmp_path / "all.parquet") == 6
    read = pq.read_table(tmp_path / "all.parquet")
    assert read["offset"].to_pylist() == [*range(6)] and read["value"].null_count == 3
    assert pq.ParquetFile(tmp_path / "all.parquet").num_row_groups == 1
    pq.write_table(pa.table({"other": [1]}), sources[2])
    with pytest.raises(LoadError, match="files cannot be merged"):
        merge.write_merged(sources, tmp_path / "none.parquet")


def test_groups_have_small_files_of_one_directory() -> None:
    def files(sizes: list[int]) -> dict[str, merge.DataFile]:
        paths = {f"topic=a/date=1/part-{index}": size for index, size in enumerate(sizes)}
        return {path: merge.DataFile("", path, size, 1) for path, size in paths.items()}

    small, big = merge.SMALL_BYTES // 3, merge.SMALL_BYTES
    assert [len(group) for group in merge.groups_of(files([small] * 7), 2)] == [3, 3]
    assert merge.groups_of(files([big, small]), 2) == []
    assert merge.groups_of(files([1] * 4), 5) == []
    assert Counter(len(group) for group in merge.groups_of(files([1] * 50), 5)) == {50: 1}
