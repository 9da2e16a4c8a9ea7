"""Loads into Delta tables, without Spark and a broker: each record once for readers of the table, whatever other writers do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from importlib import util
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from odradek.jobs.load import delta_output, job
from odradek.jobs.load.commit_log import MERGE, Head, VersionDirectory
from odradek.jobs.load.delta_table import APP, LoadedTable
from odradek.jobs.load.errors import LoadError, LostRaceError
from odradek.jobs.load.output import format_of
from odradek.jobs.load.page import page_of
from odradek.jobs.load.summary import summary_of
from tests.jobs.delta_loads import DAY_MS, HEAD, orphans, run, visible, write
from tests.jobs.test_load_commits import CLUSTER, state, wanted

#: Lines from one death to the next; 1 tries every line.
STEP = int(os.environ.get("ODRADEK_LOAD_STEP", "53"))
ENDS, MORE = {0: 5, 1: 9}, {0: 9, 1: 14}


def the_version(out: Path) -> VersionDirectory:
    return VersionDirectory(out, "main")


def table_of(out: Path, version: int | None = None) -> DeltaTable:
    return DeltaTable(out / "version=main", version=version)


def differences(out: Path) -> list[str]:
    version = the_version(out)
    return list(format_of(version).differences(version, summary_of(version)))


def merged(out: Path, least: int = 2) -> Any:
    version = the_version(out)
    with version.locked():
        format_of(version).recover(version)
        return format_of(version).merge(version, least)


def test_a_run_that_dies_before_a_line_is_repeated_and_leaves_each_record_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.jobs.delta_loads", str(tmp_path), str(STEP)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=840)
    assert done.returncode == 0, done.stderr[-3000:]
    deaths = [int(line.split()[-2]) for line in done.stdout.splitlines()]
    assert len(deaths) == 2 and min(deaths) * STEP > 900, done.stdout


def test_each_step_is_a_version_of_the_table(tmp_path: Path) -> None:
    assert run(tmp_path, state(ENDS)).records == 14
    assert run(tmp_path, state(ENDS)) == job.Outcome(0, 0, ())
    run(tmp_path, state(MORE))
    assert visible(tmp_path) == wanted(MORE)
    commits = list(the_version(tmp_path).all_commits())
    table = table_of(tmp_path)
    assert table.version() + 1 == len(commits) == 3
    for number, commit in enumerate(commits):
        ends = {place: position.next for place, position in commit.positions["orders"].partitions.items()}
        assert visible(tmp_path, number) == wanted(ends)
        history = table.history()[-1 - number]
        assert history["odradek_load"] == json.loads(json.dumps(commit.document()))
        assert history["userMetadata"] == f"odradek load: load {commit.number}, {commit.records} records"


def test_readers_can_skip_files_by_topic_date_and_statistics(tmp_path: Path) -> None:
    run(tmp_path, state(MORE), most=1000)
    files = {file["path"]: file for file in pa.table(table_of(tmp_path).get_add_actions(flatten=True)).to_pylist()}
    assert len(files) == 2
    for partition, end in MORE.items():
        (file,) = (file for file in files.values() if file["min.partition"] == partition)
        assert file["max.partition"] == partition and file["num_records"] == end
        assert (file["min.offset"], file["max.offset"]) == (0, end - 1)
        times = [int(file[f"{which}.timestamp"].timestamp() * 1000) for which in ("min", "max")]
        assert times == [DAY_MS, DAY_MS + end - 1]
        assert file["partition.topic"] == "orders" and str(file["partition.date"]) == "2026-11-01"
    dataset = table_of(tmp_path).to_pyarrow_dataset()
    found = dataset.get_fragments(pa.dataset.field("offset") > 10)
    assert [Path(fragment.path).name for fragment in found] == [
        Path(path).name for path in files if files[path]["max.offset"] > 10
    ]
    assert not list(dataset.get_fragments(pa.dataset.field("topic") == "pay"))


def test_small_files_are_merged_and_readers_of_earlier_versions_are_served_until_a_vacuum(tmp_path: Path) -> None:
    for end in (5, 10, 15):
        run(tmp_path, state({0: end, 1: end}), merge_at=5, most=100)
    commits = list(the_version(tmp_path).all_commits())
    assert [commit.kind for commit in commits] == ["load", "load", "load", MERGE]
    assert len(summary_of(the_version(tmp_path)).files) == 1 and visible(tmp_path) == wanted({0: 15, 1: 15})
    assert visible(tmp_path, 2) == wanted({0: 15, 1: 15}) and visible(tmp_path, 1) == wanted({0: 10, 1: 10})
    entry = (tmp_path / "version=main/_delta_log/00000000000000000003.json").read_text()
    changes = [json.loads(line) for line in entry.splitlines()]
    actions = [change.get("add") or change["remove"] for change in changes if "add" in change or "remove" in change]
    assert len(actions) == 7 and not any(action["dataChange"] for action in actions)
    assert merged(tmp_path) is None and not differences(tmp_path) and not orphans(the_version(tmp_path))
    table_of(tmp_path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert len(list((tmp_path / "version=main").glob("topic=*/*/*"))) == 1
    run(tmp_path, state({0: 16, 1: 15}), merge_at=5)
    assert visible(tmp_path) == wanted({0: 16, 1: 15}) and not differences(tmp_path)
    assert summary_of(the_version(tmp_path)).records == 31


def test_a_log_whose_old_entries_are_deleted_continues(tmp_path: Path) -> None:
    run(tmp_path, state(ENDS), most=100)
    table = table_of(tmp_path)
    table.create_checkpoint()
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    table_of(tmp_path).create_checkpoint()
    (tmp_path / "version=main/_delta_log/00000000000000000000.json").unlink()
    assert len(table_of(tmp_path).history()) == 1
    run(tmp_path, state(MORE))
    assert visible(tmp_path) == wanted(MORE) and not differences(tmp_path)
    # also behind checkpoints that delta-rs writes after a commit
    table_of(tmp_path).alter.set_table_properties({"delta.checkpointInterval": "2"})
    before = json.loads((tmp_path / "version=main/_delta_log/_last_checkpoint").read_text())["version"]
    for end in range(15, 20):
        run(tmp_path, state(MORE | {0: end}))
    assert json.loads((tmp_path / "version=main/_delta_log/_last_checkpoint").read_text())["version"] > before + 3
    assert visible(tmp_path) == wanted(MORE | {0: 19}) and not differences(tmp_path)


@pytest.mark.parametrize("in_table", [False, True])
def test_a_prepared_commit_counts_if_the_table_has_it(
    tmp_path: Path, in_table: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the table has another commit of the same number."""
    run(tmp_path, state(ENDS), most=100)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "version=main", copy / "version=main")

    class DeadError(BaseException):
        pass

    def die(*_: Any) -> None:
        raise DeadError

    with monkeypatch.context() as patched:
        patched.setattr(VersionDirectory, "finish" if in_table else "withdraw", die)
        if not in_table:
            patched.setattr(LoadedTable, "append", die)
        with pytest.raises(DeadError):
            run(copy, state(MORE), most=100)
    if not in_table:
        run(tmp_path, state({0: 6, 1: 9}))  # another run's commit 2
        shutil.rmtree(copy / "version=main/_delta_log")
        shutil.copytree(tmp_path / "version=main/_delta_log", copy / "version=main/_delta_log")
        with pytest.raises(
            LoadError, match=r"the newest commit in the Delta table is 2, and in .* it is 1: restore both"
        ):
            run(copy, state(MORE))
        assert not orphans(the_version(copy)) and not the_version(copy).prepared()
        return
    assert differences(copy) == [
        "commit 2 is in the Delta table; the run that wrote it died, and the next run finishes it"
    ]
    assert run(copy, state(MORE)).records == 0
    assert visible(copy) == wanted(MORE) and the_version(copy).numbers() == [1, 2] and not differences(copy)


