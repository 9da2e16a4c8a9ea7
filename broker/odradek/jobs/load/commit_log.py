"""The commits of a version of the output: documents that say which offsets are loaded, and in which files they are.

A version is a directory ``OUTPUT/version=NAME``. Its log is ``_odradek_load`` in it, which readers of the files skip because of
the underscore: ``version.json`` (written once), ``commits/00000000000000000007.json``, ``runs.jsonl``, ``staging/``. A commit
appears whole or not at all, and only if no commit of that number exists: it is written beside, flushed, and linked to its name.
Where the commit itself is made elsewhere (`delta_output`), its document is ``0...07.json.prepared`` until then.
Owned by the one run that holds the lock of the version.
"""

import fcntl
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar

from odradek.jobs.load.errors import LoadError, LostRaceError
from odradek.jobs.load.offsets import Finding, Position, Positions, TopicPositions

FORMAT = 1
LOG = "_odradek_load"
_PREFIX = "version="
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_COMMIT = re.compile(r"[0-9]{20}\.json")
_PREPARED = ".prepared"
LOAD, MERGE = "load", "merge"
_Kind = TypeVar("_Kind")


@dataclass(frozen=True)
class LoadedRange:
    """What a commit has of one partition: the offsets from `start` to before `until`, and the records found there.

    :param first_offset, last_offset: of records; None if there are none (transaction markers and compaction leave offsets
        without records). :param first_timestamp_ms, last_timestamp_ms: the smallest and the largest. :param checksum: see
        `frames.CHECKSUM`.
    """

    start: int
    until: int
    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    checksum: int = 0


@dataclass(frozen=True)
class DataFile:
    """A file of a commit. :param staging, path: where it was written and where it belongs, below the directory of the version.

    :param undecoded: the records whose value could not be decoded
    """

    staging: str
    path: str
    bytes: int
    records: int
    undecoded: int = 0


