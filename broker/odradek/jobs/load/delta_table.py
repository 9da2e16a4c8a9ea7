"""The Delta table of a version: what is in its log, and transactions that add files of a commit to it.

Uses delta-rs (the package `deltalake`); no JVM takes part. A transaction has three parts that become valid at once: the files,
the number of the commit as the version of the application `APP`, and the commit's random number as that of `APP_RANDOM`.
Checkpoints keep both, so that they survive the deletion of old log entries. Runs in the driver, which holds the lock of the
version.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from odradek.clock import now_ms
from odradek.jobs.load.commit_log import MERGE, Commit, DataFile, sync_directory, sync_file
from odradek.jobs.load.errors import LoadError, LostRaceError
from odradek.jobs.load.files import NO_DATE

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction, RemoveAction

APP, APP_RANDOM = "odradek-load", "odradek-load-random"
PARTITION_BY = ["topic", "date"]
LOG = "_delta_log"
#: The key of the commit's document in the log entry, and of a sentence that Spark's DESCRIBE HISTORY shows.
DOCUMENT, SENTENCE = "odradek_load", "userMetadata"
#: Features of tables for writers that an append of files does not break.
_WRITABLE = frozenset(
    (
        "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors", "generatedColumns",
        "invariants", "timestampNtz", "v2Checkpoint",
    )
)  # fmt: skip
_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity")
_COUNTED = ("partition", "offset", "timestamp")
_PATH = re.compile(r"topic=(?P<topic>[^/]+)/date=(?P<date>[^/]+)/[^/]+")
_ENTRY = re.compile(r"[0-9]{20}\.json")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class ActiveFile:
    """A file of the table's current version. :param path: below the table's directory. :param records: None if not known.

    :param has_deletions: another writer has marked records of it as deleted
    """

    path: str
    topic: str | None
    bytes: int
    records: int | None
    has_deletions: bool


class LoadedTable:
    """The newest version of the table in a directory, as it was when this object was made.

    :raises LoadError: deltalake cannot read the table
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._table = _opened(path)

    @property
    def exists(self) -> bool:
        """Whether there is a table."""
        return self._table is not None

    @property
    def number(self) -> int | None:
        """The number of the newest commit with files; None if `odradek load` never wrote to the table."""
        return None if self._table is None else self._table.transaction_version(APP)

    def has(self, commit: Commit) -> bool:
        """Whether this very commit is in the table, and is the newest one."""
        table = self._table
        return (
            table is not None
            and self.number == commit.number
            and table.transaction_version(APP_RANDOM) == commit.random
        )

    def active_files(self) -> list[ActiveFile]:
        """The files of this version of the table, by path. Raises LoadError."""
        if self._table is None:
            return []
        with _translated(self.path, "cannot be read"):
            rows = pa.table(self._table.get_add_actions()).to_pylist()
            deleted = self._deleted()
        return sorted(
            (
                ActiveFile(
                    row["path"],
                    (row.get("partition") or {}).get("topic"),
                    row["size_bytes"],
                    row["num_records"],
                    row["path"] in deleted,
                )
                for row in rows
            ),
            key=lambda file: file.path,
        )

    def _deleted(self) -> set[str]:
        """The paths of files with a deletion vector."""
        assert self._table is not None
        if "deletionVectors" not in (self._table.protocol().reader_features or ()):
            return set()
        uris = pa.table(self._table.deletion_vectors()).column("filepath").to_pylist()
        return {unquote(uri).removeprefix(unquote(self._table.table_uri)).lstrip("/") for uri in uris}

    def check(self) -> None:
        """Refuse a table to which `append` must not write. Raises LoadError."""
        if self._table is None:
            return
        with _translated(self.path, "cannot be read"):
            metadata, protocol, fields = self._table.metadata(), self._table.protocol(), self._table.schema().fields
        if metadata.partition_columns != PARTITION_BY:
            raise LoadError(
                f"{self.path}: the Delta table has the partition columns {metadata.partition_columns}, not {PARTITION_BY}:"
                " another writer replaced it; use another --version"
            )
        unknown = sorted(set(protocol.writer_features or ()) - _WRITABLE)
        if unknown:
            raise LoadError(
                f"{self.path}: the Delta table has features that `odradek load` cannot write: {', '.join(unknown)}; remove them"
                " (ALTER TABLE ... DROP FEATURE), or use another --version"
            )
        for name, value in sorted(metadata.configuration.items()):
            if name.startswith("delta.constraints.") or name == "delta.setTransactionRetentionDuration":
                raise LoadError(
                    f"{self.path}: the Delta table has the property {name}={value}, which `odradek load` cannot respect: remove"
                    " it, or use another --version"
                )
            if name == "delta.columnMapping.mode" and value != "none":
                raise LoadError(
                    f"{self.path}: the Delta table has the property {name}={value}, and `odradek load` writes columns by name"
                    " only: use another --version"
                )
        for field in fields:
            rules = [key for key in field.metadata if key.startswith(_RULES)]
            if rules or not field.nullable:
                rule = rules[0] if rules else "NOT NULL"
                raise LoadError(
                    f"{self.path}: column '{field.name}' of the Delta table has the rule {rule}, which `odradek load` cannot"
                    " respect: remove it, or use another --version"
                )

    def append(self, commit: Commit, expected: int | None) -> None:
        """Add the commit's files to the table in one transaction, or create the table with them.

        :param expected: the number of the commit before it with files
        :raises LostRaceError: another writer changed the table meanwhile
        :raises LoadError: the table must not be written to, or its columns are others
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import create_table_with_add_actions

        schema = _schema_of(self.path, [self.path / file.path for file in commit.files])
        self.check()
        self._check_columns(schema)
        if self.number != expected:
            raise LostRaceError(
                f"{self.path}: the newest commit in the Delta table is {self.number}, and should be {expected}: another run"
                " wrote to it; run it again"
            )
        properties = CommitProperties(
            custom_metadata={
                DOCUMENT: json.loads(json.dumps(commit.document())),
                SENTENCE: f"odradek load: {commit.kind} {commit.number}, {commit.records} records",
            },
            # removed files are not compared with those that another transaction removes meanwhile: no other one may be there
            max_commit_retries=0 if commit.removed else None,
            app_transactions=[Transaction(APP, commit.number), Transaction(APP_RANDOM, commit.random or 0)],
        )
        before = self._log_entries()
        with _translated(self.path, f"refused commit {commit.number}"):
            if self._table is None:
                create_table_with_add_actions(
                    self.path.as_uri(), schema, self._added(commit), "error", PARTITION_BY, commit_properties=properties
                )
            else:
                actions: list[AddAction | RemoveAction] = [*self._added(commit), *self._removed(commit)]
                self._table.create_write_transaction(
                    actions, "append", schema, PARTITION_BY, commit_properties=properties
                )
        self._sync(before)

    def _check_columns(self, schema: "Schema") -> None:
        if self._table is None:
            return
        there = {field.name: field.type for field in self._table.schema().fields}
        for field in schema.fields:
            found = there.get(field.name)
            if found != field.type:
                what = "has no such column" if found is None else f"has {_type(found)}"
                raise LoadError(
                    f"{self.path}: column '{field.name}' is {_type(field.type)}, and the Delta table {what}: another writer"
                    " changed its schema; use another --version"
                )

    def _added(self, commit: Commit) -> "list[AddAction]":
        from deltalake.transaction import AddAction

        return [
            AddAction(
                file.path,
                file.bytes,
                _partition_values(self.path, file.path),
                (self.path / file.path).stat().st_mtime_ns // 1_000_000,
                commit.kind != MERGE,
                json.dumps(_statistics(self.path / file.path, file)),
            )
            for file in commit.files
        ]

    def _removed(self, commit: Commit) -> "list[RemoveAction]":
        from deltalake.transaction import RemoveAction

        active = {file.path: file for file in self.active_files()}
        lost = [path for path in commit.removed if path not in active or active[path].has_deletions]
        if lost:
            raise LostRaceError(f"{self.path / lost[0]} was replaced by another writer meanwhile; run it again")
        at_ms = now_ms()
        return [
            RemoveAction(path, False, at_ms, active[path].bytes, _partition_values(self.path, path))
            for path in commit.removed
        ]

    def _log_entries(self) -> set[str]:
        log = self.path / LOG
        return {path.name for path in log.iterdir() if path.is_file()} if log.is_dir() else set()

    def _sync(self, before: set[str]) -> None:
        """Make what was added to the log survive a loss of power. Raises OSError."""
        for name in self._log_entries() - before | {"_last_checkpoint"}:
            try:
                sync_file(self.path / LOG / name)
            except FileNotFoundError:  # there is no checkpoint yet, or another writer has removed an old entry
                continue
        sync_directory(self.path / LOG)
        sync_directory(self.path)


def _opened(path: Path) -> "DeltaTable | None":
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    if not (path / LOG).exists():
        return None
    with _translated(path, "cannot be read"):
        try:
            return DeltaTable(path.as_uri())
        except TableNotFoundError:  # a directory without a log entry
            return None
        except DeltaError:
            damage = _damage(path / LOG)
            if damage is None:
                raise
            raise LoadError(f"{path}: the Delta table cannot be read: {damage}") from None


def _damage(log: Path) -> str | None:
    """What is wrong with the entries of a log that cannot be read, and what to do; None if they look whole."""
    first = max((int(path.name[:20]) + 1 for path in log.glob(f"{'[0-9]' * 20}.checkpoint*")), default=0)
    entries = sorted(path for path in log.iterdir() if _ENTRY.fullmatch(path.name) and int(path.stem) >= first)
    for number, path in enumerate(entries, first):
        if int(path.stem) != number:
            return (
                f"{log / f'{number:020}.json'} is missing: restore it from a backup, or load again into another version"
            )
    for path in reversed(entries):
        if _is_whole(path):
            continue
        if path == entries[-1]:
            return (
                f"{path}, its newest entry, is damaged: remove this file if the machine lost power while it was written, else"
                " restore it from a backup"
            )
        return f"{path} is damaged: restore it from a backup, or load again into another version"
    return None


def _is_whole(path: Path) -> bool:
    try:
        for line in path.read_bytes().splitlines():
            json.loads(line)
    except (OSError, ValueError):
        return False
    return True


def _partition_values(table: Path, path: str) -> dict[str, str | None]:
    found = _PATH.fullmatch(path)
    if found is None:
        raise LoadError(f"{table / path}: expected a file in a directory topic=TOPIC/date=DATE")
    date = found["date"]
    return {"topic": found["topic"], "date": None if date == NO_DATE else date}


def _schema_of(table: Path, files: Sequence[Path]) -> "Schema":
    """The columns of the table that files of a commit belong to; each may be null. Raises LoadError."""
    from deltalake import Schema

    columns = pq.read_schema(files[0]).remove_metadata()
    for file in files[1:]:
        if not pq.read_schema(file).remove_metadata().equals(columns):
            raise LoadError(f"{file} has other columns than {files[0]}")
    fields = [
        ("topic", pa.string()),
        ("date", pa.date32()),
        *((field.name, _nullable(field.type)) for field in columns),
    ]
    for name, type_ in fields:
        try:
            Schema.from_arrow(pa.schema([(name, type_)]))
        except Exception as error:  # deltalake raises nothing narrower
            raise LoadError(
                f"{table}: column '{name}' is {type_}, which Delta tables cannot have ({_first_line(error)}): leave the field"
                " out of --schema, or use --format parquet"
            ) from None
    return Schema.from_arrow(pa.schema(fields))


def _nullable(type_: pa.DataType) -> pa.DataType:
    """The type, whose fields inside may all be null."""
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _nullable(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_nullable(type_.key_type), _nullable(type_.item_type))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_nullable(type_.value_type))
    return type_


def _statistics(path: Path, file: DataFile) -> dict[str, Any]:
    """What readers need to skip a file: from its footer. Raises LoadError if the file is damaged."""
    try:
        metadata = pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        raise LoadError(f"{path}: is not a complete Parquet file: {_first_line(error)}") from None
    if metadata.num_rows != file.records:
        raise LoadError(f"{path} has {metadata.num_rows} records, and {file.records} were written to it")
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    for name, (first, last) in _bounds(metadata).items():
        if name == "timestamp":
            first_time, last_time = _time_text(first), _time_text(last)
            if first_time is not None and last_time is not None:
                least[name], most[name] = first_time, last_time
        else:
            least[name], most[name] = first, last
    return {"numRecords": file.records, "minValues": least, "maxValues": most}


def _bounds(metadata: pq.FileMetaData) -> Mapping[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    unknown: set[str] = set()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name, known = column.path_in_schema, column.statistics
            if name not in _COUNTED:
                continue
            if known is None or not known.has_min_max:
                unknown.add(name)
                continue
            least, most = found.get(name, (known.min_raw, known.max_raw))
            found[name] = min(least, known.min_raw), max(most, known.max_raw)
    return {name: bounds for name, bounds in found.items() if name not in unknown}


def _time_text(microseconds: int) -> str | None:
    """A time as statistics have it; None if no reader could read it. Kafka's timestamps are whole milliseconds."""
    try:
        at = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


@contextmanager
def _translated(path: Path, what: str) -> Iterator[None]:
    """Raise the errors of deltalake as LoadError, and those about a concurrent change as LostRaceError."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError as error:
        if "Unsupported table features" in str(error):
            raise LoadError(f"{path}: the Delta table {what}: {_first_line(error)}") from None
        raise LostRaceError(
            f"{path}: the Delta table {what}, because another writer changed it meanwhile ({_first_line(error)}); run it again"
        ) from None
    except DeltaError as error:
        raise LoadError(f"{path}: the Delta table {what}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _type(type_: Any) -> str:
    """The name of a type of Delta."""
    return str(json.loads(type_.to_json()) if hasattr(type_, "to_json") else type_)