@pytest.mark.parametrize("left", [0, 1000])
def test_the_step_of_a_log_entry_that_a_loss_of_power_damaged_is_loaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    run(tmp_path, state(ENDS), most=100)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(LoadedTable, "_sync", die)
        run(tmp_path, state(MORE), most=100)
    assert [commit.number for commit in the_version(tmp_path).prepared()] == [2], "the table has it"
    entry = tmp_path / "version=main/_delta_log/00000000000000000001.json"
    os.truncate(entry, left)
    if left:  # an empty one is a transaction without changes
        with pytest.raises(
            LoadError, match=r"0001\.json, its newest entry, is damaged: remove this file if the machine lost"
        ):
            run(tmp_path, state(MORE))
        entry.unlink()
    assert run(tmp_path, state(MORE)).records == 9
    assert visible(tmp_path) == wanted(MORE) and not orphans(the_version(tmp_path))


@contextmanager
def writer_beside(out: Path, change: Any) -> Iterator[Any]:
    """A writer during whose work another one changes the table."""

    def write_and_change(ranges: Any, staging: Path) -> Any:
        rows = write(ranges, staging)
        change(table_of(out))
        return rows

    yield write_and_change


def beside(out: Path, change: Any) -> Any:
    return lambda _: writer_beside(out, change)


