"""Moves the files of a commit to where readers find them, after the commit was written. Repeatable: a step that was done is
skipped.

The order of a step is: write files in staging and flush them; write the commit; publish. Whatever is in staging and in no
commit was left by a run that died, and is removed by the next run. Runs in the driver, which holds the lock of the version.
"""

import ctypes
import errno
import os
import re
import shutil
from pathlib import Path

from odradek.jobs.load.commit_log import MERGE, Commit, VersionDirectory, sync_directory
from odradek.jobs.load.errors import LoadError

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
#: The number of the commit in the name of its file.
_NUMBER = re.compile(r"part-([0-9]{10})-")


def publish(version: VersionDirectory, commit: Commit) -> None:
    """Put the files of a commit in place, and remove those that it replaced.

    :raises LoadError: a file is neither in staging nor in its place
    """
    if commit.kind == MERGE:
        _publish_merge(version, commit)
        return
    changed: set[Path] = set()
    for file in commit.files:
        written, target = version.path / file.staging, version.path / file.path
        make_directories(version.path, target.parent)
        try:
            written.rename(target)
        except FileNotFoundError:
            if not target.exists():
                raise LoadError(
                    f"{target} of commit {commit.number} is missing, and so is {written}: restore one of them, or load again"
                    " into another version"
                ) from None
        changed.add(target.parent)
    for directory in sorted(changed):
        sync_directory(directory)


def recover(version: VersionDirectory) -> Commit | None:
    """Finish what a run that died had committed, and remove what it had not. Returns the newest commit. Raises LoadError."""
    refuse_links(version)
    newest = version.newest()
    refuse_newer_files(version, newest.number if newest else 0)
    if newest is not None:
        publish(version, newest)
    clear_staging(version)
    return newest


def refuse_newer_files(version: VersionDirectory, newest: int) -> None:
    """Raise LoadError if a file in its place belongs to a commit after `newest`: it would be loaded a second time."""
    for path in version.path.glob("topic=*/date=*/part-*.parquet"):
        found = _NUMBER.match(path.name)
        if found and int(found[1]) > newest:
            there = f"commit {newest} is the newest" if newest else "there is no commit"
            raise LoadError(
                f"{path} belongs to commit {int(found[1])}, and in {version.commits} {there}: restore the commits from a"
                " backup, or load again into another version"
            )


def refuse_links(version: VersionDirectory) -> None:
    """Raise LoadError if the log is a symbolic link: `clear_staging` would remove the files of another directory."""
    for directory in (version.log, version.staging):
        if directory.is_symlink():
            raise LoadError(f"{directory}: is a symbolic link; expected a directory that `odradek load run` made")


def clear_staging(version: VersionDirectory) -> None:
    """Remove what runs that died have left in staging, and their temporary files of commits. Raises OSError."""
    version.staging.mkdir(exist_ok=True)
    for left in version.staging.iterdir():
        shutil.rmtree(
            left, ignore_errors=True
        )  # a task of the dead run may write for some seconds; the next run removes the rest
    for left in version.commits.glob(".*.json.*"):
        left.unlink()


def make_directories(top: Path, path: Path) -> None:
    """Make a directory below `top`, with those above it, so that it survives a loss of power. Raises OSError."""
    missing = []
    while path != top and not path.exists():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def _publish_merge(version: VersionDirectory, commit: Commit) -> None:
    """Exchange each directory with the one in staging that has the merged file: readers see the old files or the new ones."""
    merged: dict[str, list[str]] = {}
    staged: dict[str, Path] = {}
    for file in commit.files:
        directory, _, name = file.path.rpartition("/")
        merged.setdefault(directory, []).append(name)
        staged[directory] = (version.path / file.staging).parent
    for directory, names in sorted(merged.items()):
        target = version.path / directory
        if not all((target / name).exists() for name in names):
            exchange(staged[directory], target)
            sync_directory(target)
            sync_directory(target.parent)
        if staged[directory].exists():
            shutil.rmtree(
                staged[directory]
            )  # it has the files that were replaced, and second names of those that were not


def exchange(one: Path, other: Path) -> None:
    """Exchange two directories in one step. Raises LoadError if the file system cannot do it."""
    library = ctypes.CDLL(None, use_errno=True)
    rename = getattr(library, "renameat2", None)
    number = errno.ENOSYS
    if rename is not None:
        if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
            return
        number = ctypes.get_errno()
    raise LoadError(f"{other}: its merged files cannot be put in place: {os.strerror(number)}")


def can_exchange(directory: Path) -> bool:
    """Whether the file system of `directory` can exchange two directories in one step."""
    probes = [directory / f".probe-{os.getpid()}-{letter}" for letter in "ab"]
    try:
        for probe in probes:
            probe.mkdir()
        exchange(*probes)
    except LoadError:
        return False
    finally:
        for probe in probes:
            if probe.exists():
                probe.rmdir()
    return True