@dataclass(frozen=True)
class Commit:
    """One step of a load, or a merge of files. :param positions: those after it. :param ranges: by topic and partition.

    :param removed: files of earlier commits that a merge replaced. :param started, ended: ISO 8601, UTC.
    :param random: a number below 2^62 that only this commit has, if it is a transaction of a Delta table; else None
    """

    number: int
    kind: str
    cluster_id: str
    started: str
    ended: str
    positions: Positions
    ranges: Mapping[str, Mapping[int, LoadedRange]] = field(default_factory=dict)
    files: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    random: int | None = None

    @property
    def records(self) -> int:
        """The number of records that it loaded."""
        return sum(part.records for topic in self.ranges.values() for part in topic.values())

    def document(self) -> dict[str, Any]:
        """The commit as JSON has it."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Commit":
        """The inverse of `document`. Raises KeyError, TypeError, ValueError, AttributeError for anything else."""
        values = dict(document)
        if values.pop("format") != FORMAT:
            raise ValueError(f"the format is {document['format']}, and this version of odradek reads {FORMAT}")
        values["positions"] = {
            name: TopicPositions(
                topic["topic_id"],
                {int(number): _made(Position, position) for number, position in topic["partitions"].items()},
            )
            for name, topic in values["positions"].items()
        }
        values["ranges"] = {
            name: {int(number): _made(LoadedRange, part) for number, part in topic.items()}
            for name, topic in values["ranges"].items()
        }
        values["files"] = tuple(_made(DataFile, file) for file in values["files"])
        values["removed"] = tuple(values["removed"])
        values["findings"] = tuple(_made(Finding, finding) for finding in values["findings"])
        return _made(cls, values)


@dataclass(frozen=True)
class Head:
    """What is fixed when a version is created. :param from_ms, to_ms: the period; None: from the beginning, without an end.

    :param decoding: how values are decoded, as text for people and for comparison. :param table: one of `output.FORMATS`
    """

    version: str
    cluster_id: str
    created: str
    from_ms: int | None = None
    to_ms: int | None = None
    decoding: str = "raw"
    table: str = "parquet"


class VersionDirectory:
    """A version of an output: its files and its log."""

    def __init__(self, output: Path, name: str) -> None:
        self.output = output
        self.name = name
        self.path = output / f"{_PREFIX}{name}"
        self.log = self.path / LOG
        self.staging = self.log / "staging"
        self.commits = self.log / "commits"

    def head(self) -> Head | None:
        """The head; None if the version does not exist. Raises LoadError if it cannot be read."""
        path = self.log / "version.json"
        document = _read(path)
        if document is None:
            if self.is_begun:  # a new head could have another format, period or cluster
                raise LoadError(
                    f"{path} is missing, and {self.commits} has commits: restore the file from a backup, or load again into"
                    " another version"
                )
            return None
        try:
            values = dict(document)
            if values.pop("format") != FORMAT:
                raise ValueError(f"the format is {document['format']}, and this version of odradek reads {FORMAT}")
            return _made(Head, values)
        except (KeyError, TypeError, ValueError) as error:
            raise LoadError(f"{path}: expected the head of a version of `odradek load`: {error}") from None

    def create(self, head: Head) -> None:
        """Create the version. Raises LoadError, also if another run has created it meanwhile."""
        try:
            self.commits.mkdir(parents=True, exist_ok=True)
            self.staging.mkdir(exist_ok=True)
            put_if_absent(self.log / "version.json", {"format": FORMAT, **asdict(head)})
            for directory in (self.path, self.output, self.output.parent):
                sync_directory(directory)
        except FileExistsError as error:
            raise LoadError(
                f"{error.filename2 or error.filename} was created by another run at the same time: repeat the command"
            ) from None
        except OSError as error:
            raise LoadError(f"--out {self.output}: cannot write to this directory: {error.strerror}") from None

    def replace_head(self, head: Head) -> None:
        """Replace the head of a version that has no commit. Raises LoadError."""
        temporary = self.log / f".version.json.{uuid.uuid4().hex}.new"
        try:
            put_if_absent(temporary, {"format": FORMAT, **asdict(head)})
            temporary.rename(self.log / "version.json")
            sync_directory(self.log)
        except OSError as error:
            raise LoadError(f"{self.log}: cannot write to this directory: {error.strerror}") from None

    def numbers(self) -> list[int]:
        """The numbers of the commits, ascending. Raises LoadError if one is missing."""
        try:
            found = sorted(int(path.stem) for path in self.commits.iterdir() if _COMMIT.fullmatch(path.name))
        except FileNotFoundError:
            return []
        if found != list(range(1, len(found) + 1)):
            lost = next(number for number, there in enumerate(found, 1) if number != there)
            raise LoadError(f"{self.commits}: commit {lost} is missing, but {found[-1]} exists; restore the file")
        return found

    def commit(self, number: int) -> Commit:
        """Read a commit. Raises LoadError."""
        path = self.commits / f"{number:020}.json"
        document = _read(path)
        try:
            if document is None:
                raise ValueError("the file does not exist")
            return Commit.from_document(document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LoadError(f"{path}: expected a commit of `odradek load`: {error}") from None

    def newest(self) -> Commit | None:
        """The newest commit; None if there is none. Raises LoadError."""
        numbers = self.numbers()
        return self.commit(numbers[-1]) if numbers else None

    def all_commits(self) -> Iterator[Commit]:
        """All commits in order. Raises LoadError."""
        for number in self.numbers():
            yield self.commit(number)

    def append(self, commit: Commit) -> None:
        """Write a commit. Raises LostRaceError if the number is taken; OSError."""
        path = self.commits / f"{commit.number:020}.json"
        try:
            put_if_absent(path, commit.document())
        except FileExistsError:
            raise LostRaceError(
                f"{path} was written by another run meanwhile: this run's files were discarded; run it again"
            ) from None

    def prepare(self, commit: Commit) -> None:
        """Write the document of a commit that does not count yet. Raises LostRaceError if its number is taken; OSError."""
        path = self._prepared(commit.number)
        taken = LostRaceError(
            f"{path} was written by another run meanwhile: this run's files were discarded; run it again"
        )
        try:
            put_if_absent(path, commit.document())
        except FileExistsError:
            raise taken from None
        if (self.commits / f"{commit.number:020}.json").exists():
            self.withdraw(commit)
            raise taken

    def prepared(self) -> list[Commit]:
        """The commits that are prepared; a run that holds the lock leaves one at most. Raises LoadError."""
        found = []
        for path in sorted(self.commits.glob(f"0*.json{_PREPARED}")):
            document = _read(path)
            try:
                found.append(Commit.from_document(document or {}))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise LoadError(f"{path}: expected a commit of `odradek load`: {error}") from None
        return found

    def finish(self, commit: Commit) -> None:
        """Give a prepared commit its name: it counts now. Raises OSError."""
        self._prepared(commit.number).rename(self.commits / f"{commit.number:020}.json")
        sync_directory(self.commits)

    def withdraw(self, commit: Commit) -> None:
        """Remove a prepared commit. Raises OSError."""
        self._prepared(commit.number).unlink(missing_ok=True)
        sync_directory(self.commits)

    def has_document(self, number: int) -> bool:
        """Whether a commit of this number exists, or is prepared."""
        return (self.commits / f"{number:020}.json").exists() or self._prepared(number).exists()

    @property
    def is_begun(self) -> bool:
        """Whether there is a commit, or one that is prepared: the head cannot change any more. Raises LoadError."""
        return bool(self.numbers()) or any(self.commits.glob(f"0*.json{_PREPARED}"))

    def _prepared(self, number: int) -> Path:
        return self.commits / f"{number:020}.json{_PREPARED}"

    @contextmanager
    def staged(self, number: int) -> Iterator[Path]:
        """A new directory for the files of commit `number`. It is removed at the end, except if there is an exception and a
        document of this commit: the next run then publishes the files. Raises OSError.
        """
        directory = self.staging / uuid.uuid4().hex
        directory.mkdir()
        try:
            yield directory
        except BaseException:
            if not self.has_document(number):
                shutil.rmtree(directory, ignore_errors=True)
            raise
        shutil.rmtree(directory)

    def note_run(self, document: Mapping[str, Any]) -> None:
        """Append the outcome of a run to ``runs.jsonl``. Raises OSError."""
        line = (json.dumps(document, sort_keys=True) + "\n").encode()
        descriptor = os.open(self.log / "runs.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the version; the kernel releases it when the process dies. Raises LoadError if another run has
        it.
        """
        path = self.log / ".lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise LoadError(
                f"{path}: cannot be opened: {error.strerror}; run as a user who may write to this directory"
            ) from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LoadError(f"{self.path}: another command uses this version; wait until it ends") from None
            yield
        finally:
            os.close(descriptor)