def test_other_writers_may_compact_and_append_meanwhile(tmp_path: Path) -> None:
    run(tmp_path, state(ENDS), most=3)
    run(tmp_path, state({0: 9, 1: 9}), writer=beside(tmp_path, lambda table: table.optimize.compact()))
    assert visible(tmp_path) == wanted({0: 9, 1: 9}) and not differences(tmp_path)
    assert len(summary_of(the_version(tmp_path)).files) == 2, "those of the table"
    assert merged(tmp_path) is None, "files of other writers are left alone"
    more = table_of(tmp_path).to_pyarrow_table().slice(0, 1)
    run(tmp_path, state(MORE), writer=beside(tmp_path, lambda table: write_deltalake(table, more, mode="append")))
    extra = visible(tmp_path) - wanted(MORE)
    assert sum(extra.values()) == 1 and not wanted(MORE) - visible(tmp_path)


def test_a_commit_between_the_look_at_the_table_and_the_transaction_is_a_conflict_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends of others are none; changes of the schema, a commit of another load, and compaction against a merge are."""

    def during(change: Any, work: Any) -> None:
        check = LoadedTable.check
        done: list[int] = []

        def check_and_change(table: LoadedTable) -> None:
            check(table)
            if table.number is not None and len(done) == 1:
                change(table_of(tmp_path))
            done.append(1)

        with monkeypatch.context() as patched:
            patched.setattr(LoadedTable, "check", check_and_change)
            work()

    run(tmp_path, state(ENDS), most=3)
    files = summary_of(the_version(tmp_path)).files
    with pytest.raises(LostRaceError, match="another writer changed it meanwhile"):
        during(lambda table: table.optimize.compact(), partial(merged, tmp_path))
    assert visible(tmp_path) == wanted(ENDS) and not orphans(the_version(tmp_path)) - set(
        summary_of(the_version(tmp_path)).files
    )
    assert len(files) > len(summary_of(the_version(tmp_path)).files)
    during(lambda table: table.optimize.compact(), partial(run, tmp_path, state({0: 6, 1: 9})))
    assert visible(tmp_path) == wanted({0: 6, 1: 9})
    run(tmp_path, state({0: 7, 1: 9}))

    def of_another_run(table: DeltaTable) -> None:
        properties = CommitProperties(app_transactions=[Transaction(APP, 99)])
        table.create_write_transaction([], "append", table.schema(), ["topic", "date"], commit_properties=properties)

    count = len(the_version(tmp_path).numbers())
    with pytest.raises(LostRaceError, match="Concurrent transaction"):
        during(of_another_run, partial(run, tmp_path, state(MORE)))
    assert visible(tmp_path) == wanted({0: 7, 1: 9}) and len(the_version(tmp_path).numbers()) == count
    with pytest.raises(LoadError, match=f"the newest commit in the Delta table is 99, and in .* it is {count}"):
        run(tmp_path, state(MORE))


def test_a_merge_that_another_writer_prevents_does_not_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, state(ENDS), most=3)

    def lost(*_: Any) -> None:
        raise LostRaceError("lost")

    monkeypatch.setattr(delta_output.DeltaOutput, "merge", lost)
    said: list[str] = []
    assert run(tmp_path, state(MORE), merge_at=2, said=said).exit_status == 0
    assert said[-1] == "warning: no files were merged: lost"


def test_deletions_of_others_are_found(tmp_path: Path) -> None:
    run(tmp_path, state(ENDS), most=100)
    summary = summary_of(the_version(tmp_path))
    (path, *_) = summary.files
    file = tmp_path / "version=main" / path
    kept = file.read_bytes()
    file.write_bytes(kept + b"x")
    assert differences(tmp_path) == [f"{path} has {len(kept) + 1} bytes, and had {len(kept)} when it was written"]
    file.unlink()
    assert differences(tmp_path) == [f"{path} is missing: {summary.files[path].records} records"]
    file.write_bytes(kept)
    assert not differences(tmp_path)


REFUSED = [
    (
        {"delta.setTransactionRetentionDuration": "interval 1 days"},
        [],
        "has the property delta.setTransactionRetention",
    ),
    ({"delta.constraints.small": "offset < 3"}, [], "has the property delta.constraints.small=offset < 3"),
    ({}, ["inCommitTimestamp"], "has features that `odradek load` cannot write: inCommitTimestamp; remove them"),
]


@pytest.mark.parametrize(("properties", "features", "text"), REFUSED)
def test_tables_whose_rules_a_load_cannot_respect_are_refused(
    tmp_path: Path, properties: dict[str, str], features: list[str], text: str
) -> None:
    run(tmp_path, state(ENDS), most=100)
    log = tmp_path / "version=main/_delta_log"
    first = [json.loads(line) for line in (log / "00000000000000000000.json").read_text().splitlines()]
    (metadata,) = (entry for entry in first if "metaData" in entry)
    metadata["metaData"]["configuration"] = properties
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["checkConstraints", *features]}
    entry = "".join(json.dumps(line) + "\n" for line in ({"protocol": protocol}, metadata))
    (log / "00000000000000000001.json").write_text(entry)
    with pytest.raises(LoadError, match=text):
        run(tmp_path, state(MORE))


def test_a_schema_that_others_changed_is_refused_if_it_does_not_fit(tmp_path: Path) -> None:
    run(tmp_path, state(ENDS), most=100)
    more = table_of(tmp_path).to_pyarrow_table().slice(0, 0).append_column("mine", pa.array([], pa.string()))
    write_deltalake(table_of(tmp_path), more, mode="append", schema_mode="merge")
    run(tmp_path, state(MORE))
    assert visible(tmp_path) == wanted(MORE), "a column more is no obstacle"
    other = table_of(tmp_path).to_pyarrow_table()
    other = other.set_column(other.schema.get_field_index("offset"), "offset", other["offset"].cast(pa.string()))
    write_deltalake(table_of(tmp_path), other, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(
        LoadError, match="column 'offset' is long, and the Delta table has string: another writer changed"
    ):
        run(tmp_path, state({0: 20, 1: 20}))
    assert not the_version(tmp_path).prepared()


def test_types_of_values_that_a_table_cannot_have_are_told(tmp_path: Path) -> None:
    @contextmanager
    def with_column(value: pa.Array) -> Iterator[Any]:
        yield lambda ranges, staging: write(ranges, staging, [("decoded", value)])

    interval = pa.array([{"took": 5}], pa.struct([("took", pa.duration("us"))]))
    with pytest.raises(LoadError, match=r"column 'decoded' is struct<took: duration.*, which Delta tables cannot have"):
        run(tmp_path, state(ENDS), writer=lambda _: with_column(interval))
    types = [
        pa.field("at", pa.timestamp("us"), nullable=False),
        ("ms", pa.timestamp("ms", "UTC")),
        ("few", pa.decimal128(5, 2)),
    ]
    local = pa.array([{"at": 5, "ms": 7, "few": Decimal("1.25")}], pa.struct(types))
    run(tmp_path, state(ENDS), writer=lambda _: with_column(local))
    assert visible(tmp_path) == wanted(ENDS)
    assert table_of(tmp_path).protocol().reader_features == ["timestampNtz"]
    read = table_of(tmp_path).to_pyarrow_table()["decoded"].combine_chunks()
    assert {(row["at"].microsecond, row["ms"].microsecond, row["few"]) for row in read.to_pylist()} == {
        (5, 7000, Decimal("1.25"))
    }


def test_tables_and_files_of_others_are_refused(tmp_path: Path) -> None:
    table = pa.table({"topic": ["a"], "date": ["b"], "offset": [1]})
    write_deltalake(tmp_path / "version=main", table, partition_by=["topic", "date"])
    with pytest.raises(LoadError, match="has files but no _odradek_load"):
        run(tmp_path, state(ENDS))
    the_version(tmp_path).create(HEAD)
    with pytest.raises(LoadError, match="has a Delta table of another writer; use another --version or --out"):
        run(tmp_path, state(ENDS))
    shutil.rmtree(tmp_path / "version=main/_delta_log")
    (tmp_path / "version=main/_delta_log").mkdir()
    run(tmp_path, state(ENDS))
    shutil.rmtree(tmp_path / "version=main/_delta_log")
    with pytest.raises(LoadError, match=r"has commits up to 2, and no Delta table: restore its directory _delta_log"):
        run(tmp_path, state(ENDS))
    with pytest.raises(LoadError, match="was begun with --format delta, not parquet"):
        run(tmp_path, state(ENDS), head=Head("main", CLUSTER, "now"))


@pytest.mark.parametrize(
    ("number", "text", "expected"),
    [
        (0, None, r"_delta_log/0*0\.json is missing: restore it from a backup"),
        (1, None, r"_delta_log/0*1\.json is missing: restore it from a backup"),
        (
            2,
            None,
            r"the newest commit in the Delta table is 2, and in .*/commits it is 3: restore both from one backup",
        ),
        (1, '{"add": tru', r"_delta_log/0*1\.json is damaged: restore it from a backup"),
        (
            2,
            '{"add": tru',
            r"_delta_log/0*2\.json, its newest entry, is damaged: remove this file if the machine lost power",
        ),
    ],
)
def test_a_damaged_log_is_refused_with_the_name_of_the_entry(
    tmp_path: Path, number: int, text: str | None, expected: str
) -> None:
    run(tmp_path, state(ENDS), most=5)
    entry = tmp_path / f"version=main/_delta_log/{number:020}.json"
    if text is None:
        entry.unlink()
    else:
        entry.write_text(text)
    with pytest.raises(LoadError, match=expected):
        run(tmp_path, state(MORE))


def test_commits_and_a_table_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    run(tmp_path, state(ENDS), most=100)
    commits, log = the_version(tmp_path).commits, tmp_path / "version=main/_delta_log"
    commits.rename(tmp_path / "kept")
    commits.mkdir()
    with pytest.raises(
        LoadError, match=r"in the Delta table is 1, and in .*/commits it is none with files: restore both"
    ):
        run(tmp_path, state(MORE))
    commits.rmdir()
    (tmp_path / "kept").rename(commits)
    shutil.rmtree(log)
    table = pa.table({"topic": ["a"], "date": ["b"], "offset": [1]})
    write_deltalake(tmp_path / "version=main", table, partition_by=["topic", "date"])
    said = "has commits up to 1, and the Delta table has none of them: another writer replaced the table"
    with pytest.raises(LoadError, match=said):
        run(tmp_path, state(MORE))
    assert said in differences(tmp_path)[0]


@pytest.mark.parametrize("name", ["_odradek_load", "_odradek_load/staging"])
def test_nothing_behind_a_symbolic_link_is_removed(tmp_path: Path, name: str) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    out.mkdir()
    run(out, state(ENDS))
    directory = out / "version=main" / name
    directory.rename(other)
    directory.symlink_to(other)
    mine = (other if name.endswith("staging") else other / "staging") / "mine"
    mine.mkdir()
    with pytest.raises(LoadError, match="is a symbolic link; expected a directory"):
        run(out, state(MORE))
    assert mine.is_dir()


def test_a_head_is_kept_from_the_first_prepared_commit_on(tmp_path: Path) -> None:
    version = job.open_version(tmp_path, "main", HEAD)
    run(tmp_path, state(ENDS), most=100)
    version._prepared(1).hardlink_to(version.commits / "00000000000000000001.json")
    (version.commits / "00000000000000000001.json").unlink()
    with pytest.raises(LoadError, match="was begun with --value raw, not json"):
        run(tmp_path, state(MORE), head=Head("main", CLUSTER, "now", decoding="json", table="delta"))
    run(tmp_path, state(MORE))
    assert visible(tmp_path) == wanted(MORE)


def test_positions_without_records_need_no_table(tmp_path: Path) -> None:
    assert run(tmp_path, state({0: 0})).commits == 1
    assert visible(tmp_path) == Counter() and not differences(tmp_path)
    run(tmp_path, state({0: 5}))
    run(tmp_path, state({0: 20}, earliest=20))
    run(tmp_path, state({0: 22}, earliest=20))
    assert visible(tmp_path) == wanted({0: 5}) + wanted({0: 22}, 20)
    assert LoadedTable(tmp_path / "version=main").number == 4


def test_records_of_no_date_are_in_a_partition_without_one(tmp_path: Path) -> None:
    @contextmanager
    def dateless(_: Any) -> Iterator[Any]:
        def write_dateless(ranges: Any, staging: Path) -> Any:
            rows = write(ranges, staging)
            for row in rows:
                row.date = "__HIVE_DEFAULT_PARTITION__"
            return rows

        yield write_dateless

    run(tmp_path, state(ENDS), writer=dateless)
    table = table_of(tmp_path).to_pyarrow_table()
    assert table["date"].null_count == len(table) == 14 and visible(tmp_path) == wanted(ENDS)
    assert merged(tmp_path) is not None and visible(tmp_path) == wanted(ENDS)


def test_the_page_shows_the_files_of_the_table(tmp_path: Path) -> None:
    run(tmp_path, state(ENDS), most=3)
    table_of(tmp_path).optimize.compact()
    page = page_of(summary_of(the_version(tmp_path)))
    (size,) = (tile for tile in page.tiles if tile.key == "bytes")
    assert size.value == sum(pa.table(table_of(tmp_path).get_add_actions())["size_bytes"].to_pylist())


def test_paths_with_special_letters(tmp_path: Path) -> None:
    for name in ("a b", "ä#?", "x=y"):
        (tmp_path / name).mkdir()
        run(tmp_path / name, state(ENDS))
        run(tmp_path / name, state(MORE), merge_at=3)
        assert visible(tmp_path / name) == wanted(MORE)
    (tmp_path / "a%20b").mkdir()
    with pytest.raises(LoadError, match="a%20b/version=main: the package deltalake cannot use a path with '%'"):
        run(tmp_path / "a%20b", state(ENDS))


def test_a_missing_package_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    the_version(tmp_path).create(HEAD)
    monkeypatch.setattr(
        "odradek.jobs.load.output.find_spec", lambda name: None if name == "deltalake" else util.find_spec(name)
    )
    with pytest.raises(LoadError, match="the Python package deltalake is missing: pip install 'deltalake"):
        format_of(the_version(tmp_path))
