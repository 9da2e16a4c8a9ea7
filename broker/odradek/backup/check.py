"""Checks a backup: the files that its manifest names, and the logs in them. Writes nothing."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from odradek.backup import manifest as manifests
from odradek.backup.copying import Copier
from odradek.backup.errors import BackupError
from odradek.backup.manifest import FILE_NAME, LOG_DIRS, METADATA_FILE, TREE_FILE, Manifest
from odradek.backup.tree import decode_tree
from odradek.metadata.sqlite import FORMAT as METADATA_FORMAT


class Problem(NamedTuple):
    """What is wrong with a file of the backup."""

    file: str
    what: str


def check_files(
    backup: Path, progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[Manifest, list[Problem]]:
    """Compare all files with the manifest, and look for others. Raises BackupError if the manifest cannot be read, OSError."""
    manifest = manifests.read(backup)
    total = manifest.bytes
    copier = Copier(progress=lambda done: progress(done, total))
    problems = []
    for entry in manifest.all_files:
        path = backup / entry.path
        try:
            what = copier.check(path, entry.size, entry.sha256)
        except OSError as error:
            what = f"cannot be read: {error.strerror}"
        if what is not None:
            problems.append(Problem(str(path), what))
    expected = {entry.path for entry in manifest.all_files} | {FILE_NAME}
    problems += [
        Problem(str(path), "the file is not in the manifest")
        for path in sorted(backup.rglob("*"))
        if not path.is_dir() and str(path.relative_to(backup)) not in expected
    ]
    problems += _check_metadata(backup, manifest)
    return manifest, problems


def log_directories(backup: Path, manifest: Manifest) -> list[Path]:
    """The log directories in the backup."""
    return [backup / LOG_DIRS / str(number) for number in range(len(manifest.log_dirs))]


def _check_metadata(backup: Path, manifest: Manifest) -> list[Problem]:
    problems = []
    if manifest.has(METADATA_FILE):
        path = backup / METADATA_FILE
        try:
            # immutable: SQLite creates no files beside it
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as store:
                (result,) = store.execute("PRAGMA integrity_check").fetchone()
                (version,) = store.execute("PRAGMA user_version").fetchone()
            if result != "ok":
                problems.append(Problem(str(path), f"SQLite finds it damaged: {result}"))
            elif version != METADATA_FORMAT:
                problems.append(Problem(str(path), f"it has format {version}; this program supports {METADATA_FORMAT}"))
        except sqlite3.Error as error:
            problems.append(Problem(str(path), f"SQLite cannot read it: {error}"))
    elif not manifest.clustered:
        problems.append(Problem(str(backup), f"it has no {METADATA_FILE}"))
    if manifest.has(TREE_FILE):
        path = backup / TREE_FILE
        try:
            decode_tree(path.read_bytes(), path)
        except (BackupError, OSError) as error:
            problems.append(Problem(str(path), str(error)))
    return problems