def checked_name(name: str) -> str:
    """Return the name of a version. Raises LoadError if it is none."""
    if not _NAME.fullmatch(name):
        raise LoadError(
            f"--version {name!r}: expected 1 to 100 letters, digits, '.', '_' and '-', first a letter or a digit"
        )
    return name


def versions(output: Path) -> list[VersionDirectory]:
    """The versions of an output, by name. Raises LoadError if it cannot be read."""
    try:
        names = sorted(path.name.removeprefix(_PREFIX) for path in output.glob(f"{_PREFIX}*"))
        found = [VersionDirectory(output, name) for name in names]
        return [version for version in found if version.head() is not None]
    except OSError as error:
        raise LoadError(f"--out {output}: cannot read this directory: {error.strerror}") from None


def put_if_absent(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document that appears under its name whole, and is on the disk when this returns. Raises FileExistsError."""
    temporary = (
        path.parent / f".{path.name}.{uuid.uuid4().hex}"
    )  # machines that share a directory have the same process ids
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with open(descriptor, "w") as file:
            json.dump(document, file, indent=1)
            file.flush()
            os.fsync(descriptor)
        os.link(temporary, path)
    finally:
        temporary.unlink()
    sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """Make the contents of a file that another library wrote survive a loss of power. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in a directory survive a loss of power. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _made(kind: Callable[..., _Kind], values: Mapping[str, Any]) -> _Kind:
    """An object of a dataclass from what a document has. Raises TypeError if a value has another type than its field."""
    made = kind(**values)
    for name, type_ in _simple_types(kind):
        value = getattr(made, name)
        if not isinstance(value, type_):
            raise TypeError(f"{name} is {value!r}; expected {getattr(type_, '__name__', type_)}")
    return made


@cache
def _simple_types(kind: Any) -> tuple[tuple[str, Any], ...]:
    """The fields of a dataclass whose types `isinstance` can check."""
    return tuple((field.name, field.type) for field in fields(kind) if isinstance(field.type, type | UnionType))


def _read(path: Path) -> dict[str, Any] | None:
    """A JSON object; None if the file does not exist. Raises LoadError."""
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LoadError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise LoadError(f"{path}: is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise LoadError(f"{path}: expected a JSON object")
    return document
